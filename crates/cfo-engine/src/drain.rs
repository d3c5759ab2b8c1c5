//! Carries a tensor's values to the host behind the runs that wrote them: through pinned memory where it is on a GPU.

use std::collections::VecDeque;

use crate::cuda;
use crate::error::Result;
use crate::memory::Memory;

/// Takes copies of one tensor. While the host works on one copy, the device goes on.
#[derive(Debug)]
pub struct Drain {
    tensor: String,
    source: Source,
}

#[derive(Debug)]
enum Source {
    Host(VecDeque<Vec<f32>>),
    Device(cuda::Drain),
}

impl Drain {
    /// A drain of a real tensor that memory holds.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn new(memory: &Memory, tensor: &str) -> Result<Self> {
        let value_type = memory.value_type(tensor)?.clone();
        let source = match memory.context() {
            None => Source::Host(VecDeque::new()),
            Some(context) => {
                Source::Device(cuda::Drain::new(context, memory.device_tensor(tensor, &value_type)?)?)
            }
        };
        Ok(Self { tensor: tensor.into(), source })
    }

    /// Asks for the values that the tensor has after all runs before; what runs later does not change them.
    ///
    /// # Errors
    /// If the device fails or the system gives no pinned memory.
    pub fn ask(&mut self, memory: &Memory) -> Result<()> {
        match &mut self.source {
            Source::Host(copies) => copies.push_back(memory.read(&self.tensor)?),
            Source::Device(device) => device.ask()?,
        }
        Ok(())
    }

    /// Copies asked for and not taken yet.
    pub fn waiting(&self) -> usize {
        match &self.source {
            Source::Host(copies) => copies.len(),
            Source::Device(device) => device.waiting(),
        }
    }

    /// Hands over the oldest copy asked for, when it has arrived; nothing if none was.
    ///
    /// # Errors
    /// If the device fails.
    pub fn take<T>(&mut self, use_values: impl FnOnce(&[f32]) -> T) -> Result<Option<T>> {
        match &mut self.source {
            Source::Host(copies) => Ok(copies.pop_front().map(|values| use_values(&values))),
            Source::Device(device) => device.take(use_values),
        }
    }
}
