//! Errors of each channel relative to its deviation, since a norm over all hides channels with small values.

use serde::{Deserialize, Serialize};

/// Errors of one channel over a test set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChannelError {
    /// Root mean square error over all pushed values.
    pub rmse: f64,
    /// Standard deviation of the truth over all pushed values.
    pub deviation: f64,
    /// `rmse / deviation`; `None` where the truth is constant.
    pub relative: Option<f64>,
}

/// Accumulates the errors of each channel over trajectories, which may differ in length.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelErrors {
    channels: Vec<Moments>,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Moments {
    count: f64,
    squared_error: f64,
    /// Mean of the truth, and the sum of squared distances from it.
    mean: f64,
    spread: f64,
}

impl ChannelErrors {
    /// Creates an empty collection.
    pub fn new(channels: usize) -> Self {
        Self { channels: vec![Moments::default(); channels] }
    }

    /// Adds predicted and true values, channels last.
    ///
    /// # Panics
    /// If the lengths differ or are not whole points.
    pub fn push<P: Copy + Into<f64>, T: Copy + Into<f64>>(&mut self, prediction: &[P], truth: &[T]) {
        super::assert_same_length(prediction, truth);
        let channels = self.channels.len();
        assert!(truth.len().is_multiple_of(channels), "{} numbers for {channels} channels", truth.len());
        for (channel, moments) in self.channels.iter_mut().enumerate() {
            let predicted = prediction.iter().skip(channel).step_by(channels).map(|&value| value.into());
            let exact = truth.iter().skip(channel).step_by(channels).map(|&value| value.into());
            moments.merge(Moments::of(predicted, exact));
        }
    }

    /// Adds the sums of another collection of the same channels.
    ///
    /// # Panics
    /// If the numbers of channels differ.
    pub fn merge(&mut self, other: &Self) {
        assert_eq!(self.channels.len(), other.channels.len(), "collections of different channels");
        for (mine, &theirs) in self.channels.iter_mut().zip(&other.channels) {
            mine.merge(theirs);
        }
    }

    /// The errors of each channel; NaN if nothing was pushed.
    pub fn report(&self) -> Vec<ChannelError> {
        self.channels.iter().map(Moments::report).collect()
    }
}

impl Moments {
    fn of(prediction: impl Iterator<Item = f64>, truth: impl Iterator<Item = f64> + Clone) -> Self {
        let count = truth.clone().count() as f64;
        // Distances from the first value are exactly 0 in a constant channel of any value.
        let first = truth.clone().next().unwrap_or_default();
        let distance = truth.clone().map(|value| value - first).sum::<f64>() / count.max(1.0);
        let spread = truth.clone().map(|value| (value - first - distance).powi(2)).sum();
        let squared_error = prediction.zip(truth).map(|(p, q)| (p - q).powi(2)).sum();
        Self { count, squared_error, mean: first + distance, spread }
    }

    /// Chan, Golub and LeVeque's pairwise update.
    fn merge(&mut self, other: Self) {
        if other.count == 0.0 {
            return;
        }
        let count = self.count + other.count;
        let distance = other.mean - self.mean;
        self.spread += other.spread;
        if self.count > 0.0 {
            self.spread += distance * distance * self.count * (other.count / count);
        }
        self.mean += distance * (other.count / count);
        self.squared_error += other.squared_error;
        self.count = count;
    }

    fn report(&self) -> ChannelError {
        let rmse = (self.squared_error / self.count).sqrt();
        let deviation = (self.spread / self.count).sqrt();
        let relative = (deviation > 0.0).then(|| rmse / deviation);
        ChannelError { rmse, deviation, relative }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any division into trajectories, merged in any way, gives what a single pass over all values gives.
        #[test]
        fn parts_merge_to_the_whole(
            values in prop::collection::vec((-1e3..1e3_f64, -1.0..1.0_f64, -1.0..1.0_f64), 2..60),
            cut in 0..60_usize,
            shift in prop::sample::select(vec![0.0, 1e6, -3e8]),
        ) {
            let truth: Vec<f64> = values.iter().flat_map(|&(a, b, _)| [a + shift, 1e-3 * b]).collect();
            let prediction: Vec<f64> =
                values.iter().zip(truth.chunks(2)).flat_map(|((_, _, e), q)| [q[0] + e, q[1] - 1e-4 * e]).collect();
            let cut = 2 * cut.min(values.len());
            let (mut left, mut right) = (ChannelErrors::new(2), ChannelErrors::new(2));
            left.push(&prediction[..cut], &truth[..cut]);
            right.push(&prediction[cut..], &truth[cut..]);
            left.merge(&right);
            for (channel, found) in left.report().into_iter().enumerate() {
                let column = |of: &[f64]| of.iter().skip(channel).step_by(2).copied().collect::<Vec<f64>>();
                let (q, p) = (column(&truth), column(&prediction));
                let count = q.len() as f64;
                // Relative to a pivot, so that the reference itself does not suffer from cancellation.
                let mean = q[0] + q.iter().map(|x| x - q[0]).sum::<f64>() / count;
                let deviation = (q.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
                let rmse = (p.iter().zip(&q).map(|(p, q)| (p - q).powi(2)).sum::<f64>() / count).sqrt();
                // A value of 3e8 has a resolution of 6e-8 in f64.
                prop_assert!((found.rmse - rmse).abs() <= 1e-9 * rmse + 1e-12);
                prop_assert!((found.deviation - deviation).abs() <= 1e-9 * deviation + 1e-7 * f64::EPSILON.sqrt() * mean.abs().max(1.0));
            }
        }
    }

    #[test]
    fn a_constant_channel_has_no_relative_error() {
        let mut errors = ChannelErrors::new(2);
        errors.push(&[0.1_f32, 1.0, 0.1, 2.0], &[0.1_f32, 1.0, 0.1, 3.0]);
        errors.push(&[0.1_f32, 0.0], &[0.1_f32, 2.0]);
        let [constant, other] = errors.report()[..] else { panic!("two channels") };
        assert_eq!((constant.deviation, constant.relative, constant.rmse), (0.0, None, 0.0));
        assert!((other.rmse - (5.0_f64 / 3.0).sqrt()).abs() < 1e-15);
        assert!((other.relative.unwrap() - (5.0_f64 / 2.0).sqrt()).abs() < 1e-15);
    }
}
