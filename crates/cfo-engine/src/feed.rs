//! Transfers batches to a tensor ahead of the runs that read them.

use crate::backend::{FeedDevice, PageMemory};
use crate::error::Result;
use crate::memory::Memory;

/// Host memory for one batch. Any thread may fill it.
#[derive(Debug)]
pub struct Page(Box<dyn PageMemory>);

impl Page {
    /// The numbers of the batch.
    pub fn values(&mut self) -> &mut [f32] {
        self.0.values()
    }
}

/// Transfers pages to one tensor. The next batch is transferred while a run uses the current one.
#[derive(Debug)]
pub struct Feed {
    device: Box<dyn FeedDevice>,
    memory: u64,
    count: usize,
}

impl Feed {
    /// Creates a feed for a real tensor of a memory.
    ///
    /// # Errors
    /// If there is no such tensor, or the device has no memory for a second copy of it.
    pub fn new(memory: &Memory, tensor: &str) -> Result<Self> {
        let count = memory.value_type(tensor)?.shape.len();
        Ok(Self { device: memory.backend().feed(memory, tensor)?, memory: memory.identity(), count })
    }

    /// Allocates a page to fill.
    ///
    /// # Errors
    /// If the system cannot allocate memory of the kind that the device reads.
    pub fn page(&self) -> Result<Page> {
        self.device.page(self.count).map(Page)
    }

    /// Makes a page the input of the next run, after all earlier runs. Returns an unused page, if there is one.
    ///
    /// # Errors
    /// If the memory is not the one for which the feed was created, or the device fails.
    pub fn send(&mut self, memory: &mut Memory, page: Page) -> Result<Option<Page>> {
        memory.require(self.memory)?;
        Ok(self.device.send(memory, page.0)?.map(Page))
    }
}
