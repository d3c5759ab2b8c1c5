//! Who watches a rollout, and may end it.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CfoError, Result};

/// Told how many snapshots were found since it was last told.
type Counter<'a> = Box<dyn FnMut(usize) + 'a>;

/// Watches rollouts, and may end them. By default nobody does.
#[derive(Default)]
pub struct Watch<'a> {
    interrupt: Option<&'a AtomicBool>,
    observer: Option<RefCell<Counter<'a>>>,
}

impl<'a> Watch<'a> {
    /// The same, ended early by a flag that is looked at before each step.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: &'a AtomicBool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// The same, told how many snapshots were found since it was last told.
    #[must_use]
    pub fn with_observer(mut self, observer: impl FnMut(usize) + 'a) -> Self {
        self.observer = Some(RefCell::new(Box::new(observer)));
        self
    }

    /// Whether anybody counts snapshots.
    pub(super) fn counts(&self) -> bool {
        self.observer.is_some()
    }

    /// Says that more snapshots were found.
    pub(super) fn tell(&self, more: usize) {
        if let Some(observer) = self.observer.as_ref().filter(|_| more > 0) {
            (observer.borrow_mut())(more);
        }
    }

    /// Ends the rollout if it was interrupted.
    pub(super) fn heed_interrupt(&self) -> Result<()> {
        match self.interrupt {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(CfoError::RolloutInterrupted),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("counts", &self.counts()).finish_non_exhaustive()
    }
}
