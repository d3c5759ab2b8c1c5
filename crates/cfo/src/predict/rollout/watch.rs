//! Progress and interruption of rollouts.

use std::cell::RefCell;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{CfoError, Result};

/// Receives the number of snapshots computed since the previous call.
type Counter<'a> = Box<dyn FnMut(usize) + 'a>;

/// Progress and interruption of rollouts. The default does nothing.
#[derive(Default)]
pub struct Watch<'a> {
    interrupt: Option<&'a AtomicBool>,
    observer: Option<RefCell<Counter<'a>>>,
}

impl<'a> Watch<'a> {
    /// Sets a flag that, once `true`, ends the rollout before its next step.
    #[must_use]
    pub fn with_interrupt(mut self, interrupt: &'a AtomicBool) -> Self {
        self.interrupt = Some(interrupt);
        self
    }

    /// Sets a closure that receives the number of snapshots computed since the previous call.
    #[must_use]
    pub fn with_observer(mut self, observer: impl FnMut(usize) + 'a) -> Self {
        self.observer = Some(RefCell::new(Box::new(observer)));
        self
    }

    pub(super) fn counts(&self) -> bool {
        self.observer.is_some()
    }

    /// Reports that more snapshots were computed.
    pub(super) fn tell(&self, more: usize) {
        if let Some(observer) = self.observer.as_ref().filter(|_| more > 0) {
            (observer.borrow_mut())(more);
        }
    }

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
