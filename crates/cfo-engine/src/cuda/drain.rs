//! Copies of a tensor to pinned memory, beside the host's work on earlier ones.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use cudarc::driver::sys;

use super::driver::{Allocation, Context, check};
use super::feed::Pinned;
use super::replay::Event;
use crate::error::Result;

/// Takes copies of one tensor.
pub(crate) struct Drain {
    /// Copies under way, the oldest first, and when each has arrived.
    flying: VecDeque<(Event, Pinned)>,
    free: Vec<Pinned>,
    tensor: Arc<Allocation>,
    context: Arc<Context>,
}

impl std::fmt::Debug for Drain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Drain({:?}, {} under way)", self.tensor, self.flying.len())
    }
}

impl Drain {
    pub(crate) fn new(context: &Arc<Context>, tensor: Arc<Allocation>) -> Self {
        Self { flying: VecDeque::new(), free: Vec::new(), tensor, context: Arc::clone(context) }
    }

    /// Enqueues a copy behind everything enqueued so far.
    pub(crate) fn ask(&mut self) -> Result<()> {
        let mut page = match self.free.pop() {
            Some(page) => page,
            None => Pinned::new(&self.context, self.tensor.len() / 4)?,
        };
        self.context.enter()?;
        let (address, stream) = (self.tensor.address(), self.context.stream);
        let values = page.values();
        // SAFETY: page and tensor hold as many bytes; the page is kept until the copy has arrived.
        check("cuMemcpyDtoH", unsafe {
            sys::cuMemcpyDtoHAsync_v2(values.as_mut_ptr().cast(), address, 4 * values.len(), stream)
        })?;
        let arrived = Event::record(&self.context, stream)?;
        self.flying.push_back((arrived, page));
        Ok(())
    }

    pub(crate) fn waiting(&self) -> usize {
        self.flying.len()
    }

    pub(crate) fn take<T>(&mut self, use_values: impl FnOnce(&[f32]) -> T) -> Result<Option<T>> {
        let Some((arrived, mut page)) = self.flying.pop_front() else { return Ok(None) };
        let waited = arrived.wait();
        if let Err(error) = waited {
            // The device may still write to the page: it stays with those under way, which the end waits for.
            self.flying.push_front((arrived, page));
            return Err(error);
        }
        let result = use_values(page.values());
        self.free.push(page);
        Ok(Some(result))
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        if let Some((last, _)) = self.flying.back() {
            // Pages must not go before the device has written them.
            let _ = last.wait();
        }
    }
}
