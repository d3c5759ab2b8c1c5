//! Carries a tensor's values to the host behind the runs that wrote them.

use crate::backend::DrainDevice;
use crate::error::Result;
use crate::memory::Memory;

/// Takes copies of one tensor. While the host works on one copy, the device goes on.
#[derive(Debug)]
pub struct Drain {
    device: Box<dyn DrainDevice>,
    memory: u64,
}

impl Drain {
    /// A drain of a real tensor that memory holds.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn new(memory: &Memory, tensor: &str) -> Result<Self> {
        memory.value_type(tensor)?;
        Ok(Self { device: memory.backend().drain(memory, tensor)?, memory: memory.identity() })
    }

    /// Asks for the values that the tensor has after all runs before; what runs later does not change them.
    ///
    /// # Errors
    /// If the memory is not the one that the drain was made for, the device fails or the system gives no memory.
    pub fn ask(&mut self, memory: &Memory) -> Result<()> {
        memory.require(self.memory)?;
        self.device.ask(memory)
    }

    /// Copies asked for and not taken yet.
    pub fn waiting(&self) -> usize {
        self.device.waiting()
    }

    /// Hands over the oldest copy asked for, when it has arrived; nothing if none was.
    ///
    /// # Errors
    /// If the device fails.
    pub fn take<T>(&mut self, use_values: impl FnOnce(&[f32]) -> T) -> Result<Option<T>> {
        let (mut use_values, mut result) = (Some(use_values), None);
        self.device.take(&mut |values| {
            if let Some(use_values) = use_values.take() {
                result = Some(use_values(values));
            }
        })?;
        Ok(result)
    }
}
