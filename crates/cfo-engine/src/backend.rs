//! What a device must be able to do: allocate tensors, copy values, compile programs and run them, feed and drain.
//!
//! A backend is a crate that implements [`Backend`] and [`Open`]. It takes fused graphs, whose operations are in
//! [`ops`](crate::ops); a [`Plan`] tells it where values lie. Nothing else in this crate knows which backends there are.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

pub use crate::fuse::{fuse, separate};
pub use crate::graph::Entry;
pub use crate::plan::{ALIGNMENT, Place, StepKind, Steps};

use crate::data::{Data, Number};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::memory::Memory;
use crate::plan::Plan;
use crate::precision::Precision;

/// Names a device and opens it.
pub trait Open {
    /// The device, ready for use.
    ///
    /// # Errors
    /// If it is not there, or a library that every program needs is missing.
    fn open(&self) -> Result<Arc<dyn Backend>>;
}

/// A device in use.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Its name, as users write it.
    fn name(&self) -> String;

    /// Refuses a precision that it does not compute in.
    ///
    /// # Errors
    /// If it does not.
    fn check(&self, precision: Precision) -> Result<()>;

    /// Whether a run may return before its work is done, so that many should be asked for at once.
    fn is_asynchronous(&self) -> bool;

    /// Bytes free for programs and tensors; `None` where the device does not say.
    ///
    /// # Errors
    /// If the device fails.
    fn available(&self) -> Result<Option<u64>>;

    /// Refuses more bytes than there is room for, where that is known before any of them is allocated.
    ///
    /// # Errors
    /// If there is not as much.
    fn check_room(&self, bytes: u64) -> Result<()>;

    /// Zeroed memory for a tensor.
    ///
    /// # Errors
    /// If there is not as much.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Storage>>;

    /// A program for the tensors of a memory.
    ///
    /// # Errors
    /// If a tensor is missing or of another type, or the plan does not fit.
    fn compile(&self, graph: Graph, outputs: Vec<Node>, memory: &Memory) -> Result<Compiled>;

    /// Carries batches to a tensor of a memory.
    ///
    /// # Errors
    /// If there is no such tensor, or no room.
    fn feed(&self, memory: &Memory, tensor: &str) -> Result<Box<dyn FeedDevice>>;

    /// Carries the values of a tensor of a memory to the host.
    ///
    /// # Errors
    /// If there is no such tensor.
    fn drain(&self, memory: &Memory, tensor: &str) -> Result<Box<dyn DrainDevice>>;
}

/// What [`Backend::compile`] yields.
#[derive(Debug)]
pub struct Compiled {
    /// Order and memory.
    pub plan: Plan,
    /// The program itself.
    pub executable: Box<dyn Executable>,
}

/// The memory of one tensor on its device.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Bytes.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces all elements; there are as many values as elements of that kind.
    ///
    /// # Errors
    /// If the device fails.
    fn write(&mut self, data: Data<'_>, number: Number) -> Result<()>;

    /// All elements.
    ///
    /// # Errors
    /// If the device fails.
    fn read(&self, number: Number) -> Result<Vec<f64>>;

    /// Takes over all elements of a tensor of the same device and size, without a detour over the host.
    ///
    /// # Errors
    /// If the device fails.
    fn copy_from(&mut self, from: &dyn Storage) -> Result<()>;

    /// All elements of a tensor of single precision.
    ///
    /// # Errors
    /// If the device fails.
    fn read_f32(&self) -> Result<Vec<f32>> {
        Ok(self.read(Number::F32)?.into_iter().map(|value| value as f32).collect())
    }

    /// The elements of a tensor of single precision to change in place, if they lie in the host's memory.
    fn host_f32(&mut self) -> Option<&mut [f32]> {
        None
    }

    /// The backend's own type.
    fn as_any(&self) -> &dyn Any;

    /// The same to change it.
    fn as_any_mut(&mut self) -> &mut dyn Any;
}

