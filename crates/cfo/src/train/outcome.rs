//! What a training came to.

use crate::checkpoint::{Course, State};

use super::{StepReport, WallTime};

/// What a training came to, beside the weights.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Steps made, those of earlier sessions included.
    pub(crate) steps: u32,
    /// Why there were no more.
    pub(crate) ending: Ending,
    /// Seconds of training.
    pub(crate) seconds: f64,
    /// Where the wall time went.
    pub(crate) time: WallTime,
    /// Hash of the training data.
    pub(crate) fingerprint: String,
    /// Lowest validation error, with its step.
    pub(crate) best: Option<(f64, u32)>,
    /// What the training loop remembers besides.
    pub(crate) course: Course,
    /// Every report.
    pub(crate) history: Vec<StepReport>,
    /// Warnings about the data, if this process trained.
    pub(crate) warnings: Vec<String>,
}

impl Outcome {
    /// Of a checkpoint.
    pub(crate) fn of(state: &State, history: Vec<StepReport>) -> Self {
        Self {
            steps: state.step,
            ending: Ending::Earlier,
            seconds: 0.0,
            time: WallTime::default(),
            fingerprint: state.data_fingerprint.clone(),
            best: state.best,
            course: state.course,
            history,
            warnings: Vec::new(),
        }
    }
}

/// Why a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps were made.
    Complete,
    /// The validation error did not fall for as long as `train.patience` allows.
    Patience,
    /// The observer ended it.
    Observer,
    /// It had ended before: nothing was trained.
    Earlier,
}
