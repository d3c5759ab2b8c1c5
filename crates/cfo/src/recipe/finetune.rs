//! The section `[finetune]`: fine-tuning through the solver, after the steps of the objective.

use cfo_numerics::ode::RK4;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ranges::{at_least_one, positive};
use super::{Integration, Recipe, RefineConfig, ThroughSolver, integration};
use crate::error::{CfoError, Result};
use crate::objective::{MotionKind, ObjectiveConfig};

/// Fine-tuning through the solver, after the steps of `[train]`. Training continues from the weights (from their EMA with `train.ema`): the
/// network is integrated over short windows, and the loss compares the result with the snapshots, as for a neural ODE.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FinetuneConfig {
    /// Optimiser steps after those of `train.steps`; 0 for no fine-tuning.
    pub steps: u32,
    /// Windows per step. Default: `train.batch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<usize>,
    /// Highest learning rate; `train.schedule` is applied over the steps of fine-tuning. Default: a tenth of `train.learning_rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learning_rate: Option<f64>,
    /// Number of intervals between snapshots in a window, which starts from a true snapshot.
    pub window: usize,
    /// Solver; `auto` is `rk4`. Use enough steps to resolve the solution, or the network learns to compensate the solver's error.
    #[schemars(schema_with = "integration::schema")]
    pub solver: Integration,
    /// Whether gradients go back through the whole window. Otherwise they stop at the start of each interval.
    pub through_time: bool,
}

impl Default for FinetuneConfig {
    fn default() -> Self {
        Self {
            steps: 0,
            batch: None,
            learning_rate: None,
            window: 4,
            solver: Integration { steps: 2, ..Integration::default() },
            through_time: true,
        }
    }
}

impl FinetuneConfig {
    /// Returns how the network is integrated.
    fn through(&self) -> ThroughSolver {
        let Self { window, solver, through_time, .. } = *self;
        let solver = Integration { method: solver.method.or(Some(RK4)), ..solver };
        ThroughSolver { window, solver, through_time }
    }

    pub(super) fn check(&self, recipe: &Recipe) -> Result<()> {
        if self.steps == 0 {
            return Ok(());
        }
        let invalid = |key: &str, problem: &str| Err(CfoError::invalid(format!("finetune.{key}"), problem));
        if recipe.objective.predicts() != MotionKind::Velocity {
            let name = recipe.objective.name();
            return invalid("steps", &format!("`{name}` learns no velocity that a solver could integrate"));
        }
        if recipe.train.patience > 0 {
            return invalid("steps", "it starts after all of `train.steps`: set `train.patience = 0`");
        }
        if recipe.train.steps.checked_add(self.steps).is_none() {
            return invalid("steps", "there are more steps than can be counted");
        }
        self.batch.map_or(Ok(()), |batch| at_least_one("finetune.batch", batch))?;
        self.learning_rate.map_or(Ok(()), |rate| positive("finetune.learning_rate", rate))?;
        self.through().check("finetune", recipe.train.precision)
    }
}

impl Recipe {
    /// Returns the number of steps, including those of fine-tuning.
    pub fn total_steps(&self) -> u32 {
        self.train.steps.saturating_add(self.finetune.steps)
    }

    /// Returns the solver through which the network is fine-tuned or trained, if there is one.
    pub(crate) fn trained_through(&self) -> Option<ThroughSolver> {
        match self.objective {
            _ if self.finetune.steps > 0 => Some(self.finetune.through()),
            ObjectiveConfig::NeuralOde(through) => Some(through),
            _ => None,
        }
    }

    pub(crate) fn tuning(&self) -> Self {
        let mut recipe = self.clone();
        let FinetuneConfig { steps, batch, learning_rate, .. } = self.finetune;
        recipe.objective = ObjectiveConfig::NeuralOde(self.finetune.through());
        recipe.refine = RefineConfig::default();
        recipe.train.steps = steps;
        recipe.train.batch = batch.unwrap_or(self.train.batch);
        recipe.train.learning_rate = learning_rate.unwrap_or(self.train.learning_rate / 10.0);
        recipe
    }
}
