//! Leave-one-out test of sampling: whether the times are dense enough for a spline, and which spline and stencil are
//! best. One knot is left out, rebuilt from its neighbours and compared.
//!
//! Without the knot its neighbours are about twice as far apart as the data, so the errors are upper bounds in
//! practice. With a method of order `p` the spline through all knots is about `2^p` times more accurate.
//!
//! Noise of deviation `s` adds `s^2 (1 + sum w^2)` to the mean square, with `w` the weights of the snapshots from which
//! the knot is rebuilt. This is subtracted, so that noise is not mistaken for coarse sampling.

use std::cmp::Reverse;

use cfo_numerics::{Clock, Path, Segment, Spline};

use crate::store::TrajectoryFile;
use crate::{DataError, Statistics};

const PATHS: [Path; 7] = SamplingAudit::PATHS;

/// Logarithmic clocks to compare with an even one, by the share of the horizon at which their rate is halved.
const CLOCKS: [f64; 5] = [0.3, 0.1, 0.03, 0.01, 0.003];

/// Factor by which a clock must reduce the error to be recommended: its network needs the time as an input.
const WORTH: f64 = 2.0;

/// Snapshots read on either side of the left-out one: the reach of the widest stencil at a neighbouring knot.
const REACH: usize = 4;

const MOST_TRAJECTORIES: usize = 32;

/// Maximum number of knots of a trajectory that are left out in turn, spread over its interior.
const MOST_KNOTS: usize = 32;

/// Maximum number of values read, so that the cost does not grow with the file.
const MOST_VALUES: usize = 1 << 26;

/// Errors below this fraction of the noise cannot be resolved: some hundred knots give its mean square to a tenth.
const HIDDEN: f64 = 0.3;

/// Number of trajectories, and of snapshots of each, from which deviations are computed.
const MEASURED: [usize; 2] = [64, 16];

/// Verdict on the density of the times, from the error of the recommended path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Below a hundredth of the standard deviation, noise subtracted: other errors will dominate.
    Dense,
    /// Below a tenth: the error of the path will limit the accuracy of the model.
    Coarse,
    /// Above a tenth: the snapshots are too far apart for interpolation.
    TooSparse,
    /// The error cannot be resolved because of noise.
    Noisy,
}

impl Verdict {
    /// Name in JSON documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Dense => "dense",
            Self::Coarse => "coarse",
            Self::TooSparse => "too-sparse",
            Self::Noisy => "noisy",
        }
    }

    /// The verdict as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dense => {
                "dense enough: left-out snapshots are interpolated to 1 % of the standard deviation"
            }
            Self::Coarse => {
                "coarse: left-out snapshots are interpolated to 10 % of the standard deviation, not to 1 %"
            }
            Self::TooSparse => {
                "too sparse: left-out snapshots are not interpolated to 10 % of the standard deviation"
            }
            Self::Noisy => "left-out snapshots are interpolated as well as the noise allows",
        }
    }
}

/// Errors of paths in rebuilding left-out snapshots.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingAudit {
    /// Number of trajectories used.
    pub trajectories: usize,
    /// Largest number of snapshots that a path rebuilt.
    pub knots: usize,
    /// One entry for each path for which the trajectories are long enough, simplest first.
    pub paths: Vec<Rebuilt>,
    /// Root mean square of the channels' noise, in units of their deviations.
    pub noise: f64,
    /// The smoothest paths with wide stencils and logarithmic clocks, each with its share of the horizon at half rate.
    pub clocks: Vec<(f64, Rebuilt)>,
}

/// The error of one path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebuilt {
    /// The path.
    pub path: Path,
    /// Root mean square error, with each channel in units of its deviation.
    pub error: f64,
    /// The error with the contribution of noise subtracted.
    pub curve_error: f64,
    /// L2 norm of the errors over the L2 norm of the snapshots, as in the paper's metric.
    pub relative_l2: f64,
}

