//! Random thinning: each trajectory keeps a random subset of its snapshots, so that times become irregular.

use cfo_numerics::Philox;

/// Random stream of thinning, separate from other uses of a seed ("thin" in ASCII).
const STREAM: u64 = 0x7468_696e << 32;

/// The snapshots of trajectory `trajectory` that thinning keeps, in increasing order.
///
/// Keeps `round(keep_rate * frames)` of them. The first and the last are always kept. The others are drawn without
/// replacement, and all choices are equally likely. The result depends only on the arguments. A rate outside `[0, 1]`
/// is clamped, and NaN is treated as 1.
///
/// ```
/// let kept = cfo_data::thin::kept(101, 0.25, 7, 0);
/// assert_eq!((kept.len(), kept[0], kept[24]), (25, 0, 100));
/// ```
pub fn kept(frames: usize, keep_rate: f64, seed: u64, trajectory: usize) -> Vec<usize> {
    let rate = if keep_rate.is_nan() { 1.0 } else { keep_rate.clamp(0.0, 1.0) };
    let wanted = ((rate * frames as f64).round() as usize).clamp(frames.min(2), frames);
    if wanted == frames {
        return (0..frames).collect();
    }
    let mut random = Philox::new(seed, STREAM ^ trajectory as u64);
    // Knuth's selection sampling: each inner frame is taken with the probability that completes the number wanted.
    let mut missing = wanted - 2;
    let mut kept = Vec::with_capacity(wanted);
    kept.push(0);
    for frame in 1..frames - 1 {
        let left = (frames - 1 - frame) as u64;
        if random.below(left) < missing as u64 {
            kept.push(frame);
            missing -= 1;
        }
    }
    kept.push(frames - 1);
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn keeps_the_ends_and_the_quota(
            frames in 2usize..300, rate in 0.0..1.0f64, seed: u64, trajectory in 0usize..1_000_000,
        ) {
            let kept = kept(frames, rate, seed, trajectory);
            prop_assert_eq!(kept.len(), ((rate * frames as f64).round() as usize).clamp(2, frames));
            prop_assert_eq!(kept[0], 0);
            prop_assert_eq!(kept[kept.len() - 1], frames - 1);
            prop_assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn degenerate_lengths_and_rates() {
        assert!(kept(0, 0.5, 0, 0).is_empty());
        assert_eq!(kept(1, 0.0, 0, 0), [0]);
        assert_eq!(kept(5, 0.0, 0, 0), [0, 4]);
        assert_eq!(kept(5, f64::NAN, 0, 0), [0, 1, 2, 3, 4]);
        assert_eq!(kept(5, 7.0, 0, 0), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn trajectories_and_seeds_draw_apart() {
        assert_ne!(kept(101, 0.5, 0, 0), kept(101, 0.5, 0, 1));
        assert_ne!(kept(101, 0.5, 0, 0), kept(101, 0.5, 1, 0));
        assert_eq!(kept(101, 0.5, 3, 4), kept(101, 0.5, 3, 4));
    }

    /// Each inner frame is kept equally often: 5 standard deviations of a binomial count of 4000 draws.
    #[test]
    fn inner_frames_are_equally_likely() {
        let (frames, draws) = (12, 4000);
        let mut counts = [0u32; 12];
        for trajectory in 0..draws {
            kept(frames, 0.5, 1, trajectory).into_iter().for_each(|frame| counts[frame] += 1);
        }
        let probability = 4.0 / 10.0;
        let deviation = (draws as f64 * probability * (1.0 - probability)).sqrt();
        for &count in &counts[1..frames - 1] {
            assert!((f64::from(count) - probability * draws as f64).abs() < 5.0 * deviation, "{counts:?}");
        }
    }
}
