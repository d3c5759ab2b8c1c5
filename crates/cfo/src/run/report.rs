//! Reports of a training.

use serde::{Deserialize, Serialize};

/// The state of training after some steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Number of steps made.
    pub step: u32,
    /// Number of steps to make.
    pub steps: u32,
    /// Mean loss since the last report.
    pub loss: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Steps per second since the last report.
    pub steps_per_second: f64,
    /// Mean relative L2 error of validation rollouts, if this report has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<f64>,
    /// By how much the network, integrated over the gaps between snapshots, misses the next snapshot: the root mean square in standard
    /// deviations. `None` unless a round of `[refine]` came before this report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<f64>,
}
