//! A program: a graph fused, planned and bound to a memory, ready to run.

use crate::cpu;
use crate::cuda;
use crate::error::{EngineError, Result};
use crate::fuse::fuse;
use crate::graph::{Graph, Node};
use crate::memory::Memory;
use crate::plan::Plan;
use crate::shape::{Element, Type};

/// A planned graph on its device.
#[derive(Debug)]
enum Executor {
    Cpu(cpu::Executor),
    Cuda(cuda::Executor),
}

/// A compiled graph. Running it on the CPU allocates nothing.
#[derive(Debug)]
pub struct Program {
    executor: Executor,
    plan: Plan,
    outputs: Vec<Type>,
    text: String,
}

impl Program {
    /// Compiles what is needed for the requested values and for the graph's effects.
    ///
    /// # Errors
    /// If a tensor is missing from memory or has another type there, or the plan does not fit.
    pub fn compile(graph: &Graph, outputs: &[Node], memory: &Memory) -> Result<Self> {
        let types = outputs.iter().map(|&node| graph.value_type(node).clone()).collect();
        let (fused, outputs) = fuse(graph, outputs);
        let text = fused.to_string();
        let (plan, executor) = match memory.context() {
            None => {
                let plan = Plan::new(&cpu::Sizing { graph: &fused, outputs: &outputs, memory });
                let executor = cpu::Executor::new(fused, &plan, &outputs, memory)?;
                (plan, Executor::Cpu(executor))
            }
            Some(context) => {
                let (precision, deterministic) = (memory.precision(), memory.is_deterministic());
                let typed = cuda::Typed::new(fused, outputs, precision, deterministic, context)?;
                let plan = Plan::new(&typed);
                let executor = cuda::Executor::new(context, &typed, &plan, memory)?;
                (plan, Executor::Cuda(executor))
            }
        };
        Ok(Self { executor, plan, outputs: types, text })
    }

    /// Runs everything once, effects included. A GPU may still be at work when this returns; reading a value waits.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.run_many(memory, 1)
    }

    /// Runs everything several times in a row, as that many calls of [`Program::run`] would.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run_many(&mut self, memory: &mut Memory, times: usize) -> Result<()> {
        match &mut self.executor {
            Executor::Cpu(executor) => (0..times).for_each(|_| executor.run(memory)),
            Executor::Cuda(executor) => executor.run(memory, times)?,
        }
        Ok(())
    }

    /// Waits until the device has done what was asked of it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&self) -> Result<()> {
        match &self.executor {
            Executor::Cpu(_) => Ok(()),
            Executor::Cuda(executor) => executor.synchronize(),
        }
    }

    /// Milliseconds that each operation takes, in the order of execution. On the CPU this is one run with a clock beside
    /// it; on CUDA every operation is timed alone and effects are left out. Values and counters are those of a run.
    ///
    /// # Errors
    /// If the device fails.
    pub fn profile(&mut self, memory: &mut Memory) -> Result<Vec<(String, f32)>> {
        match &mut self.executor {
            Executor::Cpu(executor) => Ok(executor.profile(memory)),
            Executor::Cuda(executor) => executor.profile(),
        }
    }

    /// Values of a requested output after a run, in the order of [`Program::compile`].
    ///
    /// # Errors
    /// If there is no such output or it holds indices.
    pub fn output(&self, index: usize) -> Result<Vec<f32>> {
        Ok(self.output_f64(index)?.into_iter().map(|value| value as f32).collect())
    }

    /// The same in double precision.
    ///
    /// # Errors
    /// If there is no such output or it holds indices.
    pub fn output_f64(&self, index: usize) -> Result<Vec<f64>> {
        match self.outputs.get(index) {
            Some(Type { element: Element::Real | Element::Double, .. }) => match &self.executor {
                Executor::Cpu(executor) => Ok(executor.output(index)),
                Executor::Cuda(executor) => executor.output(index),
            },
            found => Err(EngineError::DataMismatch {
                name: format!("output {index}"),
                found: "real numbers".into(),
                needed: found
                    .map_or_else(|| format!("one of {} outputs", self.outputs.len()), ToString::to_string),
            }),
        }
    }

    /// A requested scalar after a run.
    ///
    /// # Errors
    /// If there is no such output.
    pub fn scalar(&self, index: usize) -> Result<f64> {
        Ok(self.output_f64(index)?.first().copied().unwrap_or(f64::NAN))
    }

    /// The plan: order and memory.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes that the program holds beside the tensors of its memory: the arena and, on a GPU, constants, rounded weights,
    /// tables and the libraries' workspaces. Kernels and the libraries themselves are not counted.
    pub fn bytes(&self) -> usize {
        match &self.executor {
            Executor::Cpu(_) => self.plan.arena_bytes(),
            Executor::Cuda(executor) => executor.bytes(),
        }
    }

    /// The fused graph as text, one operation a line.
    pub fn text(&self) -> &str {
        &self.text
    }
}
