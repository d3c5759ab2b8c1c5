//! Estimates of the noise in each channel of a data set, as distinct from coarse sampling in time.
//!
//! Noise and curves are separated by maximum likelihood (see [`cfo_numerics::Smoother`]): noise has the same size at
//! short and at long intervals, a curve does not. An estimate must pass three tests. With every second snapshot left
//! out the noise must keep its size, since a curve between snapshots would grow. It must be small compared to the
//! channel. At neighbouring points of a field it must not be correlated.

use std::ops::Range;

use cfo_numerics::{Evidence, NoiseFit, Smoother};

use crate::sampling::spread;
use crate::store::TrajectoryFile;
use crate::{DataError, FieldShape};

const MOST_TRAJECTORIES: usize = 32;
/// Maximum number of snapshots used per trajectory, from its middle.
const MOST_FRAMES: usize = 4096;
const MOST_POINTS: usize = 64;
/// Approximate number of values used per channel, which determine a deviation to half a percent.
const MOST_VALUES: usize = 1 << 17;
/// Numbers read at a time.
const PORTION: usize = 1 << 22;
/// Minimum number of differences for an estimate. With fewer, the error of a deviation would exceed 20 %.
const LEAST_DIFFERENCES: usize = 12;
/// Largest noise relative to the channel's deviation at which noise can be separated from curves.
const MOST_RELATIVE: f64 = 0.35;
/// Largest growth of the noise when every second snapshot is left out.
const MOST_GROWTH: f64 = 2.0;
/// Least fraction of the residuals' variance that neighbouring points do not share.
const LEAST_OWN: f64 = 0.5;

/// Typical step of an input, in units of its deviation. The last digits of a sensor are finer.
const LEAST_STEP: f64 = 0.1;

/// Noise relative to a channel's deviation below which splines have errors as large, so that smoothing is useless.
const MATTERS: f64 = 1e-3;

/// The noise of one channel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelNoise {
    /// Deviation of the noise in the data's units, and the smoothing parameters.
    pub fit: NoiseFit,
    /// Deviation of the noise in units of the channel's deviation.
    pub relative: f64,
    /// Whether noise was distinguished from coarse sampling in time. If not, the deviation is an upper bound.
    pub resolved: bool,
    /// Whether the channel is piecewise constant, as controls are. Its steps are not noise.
    pub stepwise: bool,
}

impl ChannelNoise {
    /// No noise, either established or unknown.
    fn none(resolved: bool) -> Self {
        Self { fit: NoiseFit::NONE, relative: 0.0, resolved, stepwise: false }
    }

    /// Deviation of the noise in the data's units if it was established, otherwise 0.
    pub fn certain(&self) -> f64 {
        if self.resolved { self.fit.deviation } else { 0.0 }
    }

    /// Whether smoothing is worth while.
    pub fn matters(&self) -> bool {
        self.resolved && self.relative > MATTERS
    }
}

/// Collects a bounded number of series per channel and estimates their noise.
#[derive(Clone, Debug)]
pub struct NoiseEstimator {
    shape: FieldShape,
    unit: f64,
    trajectories: usize,
    series: Vec<Series>,
}

#[derive(Clone, Debug)]
struct Series {
    times: Vec<f64>,
    /// Number of measurements averaged in each snapshot (empty: one each).
    counts: Vec<u32>,
    /// The values at the chosen points, `[frames, points, channels]`.
    values: Vec<f64>,
}

impl NoiseEstimator {
    /// Creates an estimator for `trajectories` trajectories with mean interval `unit`.
    pub fn new(shape: FieldShape, unit: f64, trajectories: usize) -> Self {
        Self { shape, unit, trajectories, series: Vec::new() }
    }

    /// Indices, among `count` trajectories, of those to add.
    pub fn chosen(count: usize) -> Vec<usize> {
        spread(count, MOST_TRAJECTORIES)
    }

    /// Adds a trajectory; `counts` are the numbers of measurements averaged in its snapshots (empty: one each).
    ///
    /// # Errors
    /// If `read` fails.
    pub fn add<E>(
        &mut self,
        times: &[f64],
        counts: &[u32],
        mut read: impl FnMut(Range<usize>) -> Result<Vec<f32>, E>,
    ) -> Result<(), E> {
        let count = times.len().min(MOST_FRAMES);
        let first = (times.len() - count) / 2;
        let (size, channels) = (self.shape.len(), self.shape.channels);
        let points = self.points(count);
        let mut values = Vec::with_capacity(count * points.len() * channels);
        let portion = (PORTION / size.max(1)).max(1);
        for start in (first..first + count).step_by(portion) {
            let frames = read(start..(start + portion).min(first + count))?;
            for frame in frames.chunks_exact(size) {
                let chosen = points.iter().flat_map(|&point| &frame[point * channels..][..channels]);
                values.extend(chosen.map(|&value| f64::from(value)));
            }
        }
        let inside = first..first + count;
        let counts = counts.get(inside.clone()).unwrap_or_default().to_vec();
        self.series.push(Series { times: times[inside].to_vec(), counts, values });
        Ok(())
    }

