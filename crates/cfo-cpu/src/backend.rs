//! The CPU as a device.

use std::any::Any;
use std::sync::Arc;

use cfo_engine::backend::{Backend, Compiled, DrainDevice, FeedDevice, Open, PlainDrain, PlainFeed, Storage};
use cfo_engine::{Data, EngineError, Graph, Memory, Node, Number, Plan, Precision, Result};

use crate::buffer::Buffer;
use crate::executor::{CpuExecutor, Sizing, check_fits};

/// All cores of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu;

impl Open for Cpu {
    fn open(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(Self))
    }
}

impl Backend for Cpu {
    fn name(&self) -> String {
        "cpu".into()
    }

    fn check(&self, precision: Precision) -> Result<()> {
        match precision {
            Precision::F32 | Precision::F64 => Ok(()),
            _ => Err(EngineError::DeviceUnavailable {
                name: self.name(),
                reason: format!("it computes in `f32`, not in `{precision}`"),
            }),
        }
    }

    fn is_asynchronous(&self) -> bool {
        false
    }

    fn available(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    fn check_room(&self, bytes: u64) -> Result<()> {
        check_fits(bytes)
    }

    fn allocate(&self, bytes: usize) -> Result<Box<dyn Storage>> {
        Ok(Box::new(HostTensor(Buffer::zeroed(bytes))))
    }

    fn compile(&self, graph: Graph, outputs: Vec<Node>, memory: &Memory) -> Result<Compiled> {
        let plan = Plan::new(&Sizing { graph: &graph, outputs: &outputs, memory });
        let executor = CpuExecutor::new(graph, &plan, &outputs, memory)?;
        Ok(Compiled { plan, executable: Box::new(executor) })
    }

    fn feed(&self, _: &Memory, tensor: &str) -> Result<Box<dyn FeedDevice>> {
        Ok(Box::new(PlainFeed { tensor: tensor.into() }))
    }

    fn drain(&self, _: &Memory, tensor: &str) -> Result<Box<dyn DrainDevice>> {
        Ok(Box::new(PlainDrain::new(tensor)))
    }
}

#[derive(Debug)]
pub(crate) struct HostTensor(pub(crate) Buffer);

impl Storage for HostTensor {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn write(&mut self, data: Data<'_>, number: Number) -> Result<()> {
        match number {
            Number::F32 => data.copy_to_f32(self.0.as_mut_slice()),
            Number::F64 => data.copy_to_f64(self.0.as_mut_slice()),
            Number::U32 => data.copy_to_u32(self.0.as_mut_slice()),
        }
        Ok(())
    }

    fn read(&self, number: Number) -> Result<Vec<f64>> {
        Ok(match number {
            Number::F32 => self.0.as_slice::<f32>().iter().map(|&value| f64::from(value)).collect(),
            Number::F64 => self.0.as_slice::<f64>().to_vec(),
            Number::U32 => self.0.as_slice::<u32>().iter().map(|&index| f64::from(index)).collect(),
        })
    }

    fn copy_from(&mut self, from: &dyn Storage) -> Result<()> {
        let from = (from as &dyn Any).downcast_ref::<Self>().expect("a memory's tensors are of one device");
        self.0.as_mut_slice::<u8>().copy_from_slice(from.0.as_slice());
        Ok(())
    }

    fn read_f32(&self) -> Result<Vec<f32>> {
        Ok(self.0.as_slice::<f32>().to_vec())
    }

    fn host_f32(&mut self) -> Option<&mut [f32]> {
        Some(self.0.as_mut_slice())
    }
}

/// The elements of a tensor, which are on the host because the memory is the CPU's.
pub(crate) fn host(storage: &mut dyn Storage) -> &mut Buffer {
    let tensor = (storage as &mut dyn Any).downcast_mut::<HostTensor>();
    &mut tensor.expect("programs of the CPU are compiled for its memory only").0
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo_engine::{Element, Feed, Program};

    /// A program that doubles `x`, an input of `count` numbers.
    fn doubled(count: usize) -> (Program, Memory) {
        let mut graph = Graph::new();
        let x = graph.input("x", [count]).unwrap();
        let y = graph.scale(x, 2.0).unwrap();
        let mut memory = Memory::new(Cpu, Precision::F32).unwrap();
        memory.insert_real("x", [count], &vec![1.0; count]).unwrap();
        (Program::compile(&graph, &[y], &memory).unwrap(), memory)
    }

    #[test]
    fn a_program_refuses_another_memory() {
        let (mut program, mut own) = doubled(1000);
        // Its first tensor is shorter than the tensor that the program reads there.
        let (_, mut other) = doubled(1);
        assert!(matches!(program.run(&mut other), Err(EngineError::OtherMemory)));
        assert!(matches!(program.profile(&mut other), Err(EngineError::OtherMemory)));
        let mut empty = Memory::new(Cpu, Precision::F64).unwrap();
        let refused = program.run(&mut empty).unwrap_err();
        assert!(refused.hint().is_some(), "{refused}");
        program.run(&mut own).unwrap();
        assert!(program.output(0).unwrap().iter().all(|&value| value == 2.0));
        // Tensors added later do not move earlier ones.
        own.insert("more", Element::Index, [7], Data::Index(&[3; 7])).unwrap();
        own.write("x", Data::F32(&[2.0; 1000])).unwrap();
        program.run(&mut own).unwrap();
        assert!(program.output(0).unwrap().iter().all(|&value| value == 4.0));
        let mut feed = Feed::new(&own, "x").unwrap();
        let page = feed.page().unwrap();
        assert!(matches!(feed.send(&mut other, page), Err(EngineError::OtherMemory)));
    }

    #[test]
    fn tensors_move_to_a_memory_of_their_own() {
        let (mut program, mut own) = doubled(10);
        own.insert("more", Element::Index, [7], Data::Index(&[3; 7])).unwrap();
        let mut taken = own.take(|name| name == "x");
        assert_eq!(taken.read("x").unwrap(), [1.0; 10]);
        assert_eq!(own.read_index("more").unwrap(), [3; 7]);
        assert!(!own.contains("x") && !taken.contains("more"));
        for memory in [&mut own, &mut taken] {
            assert!(matches!(program.run(memory), Err(EngineError::OtherMemory)));
        }
    }
}
