//! Relative L2 error, the metric of the paper.

use super::{assert_same_length, frames, lanes, ratio};

/// Relative L2 error, `||prediction - truth|| / ||truth||`, over all given values: for a trajectory over times, points
/// and channels. The paper reports its [`Summary`] over the test trajectories. For the NFE tables it uses the last
/// frame alone.
///
/// # Panics
/// If the lengths differ.
pub fn relative_l2<P: Copy + Into<f64>, T: Copy + Into<f64>>(prediction: &[P], truth: &[T]) -> f64 {
    assert_same_length(prediction, truth);
    let (error, size) = squares(prediction, truth, 1.0);
    if (f64::MIN_POSITIVE / f64::EPSILON..=f64::MAX).contains(&error.min(size)) && error.max(size) <= f64::MAX
    {
        return (error / size).sqrt();
    }
    // Squares that overflow or underflow are computed again in units of the largest number.
    let largest = prediction
        .iter()
        .map(|&x| x.into())
        .chain(truth.iter().map(|&x| x.into()))
        .fold(0.0, |largest, x: f64| f64::max(largest, x.abs()));
    if largest == 0.0 {
        // Both are zero, or there is a NaN, which `max` drops.
        return if error == 0.0 { 0.0 } else { f64::NAN };
    }
    let (error, size) = squares(prediction, truth, 1.0 / largest.min(f64::MAX));
    ratio(error.sqrt(), size.sqrt())
}

/// Sums of squares of the error and of the truth, both times `scale^2`.
fn squares<P: Copy + Into<f64>, T: Copy + Into<f64>>(
    prediction: &[P],
    truth: &[T],
    scale: f64,
) -> (f64, f64) {
    let [error, size] = lanes::sums(prediction, truth, |p, q| {
        let q = q * scale;
        let error = p * scale - q;
        [error * error, q * q]
    });
    (error, size)
}

/// Relative L2 error of each frame.
///
/// # Panics
/// If the lengths differ or are not a multiple of `frames`.
pub fn relative_l2_per_time<P: Copy + Into<f64>, T: Copy + Into<f64>>(
    prediction: &[P],
    truth: &[T],
    frames_count: usize,
) -> Vec<f64> {
    assert_same_length(prediction, truth);
    let pairs = frames(prediction, frames_count, "prediction").zip(frames(truth, frames_count, "truth"));
    pairs.map(|(p, q)| relative_l2(p, q)).collect()
}

/// Mean and spread of a metric over trajectories or runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// Arithmetic mean; NaN if there are no values.
    pub mean: f64,
    /// Standard deviation of the values themselves (divisor `count`, as NumPy's `std`).
    pub deviation: f64,
    /// Smallest value.
    pub least: f64,
    /// Greatest value.
    pub greatest: f64,
    /// Number of values.
    pub count: usize,
}

impl Summary {
    /// Summary of the values; a NaN among them makes all fields but the count NaN.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len();
        let mean = values.iter().sum::<f64>() / count as f64;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count as f64;
        let end = |better: fn(f64, f64) -> bool| {
            let first = values.first().copied().unwrap_or(f64::NAN);
            values.iter().fold(first, |end, &x| if better(x, end) || x.is_nan() { x } else { end })
        };
        let [least, greatest] = [end(|x, end| x < end), end(|x, end| x > end)];
        Self { mean, deviation: variance.sqrt(), least, greatest, count }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn by_hand() {
        assert_eq!(relative_l2(&[3.0_f32, 4.0], &[3.0_f64, 0.0]), 4.0 / 3.0);
        assert_eq!(relative_l2(&[1.0, 2.0], &[1.0, 2.0]), 0.0);
        assert_eq!(relative_l2(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
        assert_eq!(relative_l2(&[1.0, 0.0], &[0.0, 0.0]), f64::INFINITY);
        assert!(relative_l2(&[f64::NAN, 0.0], &[1.0, 0.0]).is_nan());
        assert!(relative_l2(&[f64::NAN], &[0.0]).is_nan());
        assert!(!relative_l2(&[f64::INFINITY, 0.0], &[1.0, 0.0]).is_finite());
        assert_eq!(relative_l2_per_time(&[1.0, 1.0, 2.0, 2.0], &[1.0, 1.0, 1.0, 1.0], 2), [0.0, 1.0]);
    }

    #[test]
    fn scales_far_from_one_survive() {
        for scale in [1e-300, 1e-170, 1e-100, 1.0, 1e100, 1e200, 1e300] {
            let error = relative_l2(&[1.5 * scale, 2.0 * scale], &[1.0 * scale, 2.0 * scale]);
            assert!((error - 0.5 / 5.0_f64.sqrt()).abs() < 1e-14, "{scale}: {error}");
        }
    }

    #[test]
    #[should_panic(expected = "differ in length")]
    fn lengths_must_agree() {
        relative_l2(&[1.0], &[1.0, 2.0]);
    }

    #[test]
    #[should_panic(expected = "not 2 frames")]
    fn frames_must_divide() {
        relative_l2_per_time(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0], 2);
    }

    #[test]
    fn summaries() {
        let summary = Summary::of(&[1.0, 2.0, 4.0, 5.0]);
        assert_eq!((summary.mean, summary.deviation), (3.0, 2.5_f64.sqrt()));
        assert_eq!((summary.least, summary.greatest, summary.count), (1.0, 5.0, 4));
        assert!(Summary::of(&[]).mean.is_nan());
        assert!(Summary::of(&[1.0, f64::NAN, 2.0]).least.is_nan());
    }

    proptest! {
        /// The error does not depend on the unit. Over frames of equal norm its square is the mean of the frames'
        /// squares weighted by their norms.
        #[test]
        fn unit_free_and_additive(pairs in prop::collection::vec((-1.0..1.0_f64, 0.5..1.0_f64), 2..40), exponent in -30..30_i32) {
            let (p, q): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let scale = 2.0_f64.powi(exponent);
            let scaled = |x: &[f64]| x.iter().map(|x| x * scale).collect::<Vec<_>>();
            let error = relative_l2(&p, &q);
            prop_assert!((relative_l2(&scaled(&p), &scaled(&q)) - error).abs() <= 1e-14 * error);
            let weights: Vec<f64> = q.iter().map(|q| q * q).collect();
            let per_time = relative_l2_per_time(&p, &q, p.len());
            let sum: f64 = per_time.iter().zip(&weights).map(|(e, w)| e * e * w).sum();
            let total = (sum / weights.iter().sum::<f64>()).sqrt();
            prop_assert!((total - error).abs() <= 1e-13 * error);
        }
    }
}