    /// The deviation of each channel over the added values; 1 where it is 0.
    pub fn deviation(&self) -> Vec<f64> {
        let mut statistics = crate::Statistics::new(self.shape.channels);
        for Series { values, .. } in &self.series {
            statistics.add(&values.iter().map(|&value| value as f32).collect::<Vec<f32>>());
        }
        statistics.normalization().deviation
    }

    /// Points of a snapshot that are used; for fields, pairs of neighbours along the last axis.
    fn points(&self, frames: usize) -> Vec<usize> {
        let all = self.shape.grid.points();
        let affordable = MOST_VALUES / (self.trajectories.clamp(1, MOST_TRAJECTORIES) * frames.max(1));
        let most = affordable.clamp(2, MOST_POINTS);
        match self.pairs() {
            false => spread(all, most),
            true => spread(all / 2, most / 2).into_iter().flat_map(|pair| [2 * pair, 2 * pair + 1]).collect(),
        }
    }

    /// Whether points come in pairs of neighbours.
    fn pairs(&self) -> bool {
        self.shape.grid.width() > 1 && self.shape.grid.width().is_multiple_of(2)
    }

    /// The noise of each channel, given the deviations. `known` noise, in units of these, is used as it is.
    pub fn finish(&self, deviation: &[f64], known: Option<f64>) -> Vec<ChannelNoise> {
        deviation.iter().enumerate().map(|(channel, &spread)| self.channel(channel, spread, known)).collect()
    }

    fn channel(&self, channel: usize, spread: f64, known: Option<f64>) -> ChannelNoise {
        let [mut all, mut half] = [Evidence::new(self.unit), Evidence::new(self.unit)];
        for Series { times, counts, values } in &self.series {
            let (series, width) = self.column(values, times.len(), channel);
            all.add(times, counts, &series, width);
            let every_second: Vec<f64> = series.chunks(width.max(1)).step_by(2).flatten().copied().collect();
            let half_counts: Vec<u32> = counts.iter().step_by(2).copied().collect();
            let half_times: Vec<f64> = times.iter().step_by(2).copied().collect();
            half.add(&half_times, &half_counts, &every_second, width);
        }
        if let Some(relative) = known {
            let fit = all.fit_prior(relative * spread);
            return ChannelNoise { fit, relative, resolved: true, stepwise: false };
        }
        if all.len() < LEAST_DIFFERENCES {
            return ChannelNoise::none(false);
        }
        if self.is_stepwise(channel, spread) {
            return ChannelNoise { stepwise: true, ..ChannelNoise::none(true) };
        }
        let mut fit = all.fit();
        if fit.deviation == 0.0 {
            return ChannelNoise::none(true);
        }
        let own = self.own_share(channel, fit.ratio);
        let grows = half.len() >= LEAST_DIFFERENCES && half.fit().deviation > MOST_GROWTH * fit.deviation;
        let small = fit.deviation <= MOST_RELATIVE * spread;
        if own < LEAST_OWN {
            fit.deviation *= own.sqrt();
        }
        let resolved = small && !grows && own >= LEAST_OWN;
        ChannelNoise { fit, relative: fit.deviation / spread, resolved, stepwise: false }
    }

    /// Whether a channel of a system is constant over most intervals and has large steps in the others. Sensors of few
    /// digits are constant too, but their steps are single digits. Parts of a field may be at rest.
    fn is_stepwise(&self, channel: usize, spread: f64) -> bool {
        if self.shape.axes() > 0 {
            return false;
        }
        let (mut kept, mut steps) = (0, Vec::new());
        for Series { times, values, .. } in &self.series {
            let (series, _) = self.column(values, times.len(), channel);
            let moves = series.windows(2).map(|pair| (pair[1] - pair[0]).abs());
            let (still, moved): (Vec<f64>, Vec<f64>) = moves.partition(|&step| step == 0.0);
            kept += still.len();
            steps.extend(moved);
        }
        let middle = steps.len() / 2;
        steps.sort_by(f64::total_cmp);
        kept >= steps.len() && steps.get(middle).is_some_and(|&step| step > LEAST_STEP * spread)
    }

    /// One channel of a trajectory, `[frames, points]`, and the number of points.
    fn column(&self, values: &[f64], frames: usize, channel: usize) -> (Vec<f64>, usize) {
        let column: Vec<f64> = values.iter().skip(channel).step_by(self.shape.channels).copied().collect();
        let width = column.len() / frames.max(1);
        (column, width)
    }

