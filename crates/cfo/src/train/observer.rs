//! Observers of training, which may end it.

use std::ops::ControlFlow;

use crate::run::StepReport;

/// An observer of training, which may end it.
///
/// A closure is an observer: it returns nothing, or [`ControlFlow::Break`] to end training after the reported step.
pub trait Observer {
    /// Receives a report. After `Break` the run is saved, and [`Training::fit`](crate::Training::fit) returns the model trained so far.
    fn report(&mut self, report: &StepReport) -> ControlFlow<()>;

    /// Receives a warning or another message for the user.
    fn notice(&mut self, _text: &str) {}
}

/// The return value of a closure that observes training: nothing, or whether to continue.
pub trait Reply {
    /// Returns whether to continue.
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
