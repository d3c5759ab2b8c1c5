//! Weights of errors of the path's velocity: smaller at snapshots where the velocity is less certain.
//!
//! A path's velocity is uncertain for two reasons: noise that was removed from the snapshots, and gaps between snapshots. The error of a
//! derivative estimated from `k` snapshots grows with the product of their `k - 1` distances. In sparse, irregular data, a few close
//! snapshots therefore give far more accurate velocities than the rest. The network learns the mean of the velocities. With equal weights,
//! wide gaps bias this mean.
//!
//! The errors are estimated from the data. Where paths are accurate enough, all weights are 1.

use cfo_data::ChangeProducts;
use cfo_numerics::{DrawBy, Path, stencil};

use crate::measure::Question;
use crate::measure::scaling::Scaling;
use crate::measure::smoothing::Denoiser;

/// Smallest number of snapshots in a group of neighbours in time, which are compared with each other.
const LEAST_GROUP: usize = 64;
const MOST_GROUPS: usize = 100;

/// Largest weight of a snapshot, so that no small number of snapshots dominates the loss.
const MOST_COUNT: f64 = 32.0;

/// Returns the weight of an error at each row of all trajectories, `[rows, channels]`; empty if all weights are equal. The squares have a
/// mean of 1 over the samples, for each channel. `times` are in units of `Scaling::span`, `errors` are the [`path_errors`] of all
/// trajectories, and each row is the mean of `merged` snapshots.
pub(crate) fn trust(
    question: &Question,
    (scaling, denoiser): (&Scaling, Option<&Denoiser>),
    (times, merged): (&[f64], &[u32]),
    offsets: &[u32],
    errors: &[f32],
) -> Vec<f32> {
    let path = question.path;
    let shares = shares(question.by, times, offsets);
    let (channels, own) = (scaling.mean.len(), scaling.range.len());
    let noise = denoiser.map(|denoiser| denoiser.counts(path, scaling.span, (times, merged), offsets));
    let gaps: Option<Vec<Vec<f64>>> = question.trust.map(|tolerance| {
        let spacings = spacings(path, times, offsets);
        let of = |channel: usize| -> Vec<f64> {
            errors.iter().skip(channel).step_by(channels).map(|&error| f64::from(error)).collect()
        };
        (0..channels).map(|channel| gap_counts(&spacings, times, &shares, &of(channel), tolerance)).collect()
    });
    if noise.is_none() && gaps.is_none() {
        return Vec::new();
    }
    let mut trust = vec![0.0; times.len() * channels];
    for channel in 0..channels {
        let of_noise = |row: usize| match &noise {
            // The transform is orthogonal: all coefficients of a channel have its noise.
            Some(noise) => noise[channel % own].as_ref().map_or(1.0, |counts| counts[row]),
            None => 1.0,
        };
        let of_gap = |row: usize| gaps.as_ref().map_or(1.0, |counts| counts[channel][row]);
        let counts: Vec<f64> = (0..times.len()).map(|row| of_noise(row) * of_gap(row)).collect();
        let mean = weighted_mean(&counts, &shares);
        for (row, count) in counts.iter().enumerate() {
            trust[row * channels + channel] = (count / mean).sqrt() as f32;
        }
    }
    trust
}

/// Returns the largest offset between changes that [`path_errors`] needs.
pub(crate) fn reach(path: Path, snapshots: usize) -> usize {
    (path.stencil.max(2) + 1).min(snapshots.saturating_sub(1)).max(1)
}

/// Returns the error of a path's velocity at each snapshot of a trajectory, relative to the velocity, `[snapshots, channels]`. The estimate
/// is the difference from a stencil with two more points. It is NaN if there are too few snapshots or nothing changes.
pub(crate) fn path_errors(path: Path, times: &[f64], products: &ChangeProducts, channels: usize) -> Vec<f32> {
    let width = path.stencil.max(2);
    if times.len() < width + 2 {
        return vec![f32::NAN; times.len() * channels];
    }
    let mut errors = Vec::with_capacity(times.len() * channels);
    for knot in 0..times.len() {
        let [narrow, wide] = [width, width + 2].map(|width| stencil::window(knot, width, times.len()));
        let [own, better] = [&narrow, &wide].map(|window| {
            let mut weights = vec![0.0; window.len()];
            stencil::weights(&times[window.clone()], times[knot], 1, &mut weights);
            weights
        });
        let mut difference = better.clone();
        for (place, weight) in difference[narrow.start - wide.start..].iter_mut().zip(&own) {
            *place -= weight;
        }
        for channel in 0..channels {
            let square = |weights: &[f64]| mean_square(weights, wide.start, products, channel);
            errors.push((square(&difference) / square(&better)).sqrt() as f32);
        }
    }
    errors
}