    /// Fraction of the variance of the removed noise that neighbouring points do not share; 1 without neighbours.
    fn own_share(&self, channel: usize, ratio: f64) -> f64 {
        if !self.pairs() {
            return 1.0;
        }
        let (mut differences, mut squares) = (0.0, 0.0);
        for Series { times, counts, values } in &self.series {
            let (series, width) = self.column(values, times.len(), channel);
            let mut smooth = series.clone();
            Smoother::new(times, counts, self.unit, ratio).smooth(&mut smooth, width);
            let removed: Vec<f64> =
                series.iter().zip(&smooth).map(|(value, smooth)| value - smooth).collect();
            for pair in removed.chunks_exact(2) {
                differences += (pair[0] - pair[1]).powi(2);
                squares += pair[0].powi(2) + pair[1].powi(2);
            }
        }
        if squares > 0.0 { differences / squares } else { 1.0 }
    }
}

/// The noise of each channel of a file, given the channels' deviations. The cost is bounded for files of any size.
///
/// # Errors
/// If the file cannot be read, or a value used is not finite.
pub fn noise_of_file(file: &TrajectoryFile, deviation: &[f64]) -> Result<Vec<ChannelNoise>, DataError> {
    let chosen = NoiseEstimator::chosen(file.len());
    let times = chosen.iter().map(|&index| file.times(index)).collect::<Result<Vec<_>, _>>()?;
    let mut estimator = NoiseEstimator::new(file.description().shape, mean_interval(&times), chosen.len());
    for (&index, times) in chosen.iter().zip(&times) {
        estimator.add(times, &[], |frames| file.frames(index, &frames.collect::<Vec<usize>>()))?;
    }
    Ok(estimator.finish(deviation, None))
}

