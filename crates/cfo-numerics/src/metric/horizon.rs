//! Prediction horizons of chaotic systems.

use super::{assert_same_length, frames, lanes, ratio};

/// The time for which a prediction stayed accurate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Horizon {
    /// Time from the first frame to the first inaccurate one, or to the last frame.
    pub time: f64,
    /// Whether every frame was accurate, so that the true horizon may be longer.
    pub complete: bool,
}

impl Horizon {
    /// The horizon of a prediction whose frames are accurate where `good` is true.
    ///
    /// # Panics
    /// If there are no times, or fewer items in `good` than times.
    pub fn until(times: &[f64], mut good: impl Iterator<Item = bool>) -> Self {
        assert!(!times.is_empty(), "a horizon needs times");
        let bad = times.iter().find(|_| !good.next().expect("a verdict for each time"));
        let end = bad.copied().unwrap_or(times[times.len() - 1]);
        Self { time: end - times[0], complete: bad.is_none() }
    }
}

/// Pearson's correlation of prediction and truth in each frame, over points and channels. A constant frame has
/// correlation 0, or 1 if both frames are the same constant.
///
/// # Panics
/// If the lengths differ or are not a multiple of `frames`.
pub fn correlation_per_time<P: Copy + Into<f64>, T: Copy + Into<f64>>(
    prediction: &[P],
    truth: &[T],
    frames_count: usize,
) -> Vec<f64> {
    assert_same_length(prediction, truth);
    let pairs = frames(prediction, frames_count, "prediction").zip(frames(truth, frames_count, "truth"));
    pairs.map(|(p, q)| correlation(p, q)).collect()
}

fn correlation<P: Copy + Into<f64>, T: Copy + Into<f64>>(prediction: &[P], truth: &[T]) -> f64 {
    let share = 1.0 / truth.len() as f64;
    let [mean_p, mean_q] = lanes::sums(prediction, truth, |p, q| [p * share, q * share]);
    let [both, squares_p, squares_q, apart] = lanes::sums(prediction, truth, |p, q| {
        let (from_p, from_q) = (p - mean_p, q - mean_q);
        [from_p * from_q, from_p * from_p, from_q * from_q, (p - q).abs()]
    });
    if squares_p * squares_q == 0.0 {
        return if apart == 0.0 { 1.0 } else { 0.0 };
    }
    both / (squares_p.sqrt() * squares_q.sqrt())
}

/// Correlation time: the time until the correlation of prediction and truth first falls below `threshold` (0.8 is
/// usual). For the correlation averaged over trajectories, average [`correlation_per_time`] and use [`Horizon::until`].
///
/// # Panics
/// If the lengths differ or are not a multiple of the number of times.
pub fn correlation_time<P: Copy + Into<f64>, T: Copy + Into<f64>>(
    prediction: &[P],
    truth: &[T],
    times: &[f64],
    threshold: f64,
) -> Horizon {
    let correlations = correlation_per_time(prediction, truth, times.len());
    Horizon::until(times, correlations.into_iter().map(|correlation| correlation >= threshold))
}

/// Valid time: the time until the error `||p(t) - q(t)||` first exceeds `threshold` (0.4 is usual) times the truth's
/// root mean square norm over time, `sqrt(mean_t ||q(t)||^2)`. Multiplied by the largest Lyapunov exponent (0.906 for
/// Lorenz) it is in Lyapunov times.
///
/// # Panics
/// If the lengths differ or are not a multiple of the number of times.
pub fn valid_time<P: Copy + Into<f64>, T: Copy + Into<f64>>(
    prediction: &[P],
    truth: &[T],
    times: &[f64],
    threshold: f64,
) -> Horizon {
    assert_same_length(prediction, truth);
    let count = times.len();
    let [size] = lanes::sums(truth, truth, |q, _| [q * q / count as f64]);
    let errors = frames(prediction, count, "prediction").zip(frames(truth, count, "truth")).map(|(p, q)| {
        let [square] = lanes::sums(p, q, |p, q| [(p - q) * (p - q)]);
        ratio(square.sqrt(), size.sqrt())
    });
    Horizon::until(times, errors.map(|error| error <= threshold))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: [f64; 5] = [1.0, 1.5, 2.5, 3.0, 5.0];

    #[test]
    fn horizons_end_at_the_first_bad_frame() {
        let verdicts = [true, true, false, true, true];
        assert_eq!(Horizon::until(&TIMES, verdicts.into_iter()), Horizon { time: 1.5, complete: false });
        assert_eq!(Horizon::until(&TIMES, [true; 5].into_iter()), Horizon { time: 4.0, complete: true });
        assert_eq!(Horizon::until(&TIMES, [false; 5].into_iter()), Horizon { time: 0.0, complete: false });
    }

    #[test]
    fn correlation_by_hand() {
        let truth = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0];
        let prediction = [2.0, 4.0, 6.0, 3.0, 2.0, 1.0, 1.0, 0.0, 1.0, 5.0, 5.0, 5.0, 4.0, 4.0, 4.0];
        let found = correlation_per_time(&prediction, &truth, 5);
        for (found, expected) in found.iter().zip([1.0, -1.0, 0.0, 1.0, 0.0]) {
            assert!((found - expected).abs() < 1e-15);
        }
        let horizon = correlation_time(&prediction, &truth, &TIMES, 0.8);
        assert_eq!(horizon, Horizon { time: 0.5, complete: false });
    }

    #[test]
    fn valid_time_by_hand() {
        let truth = [3.0_f32, 4.0, 3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 3.0, 4.0];
        let mut prediction = truth;
        assert_eq!(valid_time(&prediction, &truth, &TIMES, 0.4), Horizon { time: 4.0, complete: true });
        prediction[4] += 1.9; // 0.38 of the norm 5
        prediction[7] += 2.1; // 0.42
        assert_eq!(valid_time(&prediction, &truth, &TIMES, 0.4), Horizon { time: 2.0, complete: false });
        prediction[2] = f32::NAN;
        assert_eq!(valid_time(&prediction, &truth, &TIMES, 0.4).time, 0.5);
    }
}
