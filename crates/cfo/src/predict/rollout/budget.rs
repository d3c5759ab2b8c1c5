//! The steps of a batch of trajectories under a budget, and the cost of a step.

use std::sync::Arc;

use super::schedule::Cut;
use super::{Budget, Rollout, RolloutBatch, generate};
use crate::error::Result;
use crate::objective::MotionKind;
use crate::recipe::too_few;

impl Rollout {
    /// Returns how each trajectory of a batch is divided into fixed steps.
    pub(super) fn cuts(&self, budget: Budget, part: &RolloutBatch<'_, '_>) -> Result<Vec<Cut>> {
        let scaling = &self.model.scaling;
        let interval = scaling.interval / scaling.span;
        let cut = match budget {
            _ if self.motion == MotionKind::Step => Cut::PerOutput,
            Budget::Steps(steps) => Cut::Equal(steps.max(1)),
            Budget::OutputsPerStep(count) => {
                let cut = |times: &Arc<[f64]>| Cut::Equal(times.len().div_ceil(count.max(1)).max(1));
                return Ok(part.times.iter().map(cut).collect());
            }
            Budget::EvaluationsPerHorizon(nfe) if self.generator.is_none() => {
                return self.cuts_per_horizon(nfe, part);
            }
            Budget::Evaluations(nfe) | Budget::EvaluationsPerHorizon(nfe) => Cut::Equal(self.steps(nfe)?),
            _ if self.generator.is_some() => Cut::Equal(generate::STEPS),
            Budget::StepAtMost(length) => Cut::AtMost(scaling.step(length, part.latest())),
            Budget::StepsPerInterval(steps) => Cut::Intervals { interval, steps },
            Budget::StepPerOutput | Budget::Adaptive(_) => Cut::About(interval),
        };
        Ok(vec![cut; part.start.len()])
    }

    /// Returns equal steps for each trajectory, with its share of the evaluations of a horizon.
    fn cuts_per_horizon(&self, nfe: usize, part: &RolloutBatch<'_, '_>) -> Result<Vec<Cut>> {
        let cut = |(start, times): (&f64, &Arc<[f64]>)| {
            let way = times.last().map_or(0.0, |last| (last - start).abs());
            Ok(Cut::Equal(self.share(nfe, way)?))
        };
        part.start.iter().zip(&part.times).map(cut).collect()
    }

    /// Returns the number of equal steps over a way in the network's units of time, or `None` if the budget does not set it.
    pub(crate) fn equal_steps(&self, budget: Budget, way: f64) -> Result<Option<usize>> {
        Ok(match budget {
            _ if self.motion == MotionKind::Step => None,
            Budget::Steps(steps) => Some(steps.max(1)),
            Budget::Evaluations(nfe) => Some(self.steps(nfe)?),
            Budget::EvaluationsPerHorizon(nfe) => Some(self.share(nfe, way)?),
            _ => None,
        })
    }

    fn share(&self, nfe: usize, way: f64) -> Result<usize> {
        // Whether any step is affordable does not depend on the trajectory.
        self.steps(nfe)?;
        let least = self.evaluations_per_step() + self.evaluations_once();
        let share = (nfe as f64 * way / self.model.scaling.horizon()).round() as usize;
        self.steps(share.max(least))
    }

    fn steps(&self, evaluations: usize) -> Result<usize> {
        let (each, once) = (self.evaluations_per_step(), self.evaluations_once());
        match evaluations.saturating_sub(once) / each {
            0 => Err(too_few("nfe", evaluations, (each + once, self.tableau.name))),
            steps => Ok(steps),
        }
    }

    fn evaluations_once(&self) -> usize {
        usize::from(self.slope.is_some()) * self.model.motion().evaluations()
    }

    pub(super) fn evaluations_per_step(&self) -> usize {
        let stages = match self.motion {
            MotionKind::Step => 1,
            MotionKind::Velocity | MotionKind::Trajectory { .. } => self.tableau.evaluations_per_step(),
        };
        stages * self.model.motion().evaluations()
    }
}
