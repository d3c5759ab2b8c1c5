//! A compiled training step, in one program or through a solver.

use std::fmt;

use cfo_engine::{Memory, Program};

use super::solve::{Counts, SolverStep};
use crate::error::Result;

/// A compiled training step.
pub struct CompiledStep(Kind);

enum Kind {
    /// One program.
    Whole(Box<Program>),
    /// Programs that a solver's course decides on.
    Solved(Box<SolverStep>),
}

impl CompiledStep {
    pub(super) fn solved(step: SolverStep) -> Self {
        Self(Kind::Solved(Box::new(step)))
    }

    /// Runs a step. A GPU may still be working when this returns.
    ///
    /// # Errors
    /// If the device fails, or an adaptive solver takes too many steps.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.run_many(memory, 1)
    }

    /// Runs several steps.
    ///
    /// # Errors
    /// If the device fails, or an adaptive solver takes too many steps.
    pub fn run_many(&mut self, memory: &mut Memory, times: usize) -> Result<()> {
        match &mut self.0 {
            Kind::Whole(program) => Ok(program.run_many(memory, times)?),
            Kind::Solved(step) => (0..times).try_for_each(|_| step.run(memory)),
        }
    }

    /// Waits until the device has finished.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&self) -> Result<()> {
        match &self.0 {
            Kind::Whole(program) => Ok(program.wait()?),
            Kind::Solved(step) => step.wait(),
        }
    }

    /// Returns the loss of the latest step.
    ///
    /// # Errors
    /// If the device fails, or the step was compiled without the loss as an output.
    pub fn loss(&self) -> Result<f64> {
        match &self.0 {
            Kind::Whole(program) => Ok(program.scalar(0)?),
            Kind::Solved(step) => step.loss(),
        }
    }

    /// Returns the solver's counts in the latest step, for training through an adaptive solver.
    pub fn solver_counts(&self) -> Option<Counts> {
        match &self.0 {
            Kind::Whole(_) => None,
            Kind::Solved(step) => Some(step.counts()),
        }
    }

    /// Returns the number of operations.
    pub fn operations(&self) -> usize {
        match &self.0 {
            Kind::Whole(program) => program.plan().len(),
            Kind::Solved(step) => step.operations(),
        }
    }

    /// Returns the bytes of intermediate values, including the stored states of a solver.
    pub fn arena_bytes(&self) -> usize {
        match &self.0 {
            Kind::Whole(program) => program.plan().arena_bytes(),
            Kind::Solved(step) => step.arena_bytes(),
        }
    }

    /// Returns the bytes that it uses besides the tensors in memory.
    pub fn bytes(&self) -> usize {
        match &self.0 {
            Kind::Whole(program) => program.bytes(),
            Kind::Solved(step) => step.bytes(),
        }
    }
}

impl From<Program> for CompiledStep {
    fn from(program: Program) -> Self {
        Self(Kind::Whole(Box::new(program)))
    }
}

impl fmt::Display for CompiledStep {
    /// Its memory plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(program) => program.plan().fmt(f),
            Kind::Solved(step) => step.fmt(f),
        }
    }
}
