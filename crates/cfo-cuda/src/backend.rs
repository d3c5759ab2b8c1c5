//! CUDA as a device of the engine.

use std::any::Any;
use std::sync::Arc;

use cfo_engine::backend::{Backend, Compiled, DrainDevice, FeedDevice, Open, Storage};
use cfo_engine::{Data, EngineError, Graph, Memory, Node, Number, Plan, Precision, Result, Type};

use crate::program::Scalar;
use crate::program::executor::{CudaExecutor, numbers};
use crate::program::typed::Typed;
use crate::runtime::drain::CudaDrain;
use crate::runtime::driver::{Allocation, CudaContext};
use crate::runtime::feed::CudaFeed;
use crate::runtime::host;

/// The NVIDIA GPU with this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuda(pub usize);

impl Open for Cuda {
    fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Device { context: CudaContext::open(self.0)? }))
    }
}

#[derive(Debug)]
struct Device {
    context: Arc<CudaContext>,
}

impl Backend for Device {
    fn name(&self) -> String {
        format!("cuda:{}", self.context.ordinal)
    }

    fn check(&self, precision: Precision) -> Result<()> {
        let properties = &self.context.properties;
        let reason = match precision {
            Precision::F32 => return Ok(()),
            Precision::F64 => format!("it computes in `f32`, not in `{precision}`"),
            _ if properties.architecture >= 80 => return Ok(()),
            _ => format!("{} computes in `f32`, not in `{precision}`", properties.name),
        };
        Err(EngineError::DeviceUnavailable { name: self.name(), reason })
    }

    fn is_asynchronous(&self) -> bool {
        true
    }

    fn available(&self) -> Result<Option<u64>> {
        Ok(Some(self.context.memory()?.0))
    }

    fn check_room(&self, _: u64) -> Result<()> {
        Ok(())
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Storage>> {
        Ok(Box::new(Tensor(Arc::new(Allocation::zeroed(&self.context, bytes)?))))
    }

    fn compile(&self, graph: Graph, outputs: Vec<Node>, memory: &Memory) -> Result<Compiled> {
        let (precision, deterministic) = (memory.precision(), memory.is_deterministic());
        let mut typed = Typed::new(graph, outputs, precision, deterministic, &self.context)?;
        typed.ranks = memory.collective().is_some();
        let plan = Plan::new(&typed);
        let executor = CudaExecutor::new(&self.context, &typed, &plan, memory)?;
        Ok(Compiled { plan, executable: Box::new(executor) })
    }

    fn feed(&self, memory: &Memory, tensor: &str) -> Result<Box<dyn FeedDevice>> {
        let allocation = device_tensor(memory, tensor, &memory.value_type(tensor)?.clone())?;
        Ok(Box::new(CudaFeed::new(&self.context, tensor, allocation)?))
    }

    fn drain(&self, memory: &Memory, tensor: &str) -> Result<Box<dyn DrainDevice>> {
        let allocation = device_tensor(memory, tensor, &memory.value_type(tensor)?.clone())?;
        Ok(Box::new(CudaDrain::new(&self.context, allocation)?))
    }
}

/// A tensor in a GPU's memory, kept alive by programs that use it.
#[derive(Debug)]
struct Tensor(Arc<Allocation>);

impl Storage for Tensor {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, data: Data<'_>, number: Number) -> Result<()> {
        host::with_bytes(data, number, |bytes| self.0.write(bytes))
    }

    fn read(&self, number: Number) -> Result<Vec<f64>> {
        let scalar = match number {
            Number::F32 => Scalar::F32,
            Number::F64 => Scalar::F64,
            Number::U32 => Scalar::Index,
        };
        Ok(numbers(&self.0.read(0, self.0.len())?, scalar))
    }

    fn copy_from(&mut self, from: &dyn Storage) -> Result<()> {
        let from = (from as &dyn Any).downcast_ref::<Self>().expect("a memory's tensors are of one device");
        self.0.copy_from(&from.0)
    }
}

pub(crate) fn device_tensor(memory: &Memory, name: &str, value_type: &Type) -> Result<Arc<Allocation>> {
    let storage = memory.storage(memory.bind(name, value_type)?);
    let tensor = (storage as &dyn Any).downcast_ref::<Tensor>();
    Ok(Arc::clone(&tensor.expect("programs of a GPU are compiled for its memory only").0))
}

/// The GPU that holds a memory's tensors.
#[cfg(test)]
pub(crate) fn context(ordinal: usize) -> Arc<CudaContext> {
    CudaContext::open(ordinal).expect("asked for where there is one")
}