/// Returns the mean square over space of a weighted sum of snapshots from `first` on. The weights must add up to 0.
fn mean_square(weights: &[f64], first: usize, products: &ChangeProducts, channel: usize) -> f64 {
    // The weight of change j is the sum of the weights of all snapshots after it.
    let after = |j: usize| weights[j + 1..].iter().sum::<f64>();
    let changes: Vec<f64> = (0..weights.len() - 1).map(after).collect();
    let mut sum = 0.0;
    for (j, one) in changes.iter().enumerate() {
        for (offset, other) in changes[j..].iter().enumerate() {
            let both = if offset == 0 { 1.0 } else { 2.0 };
            sum += both * one * other * products.mean(first + j, offset, channel);
        }
    }
    sum.max(0.0)
}

/// Returns the mean over the samples of weights at rows, linear between rows.
fn weighted_mean(counts: &[f64], shares: &[f64]) -> f64 {
    let sum: f64 = counts.iter().zip(shares).map(|(count, share)| count * share).sum();
    sum / shares.iter().sum::<f64>()
}

/// Returns `1 / (1 + (error / tolerance)^2)` for the modelled error of the velocity at each row. The weights have a mean of 1 over the
/// samples of each group of neighbours in time. All times therefore have equal total weights, and errors below the tolerance change
/// nothing.
fn gap_counts(
    spacings: &[(f64, i32)],
    times: &[f64],
    shares: &[f64],
    errors: &[f64],
    tolerance: f64,
) -> Vec<f64> {
    let mut by_time: Vec<usize> = (0..times.len()).collect();
    by_time.sort_by(|&one, &other| times[one].total_cmp(&times[other]));
    let whole = error_at_unit_spacing(spacings, errors, &by_time);
    let mut counts = vec![1.0; times.len()];
    for group in by_time.chunks(LEAST_GROUP.max(times.len().div_ceil(MOST_GROUPS))) {
        let Some(scale) = error_at_unit_spacing(spacings, errors, group).or(whole) else { continue };
        let (mut sum, mut drawn) = (0.0, 0.0);
        for &row in group {
            let (spacing, order) = spacings[row];
            let error = (scale + f64::from(order) * spacing.ln()).exp();
            counts[row] = 1.0 / (1.0 + (error / tolerance).powi(2));
            sum += counts[row] * shares[row];
            drawn += shares[row];
        }
        let mean = sum / drawn;
        for &row in group {
            counts[row] = if mean > 0.0 { (counts[row] / mean).min(MOST_COUNT) } else { 1.0 };
        }
    }
    counts
}

/// Returns the logarithm of `c` in the model `c * spacing^order` of the error, the smaller of two estimates. They come from the quarter of
/// the rows with the smallest spacings and from the next quarter. Where spacings are large, both stencils are wrong, and their difference
/// is no estimate. Where they are very small, the difference may be noise or rounding, which does not grow with the spacing.
fn error_at_unit_spacing(spacings: &[(f64, i32)], errors: &[f64], rows: &[usize]) -> Option<f64> {
    let mut known: Vec<(f64, f64)> = rows
        .iter()
        .filter(|&&row| errors[row] > 0.0)
        .map(|&row| (spacings[row].0, errors[row].ln() - f64::from(spacings[row].1) * spacings[row].0.ln()))
        .collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mean =
        |rows: &[(f64, f64)]| rows.iter().map(|(_, logarithm)| logarithm).sum::<f64>() / rows.len() as f64;
    known.chunks(known.len().div_ceil(4).max(1)).take(2).map(mean).reduce(f64::min)
}

