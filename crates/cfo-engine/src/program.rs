//! Programs: graphs that are fused, planned and bound to a memory.

use crate::backend::{Compiled, Executable};
use crate::error::{EngineError, Result};
use crate::fuse::fuse;
use crate::graph::{Graph, Node};
use crate::memory::Memory;
use crate::plan::Plan;
use crate::shape::{Element, Type};

/// A compiled graph. Running it on the CPU allocates nothing.
#[derive(Debug)]
pub struct Program {
    executable: Box<dyn Executable>,
    memory: u64,
    plan: Plan,
    outputs: Vec<Type>,
    text: String,
}

impl Program {
    /// Compiles a graph's effects and everything that the requested values need.
    ///
    /// # Errors
    /// If a tensor is missing from memory or has another type there, or there is not enough memory for the plan.
    pub fn compile(graph: &Graph, outputs: &[Node], memory: &Memory) -> Result<Self> {
        let types = outputs.iter().map(|&node| graph.value_type(node).clone()).collect();
        let (fused, outputs) = fuse(graph, outputs);
        let text = fused.to_string();
        let Compiled { plan, executable } = memory.backend().compile(fused, outputs, memory)?;
        Ok(Self { executable, memory: memory.identity(), plan, outputs: types, text })
    }

    /// Runs everything once, effects included. On a GPU this may return before the work is done; reading a value waits.
    ///
    /// # Errors
    /// If the memory is not the one for which the program was compiled, or the device fails.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.run_many(memory, 1)
    }

    /// Runs everything `times` times, equivalent to that number of calls of [`Program::run`].
    ///
    /// # Errors
    /// If the memory is not the one for which the program was compiled, or the device fails.
    pub fn run_many(&mut self, memory: &mut Memory, times: usize) -> Result<()> {
        memory.require(self.memory)?;
        self.executable.run(memory, times)
    }

    /// Waits until the device has completed all work.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&self) -> Result<()> {
        self.executable.wait()
    }

    /// Measures the milliseconds of each operation, in the order of execution.
    ///
    /// The CPU times the operations of one run; CUDA times every operation alone and leaves effects out.
    ///
    /// # Errors
    /// If the memory is not the one for which the program was compiled, or the device fails.
    pub fn profile(&mut self, memory: &mut Memory) -> Result<Vec<(String, f32)>> {
        memory.require(self.memory)?;
        self.executable.profile(memory)
    }

    /// Values of a requested output after a run, in the order of [`Program::compile`].
    ///
    /// # Errors
    /// If there is no such output or it holds indices.
    pub fn output(&self, index: usize) -> Result<Vec<f32>> {
        Ok(self.output_f64(index)?.into_iter().map(|value| value as f32).collect())
    }

    /// Values of a requested output after a run, in double precision.
    ///
    /// # Errors
    /// If there is no such output or it holds indices.
    pub fn output_f64(&self, index: usize) -> Result<Vec<f64>> {
        match self.outputs.get(index) {
            Some(Type { element: Element::Real | Element::Double, .. }) => self.executable.output(index),
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

    /// The plan: order of execution and memory layout.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Bytes that the program allocates in addition to the tensors of its memory: the arena and, on a GPU, constants,
    /// rounded weights, tables and the libraries' workspaces. Kernels and the libraries themselves are not counted.
    pub fn bytes(&self) -> usize {
        self.executable.bytes()
    }

    /// The fused graph as text, one operation per line.
    pub fn text(&self) -> &str {
        &self.text
    }
}
