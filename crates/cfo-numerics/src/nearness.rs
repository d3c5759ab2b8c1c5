//! Nearly equal times, whose snapshots are merged.
//!
//! A velocity estimated from two snapshots is their difference divided by the interval. If the interval is a millionth
//! of the usual one, the estimate consists of rounding errors.

use std::ops::Range;

/// Fraction of the median interval below which times are nearly equal.
const SHARE: f64 = 1e-6;

/// Largest tolerance for rounded times, as a fraction of the median interval.
const MOST: f64 = 1e-2;

/// The distance below which increasing times are nearly equal: a millionth of the median interval, or the spacing of
/// single-precision numbers where all of them are such numbers. 0 for fewer than three times.
///
/// ```
/// let times = [0.0, 0.3, 0.3 + 1e-9, 0.7, 1.1];
/// assert_eq!(cfo_numerics::groups(&times, cfo_numerics::nearness(&times)), [0..1, 1..3, 3..4, 4..5]);
/// ```
pub fn nearness(times: &[f64]) -> f64 {
    let mut intervals: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    if intervals.len() < 2 {
        return 0.0;
    }
    let middle = intervals.len() / 2;
    let median = *intervals.select_nth_unstable_by(middle, f64::total_cmp).1;
    let are_single = times.iter().all(|&time| f64::from(time as f32) == time);
    let rounding = if are_single {
        let largest = times.iter().fold(0.0, |most: f32, &time| most.max((time as f32).abs()));
        f64::from(largest.next_up()) - f64::from(largest)
    } else {
        0.0
    };
    (SHARE * median).max(rounding.min(MOST * median))
}

/// Groups increasing times such that each group spans less than `below`. Most groups have one time.
pub fn groups(times: &[f64], below: f64) -> Vec<Range<usize>> {
    let mut groups = Vec::with_capacity(times.len());
    let mut start = 0;
    for end in 1..=times.len() {
        if end == times.len() || times[end] - times[start] >= below || below <= 0.0 {
            groups.push(start..end);
            start = end;
        }
    }
    groups
}

/// Mean of increasing times. It never lies outside their range.
pub fn mean_time(times: &[f64]) -> f64 {
    let first = times[0];
    // Relative to the first time, so that large times lose no digits.
    first + times.iter().map(|time| time - first).sum::<f64>() / times.len() as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nearness_follows_the_median_and_the_rounding_of_times() {
        let times: Vec<f64> = (0..9).map(|i| 0.1 * f64::from(i)).collect();
        assert!((nearness(&times) - 1e-7).abs() < 1e-15);
        // The spacing of single precision between 4 and 8.
        let single: Vec<f64> = (0..80).map(|i| f64::from(0.0771 * i as f32)).collect();
        assert_eq!(nearness(&single), 2f64.powi(-21));
        // All times are as close as single precision allows.
        let dense: Vec<f64> = (0..9).map(|i| 1e6 + 0.0625 * f64::from(i)).collect();
        assert_eq!(nearness(&dense), 0.0625e-2);
        assert_eq!((nearness(&[]), nearness(&[1.0]), nearness(&[0.0, 1.0])), (0.0, 0.0, 0.0));
    }

    #[test]
    fn groups_span_less_than_the_distance() {
        let times = [0.0, 1.0, 1.0 + 4e-8, 1.0 + 8e-8, 1.0 + 12e-8, 2.0];
        assert_eq!(groups(&times, 1e-7), [0..1, 1..4, 4..5, 5..6]);
        assert_eq!(groups(&times, 0.0).len(), 6);
        assert!(groups(&[], 1.0).is_empty());
        assert_eq!(mean_time(&[1.0, 1.5, 2.25, 2.25]), 1.75);
    }

    proptest! {
        /// Every time is in exactly one group, and the groups' means increase.
        #[test]
        fn groups_cover_the_times(times in crate::smoother::tests::any_grid(), share in 0.0..0.3_f64) {
            let below = share * (times[times.len() - 1] - times[0]);
            let found = groups(&times, below);
            let covered: Vec<usize> = found.iter().cloned().flatten().collect();
            prop_assert_eq!(covered, (0..times.len()).collect::<Vec<_>>());
            let means: Vec<f64> = found.iter().map(|group| mean_time(&times[group.clone()])).collect();
            prop_assert!(means.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", means);
        }
    }
}