impl SamplingAudit {
    /// Paths that are compared, simplest first.
    pub const PATHS: [Path; 7] = [
        Path { spline: Spline::Linear, stencil: 3 },
        Path { spline: Spline::Cubic, stencil: 3 },
        Path { spline: Spline::Cubic, stencil: 5 },
        Path { spline: Spline::Cubic, stencil: 7 },
        Path { spline: Spline::Quintic, stencil: 3 },
        Path { spline: Spline::Quintic, stencil: 5 },
        Path { spline: Spline::Quintic, stencil: 7 },
    ];

    /// The path for smoothed snapshots: of those compared, the most accurate on noisy oscillators and Lorenz.
    pub const SMOOTHED: Path = Path { spline: Spline::Quintic, stencil: 5 };

    /// Leaves out knots of `file`, one at a time. `deviation` is the deviation of each channel, `noise` that of its
    /// noise, in the same units. The cost is bounded for files of any size.
    ///
    /// A value used that is not finite is an error.
    pub fn new(file: &TrajectoryFile, deviation: &[f64], noise: &[f64]) -> Result<Self, DataError> {
        let shares = noise.iter().zip(deviation).map(|(noise, deviation)| (noise / deviation).powi(2));
        let noise_squared = shares.sum::<f64>() / noise.len().max(1) as f64;
        let window = (2 * REACH + 1) * file.description().shape.len().max(1);
        let most_knots = (MOST_VALUES / window).max(1);
        let trajectories = spread(file.len(), MOST_TRAJECTORIES.min(most_knots));
        let per_trajectory = MOST_KNOTS.min(most_knots / trajectories.len().max(1)).max(1);
        let mut looked_at = Vec::new();
        let (mut start, mut end) = (f64::INFINITY, f64::NEG_INFINITY);
        for &trajectory in &trajectories {
            let times = file.times(trajectory)?;
            if let [first, .., last] = times[..] {
                (start, end) = (start.min(first), end.max(last));
            }
            looked_at.push((trajectory, times));
        }
        let share = |time: f64| (time - start) / (end - start);
        let mut tries = tries();
        for (trajectory, times) in &looked_at {
            let interior = times.len().saturating_sub(2);
            for knot in spread(interior, per_trajectory) {
                leave_out(file, *trajectory, (times, knot + 1), (deviation, share), &mut tries)?;
            }
        }
        let found = |one: &Try| Some((one.clock, one.sums.rebuilt(one.path, noise_squared)?));
        let rebuilt: Vec<(Clock, Rebuilt)> = tries.iter().filter_map(found).collect();
        Ok(Self {
            trajectories: trajectories.len(),
            knots: tries.iter().map(|one| one.sums.knots).max().unwrap_or(0),
            paths: rebuilt.iter().filter(|(clock, _)| *clock == Clock::Even).map(|(_, one)| *one).collect(),
            noise: noise_squared.sqrt(),
            clocks: rebuilt.iter().filter_map(|(clock, one)| Some((clock.half()?, *one))).collect(),
        })
    }

    /// The clock with the smallest error, by the fraction of the horizon at which its rate is half the initial rate.
    /// `None` if the recommended path is nearly as accurate with an even clock, or noise hides the difference.
    pub fn recommended_clock(&self) -> Option<f64> {
        let even = self.recommended()?.curve_error;
        let (half, best) =
            self.clocks.iter().min_by(|(_, a), (_, b)| a.curve_error.total_cmp(&b.curve_error))?;
        (even > self.hidden().max(WORTH * best.curve_error)).then_some(*half)
    }

    /// The verdict; `None` if no path could be compared. `is_smoothed`: whether the data have noise that matters.
    pub fn verdict(&self, is_smoothed: bool) -> Option<Verdict> {
        let error = self.recommended()?.curve_error;
        Some(match error {
            error if is_smoothed && error <= self.hidden() => Verdict::Noisy,
            error if error < 1e-2 => Verdict::Dense,
            error if error < 1e-1 => Verdict::Coarse,
            _ => Verdict::TooSparse,
        })
    }

    /// Errors of the curve below this cannot be resolved because of noise.
    pub fn hidden(&self) -> f64 {
        HIDDEN * self.noise
    }

