//! Estimation and removal of measurement noise in the training snapshots.

use cfo_data::{ChannelNoise, NoiseEstimator, mean_interval};
use cfo_numerics::{Path, Smoother};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::measure::selection::Selection;
use crate::recipe::Smoothing;
use crate::trajectories::Trajectories;

/// Number of points of a field that are smoothed together.
const BLOCK: usize = 64;

/// The noise of a data set's channels, and the smoothing that removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denoiser {
    /// Unit of time of the smoothing: the mean interval of the snapshots.
    pub unit: f64,
    /// The noise of each channel; `None` if its snapshots are not changed.
    pub channels: Vec<Option<RemovedNoise>>,
}

/// The noise that is removed from a channel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RemovedNoise {
    /// Standard deviation, in the user's units.
    pub deviation: f64,
    /// Standard deviation as a share of the channel's standard deviation.
    pub relative: f64,
    /// Intensity of the curves' third derivative over the noise's variance, for [`Smoother::new`].
    pub ratio: f64,
}

impl Denoiser {
    /// Estimates the noise of the training snapshots. Returns `None` if there is no noise to remove.
    pub(crate) fn new(
        smoothing: Smoothing,
        set: &Trajectories,
        selections: &[Selection],
    ) -> Result<Option<Self>> {
        let known = match smoothing {
            Smoothing::None => return Ok(None),
            Smoothing::Auto => None,
            Smoothing::Noise(share) => Some(share),
        };
        let chosen: Vec<&Selection> =
            NoiseEstimator::chosen(selections.len()).into_iter().map(|i| &selections[i]).collect();
        let times: Vec<Vec<f64>> =
            chosen.iter().map(|one| one.times(&set.trajectories[one.trajectory].times)).collect();
        let unit = mean_interval(&times);
        let mut estimator = NoiseEstimator::new(set.description.shape, unit, chosen.len());
        for (selection, times) in chosen.iter().zip(&times) {
            estimator.add(times, &selection.counts, |knots| {
                let mut read = vec![0.0; knots.len() * set.description.shape.len()];
                selection.read(set, knots, &mut read).map(|()| read)
            })?;
        }
        let channels: Vec<Option<RemovedNoise>> =
            estimator.finish(&estimator.deviation(), known).iter().map(RemovedNoise::of).collect();
        Ok(channels.iter().any(Option::is_some).then_some(Self { unit, channels }))
    }

    /// Removes the noise from a trajectory `[times, points, channels]` with `counts` snapshots averaged in each.
    pub(crate) fn smooth(&self, times: &[f64], counts: &[u32], values: &mut [f32]) {
        let channels = self.channels.len();
        let size = values.len() / times.len().max(1);
        let points = size / channels.max(1);
        for (channel, removed) in self.channels.iter().enumerate() {
            let Some(removed) = removed else { continue };
            let smoother = Smoother::new(times, counts, self.unit, removed.ratio);
            let seen = &*values;
            let blocks: Vec<Vec<f64>> = (0..points.div_ceil(BLOCK))
                .into_par_iter()
                .map(|block| {
                    let inside = block * BLOCK..((block + 1) * BLOCK).min(points);
                    let at = |frame: usize, point: usize| seen[frame * size + point * channels + channel];
                    let frames =
                        (0..times.len()).flat_map(|frame| inside.clone().map(move |point| (frame, point)));
                    let mut series: Vec<f64> =
                        frames.map(|(frame, point)| f64::from(at(frame, point))).collect();
                    smoother.smooth(&mut series, inside.len());
                    series
                })
                .collect();
            values.par_chunks_mut(size).enumerate().for_each(|(frame, snapshot)| {
                for (block, series) in blocks.iter().enumerate() {
                    let width = series.len() / times.len();
                    for (k, &value) in series[frame * width..][..width].iter().enumerate() {
                        snapshot[(block * BLOCK + k) * channels + channel] = value as f32;
                    }
                }
            });
        }
    }

