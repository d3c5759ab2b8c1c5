//! Asynchronous transfer of batches from pinned memory to a tensor.
//!
//! A page is transferred to a second copy of the tensor on a separate stream while the device works. When all earlier
//! runs are finished, the copy is moved to the tensor, which takes a thousandth of the time.
#![allow(unsafe_code)]

use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys;

use crate::runtime::driver::{Allocation, CudaContext, check, quiet};
use crate::runtime::replay::{Event, Stream};
use cfo_engine::backend::{FeedDevice, PageMemory};
use cfo_engine::{Data, Memory, Result};

/// Host memory that the device can read directly.
pub(crate) struct Pinned {
    pointer: *mut f32,
    count: usize,
    context: Arc<CudaContext>,
}

// SAFETY: this value owns the memory, and the context may be used from any thread.
unsafe impl Send for Pinned {}

impl std::fmt::Debug for Pinned {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} numbers)", self.count)
    }
}

impl Pinned {
    pub(crate) fn new(context: &Arc<CudaContext>, count: usize) -> Result<Self> {
        context.enter()?;
        let mut pointer: *mut c_void = std::ptr::null_mut();
        let bytes = 4 * count.max(1);
        let _quiet = quiet();
        // SAFETY: the pointer is written on success; zeros are valid numbers.
        unsafe {
            check("cuMemHostAlloc", sys::cuMemHostAlloc(&mut pointer, bytes, 0))?;
            std::ptr::write_bytes(pointer.cast::<u8>(), 0, bytes);
        }
        Ok(Self { pointer: pointer.cast(), count, context: Arc::clone(context) })
    }
}

impl PageMemory for Pinned {
    fn values(&mut self) -> &mut [f32] {
        // SAFETY: the memory has this number of initialised numbers, and is borrowed like this value.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.count) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the memory is owned; a page in transfer is waited for before it is dropped.
        self.context.release(|| unsafe {
            let _ = sys::cuMemFreeHost(self.pointer.cast());
        });
    }
}

pub(crate) struct CudaFeed {
    /// The page in transfer and the event of its arrival; dropped before the stream.
    flying: Option<(Event, Pinned)>,
    /// The event after the last read of the second copy.
    read: Option<Event>,
    copy: Allocation,
    tensor: Arc<Allocation>,
    name: String,
    stream: Stream,
    context: Arc<CudaContext>,
}

impl std::fmt::Debug for CudaFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Feed({:?})", self.copy)
    }
}

impl CudaFeed {
    pub(crate) fn new(context: &Arc<CudaContext>, name: &str, tensor: Arc<Allocation>) -> Result<Self> {
        let copy = Allocation::zeroed(context, tensor.len())?;
        context.synchronize()?;
        let (stream, name) = (Stream::new(context)?, name.into());
        Ok(Self { flying: None, read: None, copy, tensor, name, stream, context: Arc::clone(context) })
    }

    /// Sends a page; returns the page sent before, which is free again.
    fn send_pinned(&mut self, page: Pinned) -> Result<Option<Pinned>> {
        self.context.enter()?;
        let bytes = (4 * page.count).min(self.tensor.len());
        let free = match self.flying.take() {
            Some((arrived, page)) => {
                arrived.wait()?;
                Some(page)
            }
            None => None,
        };
        if let Some(read) = self.read.take() {
            read.hold(self.stream.raw())?;
        }
        // SAFETY: page, copy and tensor have equal sizes; the page is kept until it has arrived.
        check("cuMemcpyHtoD", unsafe {
            sys::cuMemcpyHtoDAsync_v2(self.copy.address(), page.pointer.cast(), bytes, self.stream.raw())
        })?;
        let arrived = Event::record(&self.context, self.stream.raw())?;
        let main = self.context.stream;
        arrived.hold(main)?;
        // SAFETY: as above; the main stream waits for the copy.
        check("cuMemcpyDtoD", unsafe {
            sys::cuMemcpyDtoDAsync_v2(self.tensor.address(), self.copy.address(), bytes, main)
        })?;
        self.read = Some(Event::record(&self.context, main)?);
        self.flying = Some((arrived, page));
        Ok(free)
    }
}

impl FeedDevice for CudaFeed {
    fn page(&self, count: usize) -> Result<Box<dyn PageMemory>> {
        Ok(Box::new(Pinned::new(&self.context, count)?))
    }

    fn send(
        &mut self,
        memory: &mut Memory,
        mut page: Box<dyn PageMemory>,
    ) -> Result<Option<Box<dyn PageMemory>>> {
        if !(&*page as &dyn Any).is::<Pinned>() {
            // A page of another device's feed.
            memory.write(&self.name, Data::F32(page.values()))?;
            return Ok(Some(page));
        }
        let pinned = (page as Box<dyn Any>).downcast::<Pinned>().expect("looked at above");
        Ok(self.send_pinned(*pinned)?.map(|free| Box::new(free) as Box<dyn PageMemory>))
    }
}

impl Drop for CudaFeed {
    fn drop(&mut self) {
        if let Some((arrived, _)) = &self.flying {
            // The page must not be freed before the device has read it.
            let _ = arrived.wait();
        }
    }
}