/// Mean time between neighbouring snapshots; 1 if there are none.
pub fn mean_interval(times: &[impl AsRef<[f64]>]) -> f64 {
    let times = || times.iter().map(AsRef::as_ref);
    let span = |times: &[f64]| times.last().zip(times.first()).map_or(0.0, |(last, first)| last - first);
    let intervals: usize = times().map(|times| times.len().saturating_sub(1)).sum();
    let mean = times().map(span).sum::<f64>() / intervals.max(1) as f64;
    if mean > 0.0 && mean.is_finite() { mean } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use cfo_numerics::{Philox, TimeGrid};

    use super::*;
    use crate::simulate::{Burgers, Equation, KuramotoSivashinsky, Lorenz};
    use crate::{Trajectory, thin};

    fn shape(width: usize, channels: usize) -> FieldShape {
        if width > 1 { FieldShape::line(width, channels) } else { FieldShape::system(channels) }
    }

    /// The estimated noise of trajectories after adding noise of `share` times each channel's deviation.
    fn found(shape: FieldShape, trajectories: &[Trajectory], share: f64) -> Vec<ChannelNoise> {
        let channels = shape.channels;
        let mut statistics = crate::Statistics::new(channels);
        trajectories.iter().for_each(|trajectory| statistics.add(&trajectory.values));
        let deviation = statistics.normalization().deviation;
        let times: Vec<&TimeGrid> = trajectories.iter().map(|trajectory| &trajectory.times).collect();
        let mut estimator = NoiseEstimator::new(shape, mean_interval(&times), trajectories.len());
        for (index, trajectory) in trajectories.iter().enumerate() {
            let mut random = Philox::new(3, index as u64);
            let noisy: Vec<f32> = (trajectory.values.iter().enumerate())
                .map(|(i, &value)| value + (share * deviation[i % channels] * random.normal()) as f32)
                .collect();
            let read = |frames: Range<usize>| {
                Ok::<_, DataError>(noisy[frames.start * shape.len()..frames.end * shape.len()].to_vec())
            };
            estimator.add(&trajectory.times, &[], read).unwrap();
        }
        estimator.finish(&deviation, None)
    }

    /// Clean data have noise below a thousandth; added noise of 1, 5 and 10 % is found to within a fifth.
    fn assert_found(shape: FieldShape, trajectories: &[Trajectory]) {
        for noise in found(shape, trajectories, 0.0) {
            assert!(noise.relative < 1e-3 && noise.resolved, "{noise:?}");
        }
        for share in [0.01, 0.05, 0.1] {
            for noise in found(shape, trajectories, share) {
                assert!((noise.relative / share - 1.0).abs() < 0.2 && noise.resolved, "{share}: {noise:?}");
                assert!(noise.fit.ratio.is_finite());
            }
        }
    }

    fn irregular(count: usize, span: f64, phase: f64) -> Vec<f64> {
        (0..count).map(|i| span * (i as f64 + 0.35 * (i as f64 * 2.1 + phase).sin()) / count as f64).collect()
    }

    #[test]
    fn noise_of_oscillations_at_irregular_times() {
        let trajectories: Vec<Trajectory> = (0..20)
            .map(|i| {
                let phase = f64::from(i);
                let times = irregular(100, 12.0, phase);
                let state = |t: f64| [(t + phase).sin() as f32, 20.0 * (1.3 * t + phase).cos() as f32];
                let values = times.iter().flat_map(|&t| state(t)).collect();
                Trajectory::new(times, values, vec![]).unwrap()
            })
            .collect();
        assert_found(shape(1, 2), &trajectories);
    }

    /// A quarter of the paper's times, chosen at random.
    #[test]
    fn noise_of_sparse_lorenz() {
        let trajectories: Vec<Trajectory> = (0..12)
            .map(|index| {
                let Trajectory { times, values, .. } = Lorenz::default().trajectory(0, index).unwrap();
                let kept = thin::kept(times.len(), 0.25, 0, index as usize);
                let values =
                    kept.iter().flat_map(|&frame| values[3 * frame..3 * frame + 3].to_vec()).collect();
                let times: Vec<f64> = kept.iter().map(|&frame| times[frame]).collect();
                Trajectory::new(times, values, vec![]).unwrap()
            })
            .collect();
        assert_found(shape(1, 3), &trajectories);
    }

    #[test]
    fn noise_of_fields() {
        let burgers = Burgers { grid: 64, frames: 61, ..Default::default() };
        let lines: Vec<Trajectory> = (0..4).map(|index| burgers.trajectory(0, index).unwrap()).collect();
        assert_found(shape(64, 1), &lines);
        let square = FieldShape::plane(6, 8, 2);
        let waves: Vec<Trajectory> = (0..3)
            .map(|i| {
                let times = irregular(50, 6.0, f64::from(i));
                let place = |t: f64, j: usize| {
                    ((j / 2) as f64 * 0.4 + t + f64::from(i)).sin() * (1 + j % 2 * 9) as f64
                };
                let values = times.iter().flat_map(|&t| (0..96).map(move |j| place(t, j) as f32)).collect();
                Trajectory::new(times, values, vec![]).unwrap()
            })
            .collect();
        assert_found(square, &waves);
    }

    /// Clean curves sampled too coarsely are not reported as noise.
    #[test]
    fn coarse_times_are_not_called_noise() {
        let lorenz = Lorenz { frames: 26, ..Default::default() };
        let trajectories: Vec<Trajectory> =
            (0..20).map(|index| lorenz.trajectory(0, index).unwrap()).collect();
        assert!(found(shape(1, 3), &trajectories, 0.0).iter().all(|noise| !noise.resolved));
        let waves = KuramotoSivashinsky { grid: 64, frames: 12, horizon: 60.0, ..Default::default() };
        let lines: Vec<Trajectory> = (0..2).map(|index| waves.trajectory(0, index).unwrap()).collect();
        assert!(
            found(shape(64, 1), &lines, 0.0).iter().all(|noise| !noise.resolved || noise.relative < 1e-3)
        );
    }

    /// Tests a control that is constant between random steps, and a sensor with a coarse last digit.
    #[test]
    fn steps_of_an_input_are_not_noise() {
        let mut random = Philox::new(11, 0);
        let trajectories: Vec<Trajectory> = (0..6)
            .map(|i| {
                let times: Vec<f64> = (0..200).map(|k| 0.1 * f64::from(k)).collect();
                let levels: Vec<f64> = (0..20).map(|_| random.normal()).collect();
                let state = |k: usize| {
                    [
                        levels[k / 10] as f32,
                        ((0.1 * k as f64 + f64::from(i)).sin() * 100.0).round() as f32 / 100.0,
                    ]
                };
                let values = (0..200).flat_map(state).collect();
                Trajectory::new(times, values, vec![]).unwrap()
            })
            .collect();
        let found = found(shape(1, 2), &trajectories, 0.0);
        assert!(found[0].stepwise && !found[0].matters() && found[0].certain() == 0.0, "{found:?}");
        assert!(!found[1].stepwise && found[1].relative < 0.02, "{found:?}");
    }

    #[test]
    fn a_few_snapshots_say_nothing() {
        let trajectory = Trajectory::new(vec![0.0, 1.0, 2.0], vec![0.3, 0.9, 0.1], vec![]).unwrap();
        let noise = found(shape(1, 1), &[trajectory], 0.0)[0];
        assert_eq!((noise.relative, noise.resolved), (0.0, false));
    }
}