/// Returns the share of the samples that belong to each row, in units of time: its share in its trajectory times the trajectory's duration.
fn shares(by: DrawBy, times: &[f64], offsets: &[u32]) -> Vec<f64> {
    let mut shares = Vec::with_capacity(times.len());
    for pair in offsets.windows(2) {
        let times = &times[pair[0] as usize..pair[1] as usize];
        let length = times.last().zip(times.first()).map_or(0.0, |(last, first)| last - first);
        shares.extend(by.snapshot_shares(times).iter().map(|share| share * length));
    }
    shares
}

/// Returns, for each row, the geometric mean of the distances to the other rows of its stencil, and their number.
fn spacings(path: Path, times: &[f64], offsets: &[u32]) -> Vec<(f64, i32)> {
    let mut spacings = Vec::with_capacity(times.len());
    for pair in offsets.windows(2) {
        let times = &times[pair[0] as usize..pair[1] as usize];
        spacings.extend((0..times.len()).map(|knot| spacing(path.supported(times.len()), times, knot)));
    }
    spacings
}

fn spacing(path: Path, times: &[f64], knot: usize) -> (f64, i32) {
    let window = stencil::window(knot, path.stencil.max(2).min(times.len()), times.len());
    let others = window.filter(|&other| other != knot);
    let logarithms: Vec<f64> = others.map(|other| (times[other] - times[knot]).abs().ln()).collect();
    let order = logarithms.len().max(1);
    ((logarithms.iter().sum::<f64>() / order as f64).exp(), order as i32)
}

#[cfg(test)]
mod tests {
    use cfo_numerics::{Philox, Spline};
    use proptest::prelude::*;

    use super::*;

    const FIVE_POINTS: Path = Path { spline: Spline::Quintic, stencil: 5 };

    /// Returns times, offsets and errors of random subsamples of `sin(frequency t)` and `cos`, two points in space, over a unit of time.
    fn thinned_waves(frequency: f64, kept: usize) -> (Vec<f64>, Vec<u32>, Vec<f64>) {
        let frames = 100;
        let (mut times, mut offsets, mut errors) = (Vec::new(), vec![0], Vec::new());
        let mut random = Philox::new(3, 0);
        for _ in 0..200 {
            let mut chosen: Vec<usize> = (0..frames).collect();
            while chosen.len() > kept {
                chosen.remove(1 + random.below(chosen.len() as u64 - 2) as usize);
            }
            let own: Vec<f64> = chosen.iter().map(|&frame| frame as f64 / frames as f64).collect();
            let wave = |&time: &f64| {
                let (sine, cosine) = (frequency * time).sin_cos();
                [sine as f32, cosine as f32]
            };
            let snapshots: Vec<[f32; 2]> = own.iter().map(wave).collect();
            let changes = snapshots.iter().map(|snapshot| &snapshot[..]);
            let products = ChangeProducts::new(changes, 1, reach(FIVE_POINTS, own.len()));
            errors.extend(path_errors(FIVE_POINTS, &own, &products, 1).iter().map(|&error| f64::from(error)));
            times.extend(own);
            offsets.push(times.len() as u32);
        }
        (times, offsets, errors)
    }

    /// Returns the weight of each row at a tolerance of a hundredth.
    fn counts(by: DrawBy, times: &[f64], offsets: &[u32], errors: &[f64]) -> Vec<f64> {
        let spacings = spacings(FIVE_POINTS, times, offsets);
        gap_counts(&spacings, times, &shares(by, times, offsets), errors, 0.01)
    }

