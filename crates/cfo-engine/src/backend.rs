//! The interface of a device: allocation of tensors, copies, compilation and execution of programs, feeds and drains.
//!
//! A backend is a crate that implements [`Backend`] and [`Open`]. It compiles fused graphs, whose operations are in
//! [`ops`](crate::ops), with the memory layout of a [`Plan`]. The rest of this crate does not depend on backends. All
//! functions that return a `Result` also fail if the device does.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

pub use crate::fuse::{fuse, separate};
pub use crate::graph::{Entry, list};
pub use crate::plan::{ALIGNMENT, BufferPlace, PlannedSteps, StepKind};

use crate::data::{Data, Number};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::memory::Memory;
use crate::plan::Plan;
use crate::precision::Precision;

/// A name of a device that can be opened.
pub trait Open {
    /// Opens the device.
    ///
    /// # Errors
    /// If it does not exist, or a library that every program needs is missing.
    fn open(&self) -> Result<Arc<dyn Backend>>;
}

/// A device in use.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Name of the device, as users write it.
    fn name(&self) -> String;

    /// Checks that the device computes in a precision.
    ///
    /// # Errors
    /// If it does not.
    fn check(&self, precision: Precision) -> Result<()>;

    /// Whether a run may return before its work is done, so that many runs should be queued at once.
    fn is_asynchronous(&self) -> bool;

    /// Bytes free for programs and tensors; `None` if the device does not report them.
    fn available(&self) -> Result<Option<u64>>;

    /// Checks that `bytes` can be allocated, where the free memory is known.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn check_room(&self, bytes: u64) -> Result<()>;

    /// Allocates zeroed memory for a tensor.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn allocate(&self, bytes: usize) -> Result<Box<dyn Storage>>;

    /// Compiles a program for the tensors of a memory.
    ///
    /// # Errors
    /// If a tensor is missing or of another type, or there is not enough memory for the plan.
    fn compile(&self, graph: Graph, outputs: Vec<Node>, memory: &Memory) -> Result<Compiled>;

    /// Creates a feed, which transfers batches to a tensor of a memory.
    ///
    /// # Errors
    /// If there is no such tensor, or not enough memory.
    fn feed(&self, memory: &Memory, tensor: &str) -> Result<Box<dyn FeedDevice>>;

    /// Creates a drain, which transfers the values of a tensor to the host.
    ///
    /// # Errors
    /// If there is no such tensor.
    fn drain(&self, memory: &Memory, tensor: &str) -> Result<Box<dyn DrainDevice>>;
}

/// Result of [`Backend::compile`].
#[derive(Debug)]
pub struct Compiled {
    /// Order of execution and memory layout.
    pub plan: Plan,
    /// The program.
    pub executable: Box<dyn Executable>,
}

/// The memory of one tensor on its device.
pub trait Storage: Any + fmt::Debug + Send + Sync {
    /// Size in bytes.
    fn len(&self) -> usize;

    /// Whether the size is zero.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Replaces all elements; `data` has as many values as there are elements of type `number`.
    fn write(&mut self, data: Data<'_>, number: Number) -> Result<()>;

    /// Reads all elements.
    fn read(&self, number: Number) -> Result<Vec<f64>>;

    /// Copies all elements of a tensor of the same device and size without a transfer over the host.
    fn copy_from(&mut self, from: &dyn Storage) -> Result<()>;

    /// Reads all elements of a tensor of single precision.
    fn read_f32(&self) -> Result<Vec<f32>> {
        Ok(self.read(Number::F32)?.into_iter().map(|value| value as f32).collect())
    }

    /// The elements of a tensor of single precision, for changes in place, if they are in the host's memory.
    fn host_f32(&mut self) -> Option<&mut [f32]> {
        None
    }
}

/// A compiled program. The caller has checked that the memory is the one for which it was compiled.
pub trait Executable: fmt::Debug + Send + Sync {
    /// Runs everything `times` times, effects included.
    fn run(&mut self, memory: &mut Memory, times: usize) -> Result<()>;

    /// Waits until all runs are done.
    fn wait(&self) -> Result<()>;

    /// Milliseconds of each operation, in order.
    fn profile(&mut self, memory: &mut Memory) -> Result<Vec<(String, f32)>>;

    /// Values of a requested output after all earlier runs.
    fn output(&self, index: usize) -> Result<Vec<f64>>;

    /// Bytes that the program allocates in addition to the tensors.
    fn bytes(&self) -> usize;
}

/// Host memory for one batch.
pub trait PageMemory: Any + fmt::Debug + Send {
    /// The numbers of the batch.
    fn values(&mut self) -> &mut [f32];
}

/// Transfers pages to one tensor.
pub trait FeedDevice: fmt::Debug {
    /// Allocates a page of `count` numbers.
    ///
    /// # Errors
    /// If the system cannot allocate such memory.
    fn page(&self, count: usize) -> Result<Box<dyn PageMemory>>;

    /// Makes a page the input of the next run and returns an unused page, if there is one.
    fn send(&mut self, memory: &mut Memory, page: Box<dyn PageMemory>)
    -> Result<Option<Box<dyn PageMemory>>>;
}

/// Transfers copies of one tensor to the host.
pub trait DrainDevice: fmt::Debug + Send {
    /// Requests a copy of the values after all earlier runs.
    fn ask(&mut self, memory: &Memory) -> Result<()>;

    /// Number of requested copies that have not been taken.
    fn waiting(&self) -> usize;

    /// Waits for the oldest copy and passes it to `use_values`. Returns whether there was one.
    fn take(&mut self, use_values: &mut dyn FnMut(&[f32])) -> Result<bool>;
}

/// A page of plain memory.
#[derive(Debug)]
pub struct PlainPage(pub Vec<f32>);

impl PageMemory for PlainPage {
    fn values(&mut self) -> &mut [f32] {
        &mut self.0
    }
}

/// A feed of a device that uses the host's memory: pages are copied when they are sent.
#[derive(Debug)]
pub struct PlainFeed {
    /// Name of the tensor.
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

/// A drain of a device that uses the host's memory: values are copied when they are requested.
#[derive(Debug)]
pub struct PlainDrain {
    tensor: String,
    copies: VecDeque<Vec<f32>>,
}

impl PlainDrain {
    /// Creates a drain of a tensor.
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
