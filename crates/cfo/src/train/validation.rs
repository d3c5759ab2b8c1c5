//! Rollouts of held-out trajectories during a training: compiled once, read once more each time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_engine::Memory;

use crate::error::{CfoError, Result};
use crate::evaluate::{Evaluator, batch};
use crate::model::Model;
use crate::rollout::{Rollout, Solver, Watch};
use crate::trained::{copy_weights, weights_for_rollouts};
use crate::trajectories::Part;

/// Numbers of validation trajectories that are in memory at a time, and as many predicted ones: batches that keep a GPU busy, and little beside
/// the training data where there is none.
fn held(memory: &Memory) -> usize {
    if memory.is_asynchronous() { 1 << 26 } else { 1 << 23 }
}

/// How a training is validated.
pub(super) struct Validation<'a> {
    model: Arc<Model>,
    part: Part<'a>,
    solver: Solver,
    evaluator: Evaluator<'a>,
    compiled: Option<Compiled>,
}

/// The rollout, and the weights in its precision where that is another one than in training.
struct Compiled {
    rollout: Rollout,
    rolled: Option<Memory>,
}

impl<'a> Validation<'a> {
    pub(super) fn new(model: &Arc<Model>, part: Part<'a>, interrupt: Option<&'a AtomicBool>) -> Result<Self> {
        let part = part.take(model.recipe.train.validate_trajectories.unwrap_or(usize::MAX));
        let solver = Solver::from_config(&model.recipe.evaluate)?;
        let watch = interrupt.map_or_else(Watch::default, |flag| Watch::default().with_interrupt(flag));
        let evaluator = Evaluator { held: 0, metrics: false, watch };
        Ok(Self { model: Arc::clone(model), part, solver, evaluator, compiled: None })
    }

    /// Mean relative L2 error of the rollouts; `None` without any or if it is interrupted, infinite if one diverges.
    pub(super) fn error(&mut self, memory: &mut Memory) -> Result<Option<f64>> {
        if self.part.is_empty() {
            return Ok(None);
        }
        let mut compiled = match self.compiled.take() {
            Some(mut compiled) => {
                if let Some(rolled) = &mut compiled.rolled {
                    copy_weights(memory, rolled)?;
                }
                compiled
            }
            None => self.compile(memory)?,
        };
        let memory = compiled.rolled.as_mut().unwrap_or(memory);
        let pair = (&mut compiled.rollout, memory);
        let found = self.evaluator.run(&self.model, pair, self.solver.budget, &self.part);
        self.compiled = Some(compiled);
        match found {
            Ok(report) if report.diverged.is_empty() => Ok(Some(report.relative_l2.mean)),
            Ok(_) => Ok(Some(f64::INFINITY)),
            Err(CfoError::RolloutInterrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn compile(&mut self, memory: &mut Memory) -> Result<Compiled> {
        self.evaluator.held = held(memory);
        let mut rolled = weights_for_rollouts(&self.model, memory)?;
        let memory = rolled.as_mut().unwrap_or(memory);
        let portion = self.evaluator.portion(&self.model, &self.part);
        let count = batch(&self.model, memory, self.part.own().len().min(portion));
        let prefix = self.model.weight_prefix();
        let rollout = Rollout::new(&self.model, memory, count, self.solver.tableau, prefix)?;
        Ok(Compiled { rollout, rolled })
    }
}