    /// Checks that the estimate is close to the true error where snapshots resolve the wave.
    #[test]
    fn errors_are_found_without_the_truth() {
        let frequency = 30.0;
        let (times, offsets, errors) = thinned_waves(frequency, 60);
        let mut checked = 0;
        for pair in offsets.windows(2) {
            let own = &times[pair[0] as usize..pair[1] as usize];
            for knot in 3..own.len() - 3 {
                let weights = FIVE_POINTS.weights(own, own[knot]);
                let seen = || weights.velocity().iter().zip(&own[weights.range()]);
                let [sine, cosine] = [f64::sin, f64::cos].map(|wave| {
                    seen().map(|(weight, &time)| weight * wave(frequency * (time - own[knot]))).sum::<f64>()
                });
                let truth = (sine / frequency - 1.0).hypot(cosine / frequency);
                let found = errors[pair[0] as usize + knot];
                if truth > 1e-3 {
                    assert!((found / truth).ln().abs() < 0.7, "{found} for {truth}");
                    checked += 1;
                }
            }
        }
        assert!(checked > 100, "{checked}");
    }

    /// Checks the bias on many random subsamples of a wave. The plain mean of the velocities is biased towards 0 by wide gaps; the weighted
    /// mean is closer to the truth.
    #[test]
    fn close_snapshots_undo_the_bias_of_sparse_ones() {
        let frequency = 40.0_f64;
        let (times, offsets, errors) = thinned_waves(frequency, 25);
        let counts = counts(DrawBy::Time, &times, &offsets, &errors);
        let (mut plain, mut weighted) = ([0.0; 2], [0.0; 2]);
        for pair in offsets.windows(2) {
            let rows = pair[0] as usize..pair[1] as usize;
            let times = &times[rows.clone()];
            let knots = rows.zip(times).filter(|(_, time)| (0.2..0.8).contains(*time));
            for (row, &time) in knots {
                let weights = FIVE_POINTS.weights(times, time);
                let seen = weights.velocity().iter().zip(&times[weights.range()]);
                let velocity: f64 = seen.map(|(weight, &t)| weight * (frequency * (t - time)).sin()).sum();
                for (sum, count) in [(&mut plain, 1.0), (&mut weighted, counts[row])] {
                    sum[0] += count * velocity / frequency;
                    sum[1] += count;
                }
            }
        }
        let error = |[sum, count]: [f64; 2]| (sum / count - 1.0).abs();
        assert!(error(weighted) < 0.2 * error(plain), "{} {}", error(weighted), error(plain));
    }

    /// Checks that weights are equal where the snapshots resolve the wave.
    #[test]
    fn good_paths_are_left_alone() {
        let (times, offsets, errors) = thinned_waves(1.0, 60);
        let counts = counts(DrawBy::Time, &times, &offsets, &errors);
        let furthest = counts.iter().map(|count| (count - 1.0).abs()).fold(0.0, f64::max);
        assert!(furthest < 0.05, "{furthest}");
    }

    /// Checks that weights on a uniform grid are equal, also at the ends.
    #[test]
    fn even_times_count_alike() {
        let own: Vec<f64> = (0..20).map(f64::from).collect();
        let offsets: Vec<u32> = (0..=64).map(|i| 20 * i).collect();
        let times = own.repeat(64);
        let errors = vec![0.3; times.len()];
        let counts = counts(DrawBy::Time, &times, &offsets, &errors);
        assert!(counts.iter().all(|count| (count - 1.0).abs() < 1e-9), "{counts:?}");
    }

    proptest! {
        /// Checks that weights are positive and bounded and their mean is positive, for all times, errors and samplings.
        #[test]
        fn counts_are_bounded(
            gaps in prop::collection::vec(1e-6_f64..1e3, 1..40), size in -12.0_f64..12.0, unknown in any::<bool>(),
        ) {
            let times: Vec<f64> = std::iter::once(0.0)
                .chain(gaps.iter().scan(0.0, |time, gap| { *time += gap; Some(*time) }))
                .collect();
            let offsets = [0, times.len() as u32];
            let errors = vec![if unknown { f64::NAN } else { 10.0_f64.powf(size) }; times.len()];
            for by in [DrawBy::Time, DrawBy::Interval, DrawBy::Snapshot] {
                let counts = counts(by, &times, &offsets, &errors);
                prop_assert!(counts.iter().all(|count| (0.0..=MOST_COUNT).contains(count)), "{counts:?}");
                let mean = weighted_mean(&counts, &shares(by, &times, &offsets));
                prop_assert!(mean > 0.0 && mean.is_finite(), "{mean} {counts:?}");
            }
        }
    }
}
