//! Predictions of a trained model: rollouts, their evaluation, and the trained model itself.

mod alignment;
pub mod evaluate;
mod metrics;
pub mod rollout;
mod trained;

pub use alignment::Alignment;
pub use trained::{Loader, ShorterSteps, Solution, Trained};
pub(crate) use trained::{copy_weights, weights_for_rollouts};