    /// The path with the smallest error.
    ///
    /// Of paths that differ by less than a twentieth it is the smoothest, as in the paper: in the middle between
    /// equally spaced knots, cubic and quintic splines hardly differ. Of these it is the one with the narrowest
    /// stencil. Differences below [`hidden`](Self::hidden) are ignored.
    pub fn recommended(&self) -> Option<Rebuilt> {
        let least = self.paths.iter().map(|rebuilt| rebuilt.curve_error).min_by(f64::total_cmp)?;
        let bound = (1.05 * least).max(self.hidden());
        let close = self.paths.iter().copied().filter(|rebuilt| rebuilt.curve_error <= bound);
        close.max_by_key(|rebuilt| (rebuilt.path.spline.smoothness(), Reverse(rebuilt.path.stencil)))
    }
}

/// Standard deviation (1 instead of 0) of each channel over snapshots spread over the file, for all analyses alike.
///
/// # Errors
/// If the file cannot be read, or a value is not finite.
pub fn deviation_of_file(file: &TrajectoryFile) -> Result<Vec<f64>, DataError> {
    let mut statistics = Statistics::new(file.description().shape.channels);
    for trajectory in spread(file.len(), MEASURED[0]) {
        for frame in spread(file.frame_count(trajectory)?, MEASURED[1]) {
            statistics.add(&file.frames(trajectory, &[frame])?);
        }
    }
    Ok(statistics.normalization().deviation)
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    knots: usize,
    values: usize,
    /// In units of each channel's deviation.
    scaled_squared: f64,
    /// Sum over values of the variance that noise of variance 1 adds.
    noise_weight: f64,
    error_squared: f64,
    state_squared: f64,
}

impl Sums {
    fn rebuilt(&self, path: Path, noise_squared: f64) -> Option<Rebuilt> {
        let without_noise = self.scaled_squared - noise_squared * self.noise_weight;
        (self.values > 0).then(|| Rebuilt {
            path,
            error: (self.scaled_squared / self.values as f64).sqrt(),
            curve_error: (without_noise.max(0.0) / self.values as f64).sqrt(),
            // If all states are zero, so are their errors.
            relative_l2: (self.error_squared / self.state_squared.max(f64::MIN_POSITIVE)).sqrt(),
        })
    }
}

/// A path with a clock, and its accumulated errors.
struct Try {
    path: Path,
    clock: Clock,
    sums: Sums,
}

/// Every path with an even clock, and the smoothest ones with wide stencils with logarithmic clocks.
fn tries() -> Vec<Try> {
    let even = PATHS.map(|path| (path, Clock::Even));
    let wide = PATHS.into_iter().filter(|path| path.spline == Spline::Quintic && path.stencil > 3);
    let other = wide.flat_map(|path| CLOCKS.map(|half| (path, Clock::Logarithmic { half })));
    even.into_iter().chain(other).map(|(path, clock)| Try { path, clock, sums: Sums::default() }).collect()
}

/// Rebuilds the snapshot at a knot from its neighbours with every path; `share` maps times to the horizon.
fn leave_out(
    file: &TrajectoryFile,
    trajectory: usize,
    (times, knot): (&[f64], usize),
    (deviation, share): (&[f64], impl Fn(f64) -> f64),
    tries: &mut [Try],
) -> Result<(), DataError> {
    let first = knot.saturating_sub(REACH);
    let window: Vec<usize> = (first..times.len().min(knot + REACH + 1)).collect();
    let values = file.frames(trajectory, &window)?;
    let (size, offset) = (file.description().shape.len(), file.offset());
    let snapshot = |frame: usize| &values[(frame - first) * size..][..size];
    let others: Vec<usize> = window.into_iter().filter(|&frame| frame != knot).collect();
    for Try { path, clock, sums } in tries {
        let reading = |frame: usize| match *clock {
            Clock::Even => times[frame],
            clock => clock.reading(share(times[frame])),
        };
        let other_times: Vec<f64> = others.iter().map(|&frame| reading(frame)).collect();
        let [before, at, after] = [knot - 1, knot, knot + 1].map(&reading);
        let length = after - before;
        let segment = Segment { index: knot - 1 - first, tau: (at - before) / length, length };
        if path.fallback(others.len()).is_some() {
            continue;
        }
        let weights = path.weights_in(&other_times, segment);
        sums.knots += 1;
        sums.values += size;
        sums.noise_weight +=
            size as f64 * (1.0 + weights.value().iter().map(|weight| weight * weight).sum::<f64>());
        for (position, &truth) in snapshot(knot).iter().enumerate() {
            let rebuilt: f64 = others[weights.range()]
                .iter()
                .zip(weights.value())
                .map(|(&frame, weight)| weight * f64::from(snapshot(frame)[position]))
                .sum();
            let error = rebuilt - f64::from(truth);
            sums.scaled_squared += (error / deviation[position % deviation.len()]).powi(2);
            sums.error_squared += error.powi(2);
            sums.state_squared += (f64::from(truth) + offset.of(position % deviation.len())).powi(2);
        }
    }
    Ok(())
}

