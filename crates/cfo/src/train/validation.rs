//! Rollouts of validation trajectories between steps: read once, compiled once.

use cfo_data::{Split, Trajectory};
use cfo_engine::Memory;

use crate::error::{CfoError, Result};
use crate::evaluate::{batch_size, evaluate_on};
use crate::model::Model;
use crate::rollout::{Rollout, Solver};
use crate::trajectories::TrajectorySet;

/// What a training is validated on.
pub(super) struct Validation<'a> {
    model: &'a Model,
    trajectories: Vec<Trajectory>,
    solver: Solver,
    /// Compiled by the first validation.
    rollout: Option<Rollout<'a>>,
}

impl<'a> Validation<'a> {
    /// Reads the trajectories, as many as the recipe says.
    pub(super) fn new(model: &'a Model, set: &TrajectorySet) -> Result<Self> {
        let limit = model.recipe.train.validate_trajectories.unwrap_or(usize::MAX);
        let chosen: Vec<usize> = set.part(Split::Validation).take(limit).map(|(i, _)| i).collect();
        let solver = Solver::from_config(&model.recipe.evaluate)?;
        Ok(Self { model, trajectories: set.read_trajectories(&chosen)?, solver, rollout: None })
    }

    /// Mean relative L2 error; `None` without any trajectory, infinite if one diverges.
    pub(super) fn error(&mut self, memory: &mut Memory) -> Result<Option<f64>> {
        if self.trajectories.is_empty() {
            return Ok(None);
        }
        let mut rollout = match self.rollout.take() {
            Some(rollout) => rollout,
            None => {
                let batch = batch_size(self.model, self.trajectories.len());
                Rollout::new(self.model, memory, batch, self.solver.tableau, super::prefix(self.model))?
            }
        };
        let chosen: Vec<&Trajectory> = self.trajectories.iter().collect();
        let found = evaluate_on(&mut rollout, self.model, memory, &chosen, self.solver.budget);
        self.rollout = Some(rollout);
        match found {
            Ok(report) => Ok(Some(report.relative_l2.mean)),
            Err(CfoError::RolloutDiverged { .. }) => Ok(Some(f64::INFINITY)),
            Err(error) => Err(error),
        }
    }
}