    /// Returns the weight of an error of the velocity at each snapshot of all trajectories, for each channel. The weight is `1 / (1 +
    /// variance / median)` of the remaining variance of the velocity at the snapshot. Snapshots at the ends of a trajectory have the
    /// largest variance. Channels without noise have `None`: their errors have equal weights. `times` are in units of `span`; knots are
    /// means of `merged` snapshots.
    pub(crate) fn counts(
        &self,
        path: Path,
        span: f64,
        (times, merged): (&[f64], &[u32]),
        offsets: &[u32],
    ) -> Vec<Option<Vec<f64>>> {
        let of = |removed: &RemovedNoise| {
            let mut variances = Vec::with_capacity(times.len());
            for pair in offsets.windows(2) {
                let rows = pair[0] as usize..pair[1] as usize;
                let merged = merged.get(rows.clone()).unwrap_or_default();
                let smoother = Smoother::new(&times[rows.clone()], merged, self.unit / span, removed.ratio);
                variances.extend(velocity_variances(path, &times[rows], &smoother));
            }
            let mut sorted = variances.clone();
            sorted.sort_by(f64::total_cmp);
            let median = sorted[sorted.len() / 2];
            let count = |variance: f64| if median > 0.0 { median / (median + variance) } else { 1.0 };
            variances.into_iter().map(count).collect()
        };
        self.channels.iter().map(|removed| removed.as_ref().map(of)).collect()
    }
}

/// Returns the remaining variance of the path's velocity at each time of a trajectory, in units of the noise's variance.
fn velocity_variances(path: Path, times: &[f64], smoother: &Smoother) -> Vec<f64> {
    let weights: Vec<_> = times.iter().map(|&time| path.weights(times, time)).collect();
    let sums: Vec<_> = weights.iter().map(|weights| (weights.first, weights.velocity())).collect();
    smoother.deviations(&sums).into_iter().map(|deviation| deviation * deviation).collect()
}

impl RemovedNoise {
    /// Returns the part of the estimate that is certainly noise, or `None` if there is none.
    fn of(noise: &ChannelNoise) -> Option<Self> {
        let surely = noise.resolved && noise.fit.ratio.is_finite() && noise.fit.deviation > 0.0;
        surely.then_some(Self {
            deviation: noise.fit.deviation,
            relative: noise.relative,
            ratio: noise.fit.ratio,
        })
    }
}

#[cfg(test)]
mod tests {
    use cfo_numerics::Philox;

    use super::*;

    /// Checks that the velocity is more certain in the middle of a trajectory than at its ends.
    #[test]
    fn ends_count_less() {
        let times: Vec<f64> =
            (0..40).map(|i| (f64::from(i) + 0.3 * (f64::from(i) * 2.1).sin()) / 40.0).collect();
        let removed = RemovedNoise { deviation: 1.0, relative: 0.1, ratio: 0.1 };
        let denoiser = Denoiser { unit: 1.0, channels: vec![Some(removed), None] };
        let counts = denoiser.counts(Path::default(), 40.0, (&times, &[]), &[0, 40]);
        let noisy = counts[0].as_ref().unwrap();
        assert!(noisy[0] < 0.3 * noisy[20] && noisy[39] < 0.3 * noisy[20], "{noisy:?}");
        assert!((10..30).all(|i| (0.25..1.0).contains(&noisy[i])), "{noisy:?}");
        assert!(counts[1].is_none());
    }

    /// Checks that each channel has its own smoothing and each point is smoothed separately, with more points than a block has.
    #[test]
    fn every_point_of_every_noisy_channel_is_smoothed() {
        let (frames, points, channels) = (12, BLOCK + 7, 3);
        let times: Vec<f64> = (0..frames).map(|i| i as f64 + 0.3 * (i as f64 * 2.1).sin()).collect();
        let mut random = Philox::new(1, 0);
        let values: Vec<f32> = (0..frames * points * channels).map(|_| random.normal() as f32).collect();
        let noise = |ratio: f64| Some(RemovedNoise { deviation: 1.0, relative: 1.0, ratio });
        let denoiser = Denoiser { unit: 1.0, channels: vec![noise(0.1), None, noise(3.0)] };
        let mut smooth = values.clone();
        denoiser.smooth(&times, &[], &mut smooth);
        for (point, channel) in (0..points).flat_map(|point| (0..channels).map(move |c| (point, c))) {
            let at = |frame: usize| (frame * points + point) * channels + channel;
            let mut series: Vec<f64> = (0..frames).map(|frame| f64::from(values[at(frame)])).collect();
            if let Some(removed) = denoiser.channels[channel] {
                Smoother::new(&times, &[], 1.0, removed.ratio).smooth(&mut series, 1);
            }
            assert!((0..frames).all(|frame| smooth[at(frame)] == series[frame] as f32), "{point} {channel}");
        }
    }
}
