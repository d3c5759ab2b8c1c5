//! Carries batches to a tensor ahead of the runs that read them.

use crate::backend::{FeedDevice, PageMemory};
use crate::error::Result;
use crate::memory::Memory;
use crate::shape::Shape;

/// Room for one batch on the host, filled by whoever gathers it; a thread of its own may do that.
#[derive(Debug)]
pub struct Page(Box<dyn PageMemory>);

impl Page {
    /// The numbers of the batch.
    pub fn values(&mut self) -> &mut [f32] {
        self.0.values()
    }
}

/// Delivers pages to one tensor. While a run works on one batch, the next is on its way.
#[derive(Debug)]
pub struct Feed {
    device: Box<dyn FeedDevice>,
    memory: u64,
    count: usize,
}

impl Feed {
    /// A feed for a real tensor that memory holds.
    ///
    /// # Errors
    /// If there is no such tensor, or the device has no room for a second copy of it.
    pub fn new(memory: &Memory, tensor: &str) -> Result<Self> {
        let count = memory.value_type(tensor)?.shape.len();
        Ok(Self { device: memory.backend().feed(memory, tensor)?, memory: memory.identity(), count })
    }

    /// Adds a tensor of zeros and makes a feed for it.
    ///
    /// # Errors
    /// If memory holds another tensor of that name or has no room.
    pub fn insert(memory: &mut Memory, tensor: &str, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        memory.insert_real(tensor, shape.clone(), &vec![0.0; shape.len()])?;
        Self::new(memory, tensor)
    }

    /// A page to fill.
    ///
    /// # Errors
    /// If the system gives no memory of the kind that the device reads.
    pub fn page(&self) -> Result<Page> {
        self.device.page(self.count).map(Page)
    }

    /// Makes a page what the next run reads, after all runs before; returns a page that is free again, if there is one.
    ///
    /// # Errors
    /// If the memory is not the one that the feed was made for, or the device fails.
    pub fn send(&mut self, memory: &mut Memory, page: Page) -> Result<Option<Page>> {
        memory.require(self.memory)?;
        Ok(self.device.send(memory, page.0)?.map(Page))
    }
}
