//! Who watches a training, and may end it.

use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

/// What is known after some steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Steps made.
    pub step: u32,
    /// Steps to make.
    pub steps: u32,
    /// Mean loss since the last report.
    pub loss: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Steps a second since the last report.
    pub steps_per_second: f64,
    /// Mean relative L2 error of validation rollouts, when they were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<f64>,
}

/// Watches a training, and may end it.
///
/// A closure is an observer; it returns nothing, or [`ControlFlow::Break`] to end the training after the step reported.
pub trait Observer {
    /// Called at each report. After `Break` the run is saved and [`Training::fit`](crate::Training::fit) returns what was learned so far.
    fn report(&mut self, report: &StepReport) -> ControlFlow<()>;

    /// Called with what a user should know besides.
    fn notice(&mut self, _text: &str) {}
}

/// What a closure may say to a report: nothing, or whether to go on.
pub trait Reply {
    /// Whether to go on.
    fn flow(self) -> ControlFlow<()>;
}

impl Reply for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Reply for ControlFlow<()> {
    fn flow(self) -> ControlFlow<()> {
        self
    }
}

/// An observer that is only lent.
pub(super) struct Lent<'a>(pub(super) &'a mut dyn Observer);

impl Observer for Lent<'_> {
    fn report(&mut self, report: &StepReport) -> ControlFlow<()> {
        self.0.report(report)
    }

    fn notice(&mut self, text: &str) {
        self.0.notice(text);
    }
}

impl<R: Reply, F: FnMut(&StepReport) -> R> Observer for F {
    fn report(&mut self, report: &StepReport) -> ControlFlow<()> {
        self(report).flow()
    }
}
