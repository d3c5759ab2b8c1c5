//! Error metrics of predictions.
//!
//! Predictions and truths are slices of `f32` or `f64`, frame after frame, each frame `[points, channels]`. Sums
//! are `f64`. A prediction that is not finite gives a metric that is not finite. Ratios to a truth that is zero
//! throughout are 0 for an exact prediction and infinite otherwise.

mod channel;
mod field;
mod horizon;
mod lanes;
mod relative;
mod spectrum;

pub use channel::{ChannelError, ChannelErrors};
pub use field::{FieldErrors, FieldReport};
pub use horizon::{Horizon, correlation_per_time, correlation_time, valid_time};
pub use relative::{Summary, relative_l2, relative_l2_per_time};

/// `error / size`, with `0 / 0 = 0`: an exact prediction of zero is exact.
fn ratio(error: f64, size: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / size }
}

/// The frames of a trajectory, `[frames, width]`.
///
/// # Panics
/// If the lengths differ; the message contains them.
fn frames<'a, T>(values: &'a [T], count: usize, name: &str) -> std::slice::ChunksExact<'a, T> {
    assert!(
        count > 0 && values.len().is_multiple_of(count) && !values.is_empty(),
        "{name} has {} numbers, which are not {count} frames",
        values.len()
    );
    values.chunks_exact(values.len() / count)
}

/// # Panics
/// If the lengths differ; the message contains them.
fn assert_same_length<P, T>(prediction: &[P], truth: &[T]) {
    assert_eq!(prediction.len(), truth.len(), "prediction and truth differ in length");
}