/// A compiled program. Whoever runs it has made sure that the memory is the one that it was compiled for.
pub trait Executable: fmt::Debug + Send + Sync {
    /// Runs everything so many times, effects included.
    ///
    /// # Errors
    /// If the device fails.
    fn run(&mut self, memory: &mut Memory, times: usize) -> Result<()>;

    /// Waits until all runs are done.
    ///
    /// # Errors
    /// If the device fails.
    fn wait(&self) -> Result<()>;

    /// Milliseconds of each operation, in order.
    ///
    /// # Errors
    /// If the device fails.
    fn profile(&mut self, memory: &mut Memory) -> Result<Vec<(String, f32)>>;

    /// Values of a requested output, when the runs before are done.
    ///
    /// # Errors
    /// If the device fails.
    fn output(&self, index: usize) -> Result<Vec<f64>>;

    /// Bytes that the program holds beside the tensors.
    fn bytes(&self) -> usize;
}

/// Room for one batch on the host.
pub trait PageMemory: fmt::Debug + Send {
    /// The numbers of the batch.
    fn values(&mut self) -> &mut [f32];

    /// The backend's own type, to look at.
    fn as_any(&self) -> &dyn Any;

    /// The backend's own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Delivers pages to one tensor.
pub trait FeedDevice: fmt::Debug {
    /// A page of so many numbers.
    ///
    /// # Errors
    /// If the system gives no such memory.
    fn page(&self, count: usize) -> Result<Box<dyn PageMemory>>;

    /// Makes a page what the next run reads; returns a page that is free again, if there is one.
    ///
    /// # Errors
    /// If the device fails.
    fn send(&mut self, memory: &mut Memory, page: Box<dyn PageMemory>)
    -> Result<Option<Box<dyn PageMemory>>>;
}

/// Takes copies of one tensor.
pub trait DrainDevice: fmt::Debug + Send {
    /// Asks for the values after all runs before.
    ///
    /// # Errors
    /// If the device fails.
    fn ask(&mut self, memory: &Memory) -> Result<()>;

    /// Copies asked for and not taken yet.
    fn waiting(&self) -> usize;

    /// Hands over the oldest copy, when it has arrived; whether there was one.
    ///
    /// # Errors
    /// If the device fails.
    fn take(&mut self, use_values: &mut dyn FnMut(&[f32])) -> Result<bool>;
}

/// A page of plain memory.
#[derive(Debug)]
pub struct PlainPage(pub Vec<f32>);

impl PageMemory for PlainPage {
    fn values(&mut self) -> &mut [f32] {
        &mut self.0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// A feed of a device whose memory is the host's: pages are copied when they are sent.
#[derive(Debug)]
pub struct PlainFeed {
    /// The tensor that is fed.
    pub tensor: String,
}

impl FeedDevice for PlainFeed {
    fn page(&self, count: usize) -> Result<Box<dyn PageMemory>> {
        Ok(Box::new(PlainPage(vec![0.0; count])))
    }

    fn send(
        &mut self,
        memory: &mut Memory,
        mut page: Box<dyn PageMemory>,
    ) -> Result<Option<Box<dyn PageMemory>>> {
        memory.write(&self.tensor, Data::F32(page.values()))?;
        Ok(Some(page))
    }
}

/// A drain of a device whose memory is the host's: values are copied when they are asked for.
#[derive(Debug)]
pub struct PlainDrain {
    tensor: String,
    copies: VecDeque<Vec<f32>>,
}

impl PlainDrain {
    /// A drain of a tensor.
    pub fn new(tensor: &str) -> Self {
        Self { tensor: tensor.into(), copies: VecDeque::new() }
    }
}

impl DrainDevice for PlainDrain {
    fn ask(&mut self, memory: &Memory) -> Result<()> {
        self.copies.push_back(memory.read(&self.tensor)?);
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.copies.len()
    }

    fn take(&mut self, use_values: &mut dyn FnMut(&[f32])) -> Result<bool> {
        let Some(values) = self.copies.pop_front() else { return Ok(false) };
        use_values(&values);
        Ok(true)
    }
}