/// At most `most` of the numbers below `count`, evenly spread, including both ends.
pub(crate) fn spread(count: usize, most: usize) -> Vec<usize> {
    if count <= most {
        return (0..count).collect();
    }
    if most == 1 {
        return vec![count / 2];
    }
    (0..most).map(|i| (i as u128 * (count as u128 - 1) / (most as u128 - 1)) as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{TrajectoryWriter, WriteOptions};
    use crate::{Description, FieldShape, Trajectory};

    fn audit_with(times: &[f64], noise: f64, state: impl Fn(f64) -> [f64; 2]) -> SamplingAudit {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.h5");
        let description = Description {
            system: String::new(),
            shape: FieldShape::system(2),
            periodic: vec![],
            domain: vec![],
            channel_names: vec![],
            channel_units: vec![],
            inputs: crate::InputNames::default(),
        };
        let mut writer = TrajectoryWriter::create(&path, &description, WriteOptions::default()).unwrap();
        let values = times.iter().flat_map(|&t| state(t).map(|u| u as f32)).collect();
        writer.push(&Trajectory::new(times.to_vec(), values, vec![]).unwrap(), None).unwrap();
        writer.finish().unwrap();
        SamplingAudit::new(&TrajectoryFile::open(&path).unwrap(), &[1.0, 1.0], &[noise; 2]).unwrap()
    }

    fn audit(times: &[f64], state: impl Fn(f64) -> [f64; 2]) -> SamplingAudit {
        audit_with(times, 0.0, state)
    }

    fn irregular(count: usize, span: f64) -> Vec<f64> {
        (0..count).map(|i| span * (i as f64 + 0.3 * (i as f64 * 2.1).sin()) / count as f64).collect()
    }

    #[test]
    fn a_straight_line_is_rebuilt_by_every_spline() {
        let audit = audit(&irregular(20, 1.0), |t| [2.0 * t, 1.0 - t]);
        // Only the round-off of `f32` remains.
        assert!(audit.paths.iter().all(|rebuilt| rebuilt.error < 1e-6), "{audit:?}");
    }

    #[test]
    fn a_smooth_curve_is_rebuilt_best_by_a_smooth_spline() {
        let audit = audit(&irregular(60, 6.0), |t| [t.sin(), t.cos()]);
        let (linear, smooth) = audit.paths.split_first().unwrap();
        assert_eq!(smooth.len(), 6);
        assert!(smooth.iter().all(|rebuilt| rebuilt.error < 0.2 * linear.error), "{audit:?}");
        assert_ne!(audit.recommended().unwrap().path.spline, Spline::Linear);
    }

    #[test]
    fn a_wide_stencil_is_recommended_where_it_pays() {
        let audit = audit(&irregular(60, 6.0), |t| [t.sin(), t.cos()]);
        assert!(audit.recommended().unwrap().path.stencil > 3, "{audit:?}");
    }

    #[test]
    fn of_equal_paths_the_smoothest_and_narrowest_is_recommended() {
        let rebuilt =
            |path: Path, error: f64| Rebuilt { path, error, curve_error: error, relative_l2: error };
        let errors = [1.0, 0.101, 0.1, 0.1, 0.104, 0.102, 0.1];
        let paths = PATHS.into_iter().zip(errors).map(|(path, error)| rebuilt(path, error)).collect();
        let audit = SamplingAudit { trajectories: 1, knots: 1, paths, noise: 0.0, clocks: Vec::new() };
        assert_eq!(audit.recommended().unwrap().path, Path { spline: Spline::Quintic, stencil: 3 });
    }

    /// Tests a process that slows down a hundredfold, and one that does not.
    #[test]
    fn a_clock_is_recommended_where_things_slow_down() {
        let times: Vec<f64> = (0..60).map(|i| 2.0 + f64::from(i) / 60.0).collect();
        let slows = |t: f64| [0.02 / (t - 1.98), (-60.0 * (t - 2.0)).exp() + 0.3 * t];
        let found = audit(&times, slows);
        assert!((0.003..=0.1).contains(&found.recommended_clock().unwrap()), "{found:?}");
        for even in [audit(&times, |t| [(9.0 * t).sin(), (9.0 * t).cos()]), audit(&times, |t| [t, 1.0])] {
            assert_eq!(even.recommended_clock(), None, "{even:?}");
        }
        assert_eq!(audit_with(&times, 10.0, slows).recommended_clock(), None, "noise hides it");
    }

    #[test]
    fn jumps_are_rebuilt_best_by_a_linear_spline() {
        let audit = audit(&irregular(60, 6.0), |t| [f64::from(t.sin() > 0.0), f64::from(t.cos() > 0.0)]);
        assert_eq!(audit.recommended().unwrap().path.spline, Spline::Linear, "{audit:?}");
    }

    #[test]
    fn the_error_falls_with_the_order_of_the_spline() {
        let error = |count: usize, index: usize| {
            let times: Vec<f64> = (0..count).map(|i| i as f64 / (count - 1) as f64).collect();
            audit(&times, |t| [(3.0 * t).sin(), (3.0 * t).cos()]).paths[index].error
        };
        for (index, order) in [(0, 2.0), (1, 3.0), (4, 3.0), (5, 4.0)] {
            let slope = (error(21, index) / error(41, index)).log2();
            assert!(slope > order - 0.3, "{}: {slope}", PATHS[index]);
        }
    }

    /// Known noise is subtracted from the errors, so that a smooth spline is recommended as without noise.
    #[test]
    fn noise_is_not_mistaken_for_coarse_times() {
        let random = std::cell::RefCell::new(cfo_numerics::Philox::new(1, 0));
        let noisy = |t: f64| [t.sin(), t.cos()].map(|value| value + 0.05 * random.borrow_mut().normal());
        let blind = audit_with(&irregular(600, 30.0), 0.0, noisy);
        assert!(blind.recommended().unwrap().curve_error > 0.05);
        let told = audit_with(&irregular(600, 30.0), 0.05, noisy);
        let recommended = told.recommended().unwrap();
        assert_eq!(recommended.path.spline, Spline::Quintic);
        assert!(recommended.curve_error < 0.015 && recommended.error > 0.05, "{told:?}");
    }

    #[test]
    fn short_trajectories_support_fewer_kinds() {
        let audit = audit(&[0.0, 0.5, 1.0], |t| [t, t * t]);
        assert_eq!(audit.paths.len(), 1);
        assert_eq!(audit.knots, 1);
    }

    #[test]
    fn two_snapshots_leave_nothing_to_leave_out() {
        let audit = audit(&[0.0, 1.0], |t| [t, t]);
        assert_eq!((audit.knots, audit.paths.len(), audit.recommended()), (0, 0, None));
    }

    #[test]
    fn spread_numbers_include_the_ends() {
        assert_eq!(spread(3, 5), [0, 1, 2]);
        assert_eq!(spread(100, 4), [0, 33, 66, 99]);
        assert_eq!(spread(9, 1), [4]);
        assert!(spread(0, 4).is_empty());
    }
}
