//! A compiled training step, in one program or through a solver.

use std::fmt;

use cfo_engine::{Memory, Program};

use super::solve::{Counts, SolverStep};
use crate::error::Result;

/// A compiled training step.
pub struct CompiledStep(pub(super) Kind);

pub(super) enum Kind {
    Whole(Box<Program>),
    /// Several programs, which run as the solver's steps require.
    Solved(Box<SolverStep>),
}

impl CompiledStep {
    /// Returns all programs. The last one computes the loss and changes the weights.
    fn programs(&self) -> Vec<&Program> {
        match &self.0 {
            Kind::Whole(program) => vec![program],
            Kind::Solved(step) => step.programs().to_vec(),
        }
    }

    /// Returns the program that changes the weights.
    fn last(&self) -> &Program {
        match &self.0 {
            Kind::Whole(program) => program,
            Kind::Solved(step) => step.last(),
        }
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
        Ok(self.last().wait()?)
    }

    /// Returns the loss of the latest step.
    ///
    /// # Errors
    /// If the device fails, or the step was compiled without the loss as an output.
    pub fn loss(&self) -> Result<f64> {
        Ok(self.last().scalar(0)?)
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
        self.programs().iter().map(|program| program.plan().len()).sum()
    }

    /// Returns the bytes of intermediate values, including the stored states of a solver.
    pub fn arena_bytes(&self) -> usize {
        let states = match &self.0 {
            Kind::Whole(_) => 0,
            Kind::Solved(step) => step.kept_bytes(),
        };
        states + self.programs().iter().map(|program| program.plan().arena_bytes()).sum::<usize>()
    }

    /// Returns the bytes that it uses besides the tensors in memory.
    pub fn bytes(&self) -> usize {
        self.programs().into_iter().map(Program::bytes).sum()
    }
}

impl From<Program> for CompiledStep {
    fn from(program: Program) -> Self {
        Self(Kind::Whole(Box::new(program)))
    }
}

impl fmt::Display for CompiledStep {
    /// Writes the memory plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Whole(program) => program.plan().fmt(f),
            Kind::Solved(step) => write!(f, "{} operations; {step}", self.operations()),
        }
    }
}
