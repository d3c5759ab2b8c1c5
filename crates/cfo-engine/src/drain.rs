//! Copies a tensor's values to the host, in order with the runs that write them.

use crate::backend::DrainDevice;
use crate::error::Result;
use crate::memory::Memory;

/// Copies one tensor to the host. The device continues while the host uses a copy.
#[derive(Debug)]
pub struct Drain {
    device: Box<dyn DrainDevice>,
    memory: u64,
}

impl Drain {
    /// Creates a drain of a real tensor of a memory.
    ///
    /// # Errors
    /// If there is no such tensor.
    pub fn new(memory: &Memory, tensor: &str) -> Result<Self> {
        memory.value_type(tensor)?;
        Ok(Self { device: memory.backend().drain(memory, tensor)?, memory: memory.identity() })
    }

    /// Requests a copy of the tensor's values after all earlier runs. Later runs do not change the copy.
    ///
    /// # Errors
    /// If the memory is not the one for which the drain was created, the device fails or the system cannot allocate
    /// memory.
    pub fn ask(&mut self, memory: &Memory) -> Result<()> {
        memory.require(self.memory)?;
        self.device.ask(memory)
    }

    /// Number of requested copies that have not been taken.
    pub fn waiting(&self) -> usize {
        self.device.waiting()
    }

    /// Waits for the oldest requested copy and passes it to `use_values`; `None` if there is none.
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
