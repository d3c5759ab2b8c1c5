//! Carries batches to a tensor ahead of the runs that read them: from pinned memory where the tensor is on a GPU.

use crate::cuda;
use crate::error::Result;
use crate::memory::{Data, Memory};
use crate::shape::Shape;

/// Room for one batch on the host, filled by whoever gathers it; a thread of its own may do that.
#[derive(Debug)]
pub struct Page {
    values: Pages,
}

#[derive(Debug)]
enum Pages {
    Plain(Vec<f32>),
    Pinned(cuda::Pinned),
}

impl Page {
    /// The numbers of the batch.
    pub fn values(&mut self) -> &mut [f32] {
        match &mut self.values {
            Pages::Plain(values) => values,
            Pages::Pinned(pinned) => pinned.values(),
        }
    }
}

/// Delivers pages to one tensor. While a run works on one batch, the next is on its way.
#[derive(Debug)]
pub struct Feed {
    tensor: String,
    count: usize,
    device: Option<cuda::Feed>,
}

impl Feed {
    /// A feed for a real tensor that memory holds.
    ///
    /// # Errors
    /// If there is no such tensor, or the GPU has no room for a second copy of it.
    pub fn new(memory: &Memory, tensor: &str) -> Result<Self> {
        let value_type = memory.value_type(tensor)?.clone();
        let device = match memory.context() {
            None => None,
            Some(context) => Some(cuda::Feed::new(context, memory.device_tensor(tensor, &value_type)?)?),
        };
        Ok(Self { tensor: tensor.into(), count: value_type.shape.len(), device })
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
    /// If the system gives no pinned memory.
    pub fn page(&self) -> Result<Page> {
        let values = match &self.device {
            None => Pages::Plain(vec![0.0; self.count]),
            Some(device) => Pages::Pinned(device.page(self.count)?),
        };
        Ok(Page { values })
    }

    /// Makes a page what the next run reads, after all runs before; returns a page that is free again, if there is one.
    ///
    /// # Errors
    /// If the device fails.
    pub fn send(&mut self, memory: &mut Memory, page: Page) -> Result<Option<Page>> {
        match (page.values, &mut self.device) {
            (Pages::Pinned(pinned), Some(device)) => {
                let free = device.send(pinned)?;
                Ok(free.map(|pinned| Page { values: Pages::Pinned(pinned) }))
            }
            (values, _) => {
                let mut page = Page { values };
                memory.write(&self.tensor, Data::F32(page.values()))?;
                Ok(Some(page))
            }
        }
    }
}
