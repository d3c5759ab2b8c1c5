//! Rollouts of validation trajectories during training; they are compiled once.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_engine::Memory;

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::predict::evaluate::{Evaluator, batch};
use crate::predict::rollout::{Rollout, Watch};
use crate::predict::{copy_weights, weights_for_rollouts};
use crate::recipe::{Budget, Recipe, Solver};
use crate::trajectories::Part;

/// Returns the largest number of values of validation trajectories in memory, and of their predictions: enough to keep a GPU busy, and few
/// compared with the training data on a CPU.
fn held(memory: &Memory) -> usize {
    if memory.is_asynchronous() { 1 << 26 } else { 1 << 23 }
}

/// Number of attempted steps that a validation rollout may always make: a constant, and a number per interval. Rollouts of trained
/// networks take less than one per interval.
const ATTEMPTS: [u64; 2] = [500, 4];

/// Cost of a training step for each sample of its batch, in forward passes.
const FORWARD_PASSES: u64 = 3;

/// Returns the solver of a validation. An adaptive rollout ends, and counts as diverged, where a validation would cost more than the
/// training steps between two of them. Networks that are stiff early in training therefore do not delay it.
fn bounded(solver: Solver, recipe: &Recipe, part: &Part<'_>) -> Solver {
    let Budget::Adaptive(mut controller) = solver.budget else { return solver };
    let train = &recipe.train;
    let steps = if train.validate_every > 0 { train.validate_every } else { train.steps };
    let passes = FORWARD_PASSES * u64::from(steps) * train.batch as u64;
    let each = (solver.tableau.evaluations_per_step() * part.len().max(1)) as u64;
    let intervals = part.frames().max().unwrap_or(0) as u64;
    controller.max_steps = (passes / each).max(ATTEMPTS[0] + ATTEMPTS[1] * intervals);
    Solver { budget: Budget::Adaptive(controller), ..solver }
}

pub(super) struct Validation<'a> {
    model: Arc<Model>,
    part: Part<'a>,
    solver: Solver,
    evaluator: Evaluator<'a>,
    compiled: Option<Compiled>,
}

/// The rollout, and the weights in its precision if that differs from the precision of training.
struct Compiled {
    rollout: Rollout,
    rolled: Option<Memory>,
}

impl<'a> Validation<'a> {
    pub(super) fn new(model: &Arc<Model>, part: Part<'a>, interrupt: Option<&'a AtomicBool>) -> Result<Self> {
        let part = part.take(model.recipe.train.validate_trajectories.unwrap_or(usize::MAX));
        let solver = bounded(model.recipe.solver()?, &model.recipe, &part);
        let watch = interrupt.map_or_else(Watch::default, |flag| Watch::default().with_interrupt(flag));
        let evaluator = Evaluator { held: 0, metrics: false, watch };
        Ok(Self { model: Arc::clone(model), part, solver, evaluator, compiled: None })
    }

    /// Drops the compiled rollout, because the weights are in another memory now.
    pub(super) fn forget(&mut self) {
        self.compiled = None;
    }

    /// Returns the mean relative L2 error of the rollouts: `None` if there are none or they are interrupted, infinite if one diverges.
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

#[cfg(test)]
mod tests {
    use cfo_data::simulate::Lorenz;

    use super::*;
    use crate::trajectories::Trajectories;

    #[test]
    fn a_validation_costs_no_more_than_the_training_between_two() {
        let lorenz = Lorenz { frames: 21, horizon: 0.2, ..Lorenz::default() };
        let set = Trajectories::simulate(&lorenz, 40, 0, &false.into()).unwrap();
        let most = |keys: &str| {
            let keys: Vec<String> = keys.split(' ').map(Into::into).collect();
            let recipe = Recipe::parse("", &keys).unwrap();
            let part = set.split(cfo_data::Split::Validation);
            match bounded(recipe.solver().unwrap(), &recipe, &part).budget {
                Budget::Adaptive(controller) => Some(controller.max_steps),
                _ => None,
            }
        };
        // Four trajectories of six evaluations an attempt.
        assert_eq!(most("train.batch=64 train.validate_every=500"), Some(3 * 64 * 500 / (4 * 6)));
        assert_eq!(most("train.batch=1 train.validate_every=1"), Some(500 + 4 * 21));
        assert_eq!(most("evaluate.solver=rk4"), None);
    }
}
