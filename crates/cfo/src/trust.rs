//! How much an error of the path's velocity counts at each snapshot: less where the path knows its velocity less.
//!
//! Two things make a path's velocity uncertain: noise that was taken off the snapshots, and gaps between them. A derivative
//! estimated from `k` snapshots is off by a product of their `k - 1` distances, so that in sparse, irregular data a few close snapshots know the
//! velocity many times better than the rest. Weighted alike, the mean of all is what the network learns, and wide gaps bias it.

use cfo_numerics::{Path, stencil};

use crate::model::Model;

/// What an error counts at each row of trajectories that stand one after another, `[rows, channels]`; empty where all count alike.
/// The squares have a mean of 1 over time, channel by channel. Times are in units of `Scaling::span`.
pub(crate) fn trust(model: &Model, path: Path, times: &[f64], offsets: &[u32]) -> Vec<f32> {
    let channels = model.shape().channels;
    let noise =
        model.denoiser.as_ref().map(|denoiser| denoiser.counts(path, model.scaling.span, times, offsets));
    let gaps = model.recipe.path.gap_trust.map(|share| gap_counts(path, times, offsets, share));
    if noise.is_none() && gaps.is_none() {
        return Vec::new();
    }
    let mut trust = vec![0.0; times.len() * channels];
    for channel in 0..channels {
        let of_noise = |row: usize| match &noise {
            Some(noise) => noise[channel].as_ref().map_or(1.0, |counts| counts[row]),
            None => 1.0,
        };
        let of_gap = |row: usize| gaps.as_ref().map_or(1.0, |counts| counts[row]);
        let counts: Vec<f64> = (0..times.len()).map(|row| of_noise(row) * of_gap(row)).collect();
        let mean = mean_over_time(&counts, times, offsets);
        for (row, count) in counts.iter().enumerate() {
            trust[row * channels + channel] = (count / mean).sqrt() as f32;
        }
    }
    trust
}

/// Mean of what rows say, linear between them, over the time of all trajectories.
fn mean_over_time(counts: &[f64], times: &[f64], offsets: &[u32]) -> f64 {
    let (mut sum, mut length) = (0.0, 0.0);
    for pair in offsets.windows(2) {
        for row in pair[0] as usize..(pair[1] as usize).saturating_sub(1) {
            let interval = times[row + 1] - times[row];
            sum += 0.5 * interval * (counts[row] + counts[row + 1]);
            length += interval;
        }
    }
    sum / length
}

/// `1 / (1 + error^2)` for the error of the velocity at each row, in units of the error where snapshots are so close that only
/// a `share` of all rows have closer ones.
fn gap_counts(path: Path, times: &[f64], offsets: &[u32], share: f64) -> Vec<f64> {
    let mut spacings = Vec::with_capacity(times.len());
    for pair in offsets.windows(2) {
        let times = &times[pair[0] as usize..pair[1] as usize];
        spacings.extend((0..times.len()).map(|knot| spacing(path.supported(times.len()), times, knot)));
    }
    let mut sorted: Vec<f64> = spacings.iter().map(|&(spacing, _)| spacing).collect();
    sorted.sort_by(f64::total_cmp);
    let close = sorted[((sorted.len() - 1) as f64 * share).round() as usize];
    spacings.iter().map(|&(spacing, order)| 1.0 / (1.0 + (spacing / close).powi(2 * order))).collect()
}

/// Geometric mean of the distances from a knot to the others of its stencil, and their number: the order of the estimate.
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

    /// On a uniform grid all but the ends, whose stencils are one-sided, count alike.
    #[test]
    fn even_times_count_alike_and_ends_less() {
        let times: Vec<f64> = (0..20).map(f64::from).collect();
        let counts = gap_counts(FIVE_POINTS, &times, &[0, 20], 0.1);
        assert!(counts[2..18].iter().all(|&count| (count - 0.5).abs() < 1e-9), "{counts:?}");
        assert!(counts[0] < 0.05 && counts[19] < 0.05 && counts[1] < 0.4, "{counts:?}");
    }

    /// Of many random thinnings of a wave, the weighted mean of the velocities is nearer to the truth than the plain mean,
    /// which wide gaps bias towards 0.
    #[test]
    fn close_snapshots_undo_the_bias_of_sparse_ones() {
        let (frequency, frames, kept) = (20.0_f64, 100, 25);
        let (mut times, mut offsets) = (Vec::new(), vec![0]);
        let mut random = Philox::new(3, 0);
        for _ in 0..200 {
            let mut chosen: Vec<usize> = (0..frames).collect();
            while chosen.len() > kept {
                chosen.remove(1 + random.below(chosen.len() as u64 - 2) as usize);
            }
            times.extend(chosen.iter().map(|&frame| frame as f64 / frames as f64));
            offsets.push(times.len() as u32);
        }
        let counts = gap_counts(FIVE_POINTS, &times, &offsets, 0.1);
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

    proptest! {
        /// Whatever the times, counts are positive shares and their weighting keeps a mean of 1 over time.
        #[test]
        fn counts_are_shares(gaps in prop::collection::vec(1e-6_f64..1e3, 1..40), share in 0.0_f64..=1.0) {
            let times: Vec<f64> = std::iter::once(0.0)
                .chain(gaps.iter().scan(0.0, |time, gap| { *time += gap; Some(*time) }))
                .collect();
            let offsets = [0, times.len() as u32];
            let counts = gap_counts(FIVE_POINTS, &times, &offsets, share);
            prop_assert!(counts.iter().all(|count| (0.0..=1.0).contains(count)), "{counts:?}");
            let mean = mean_over_time(&counts, &times, &offsets);
            prop_assert!(mean > 0.0 && mean.is_finite(), "{mean} {counts:?}");
        }
    }
}
