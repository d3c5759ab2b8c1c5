//! A program: a graph fused, planned and bound to a memory, ready to run.

use crate::cpu;
use crate::error::{EngineError, Result};
use crate::fuse::fuse;
use crate::graph::{Graph, Node};
use crate::memory::Memory;
use crate::plan::Plan;
use crate::shape::{Element, Type};

/// A compiled graph. Running it allocates nothing.
#[derive(Debug)]
pub struct Program {
    executor: cpu::Executor,
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
        let plan = Plan::new(&fused, &outputs, &cpu::Sizing { graph: &fused, memory });
        let text = fused.to_string();
        let executor = cpu::Executor::new(fused, &plan, &outputs, memory)?;
        Ok(Self { executor, plan, outputs: types, text })
    }

    /// Runs everything once, effects included.
    ///
    /// # Errors
    /// If the device fails.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.executor.run(memory);
        Ok(())
    }

    /// Waits until the device has done what was asked of it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&self) -> Result<()> {
        Ok(())
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
            Some(Type { element: Element::Real | Element::Double, .. }) => Ok(self.executor.output(index)),
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

    /// The fused graph as text, one operation a line.
    pub fn text(&self) -> &str {
        &self.text
    }
}
