//! What a budget of evaluations means for a way: how it is cut into steps, and what a step costs.

use super::schedule::Cut;
use super::solver::invalid;
use super::{Budget, Request, Rollout, generate};
use crate::error::Result;
use crate::objective::Motion;

impl Rollout {
    /// A budget for the horizon of the training data as one for the way of a request.
    pub(super) fn share(&self, request: &Request, budget: Budget) -> Budget {
        let Budget::EvaluationsPerHorizon(nfe) = budget else { return budget };
        if self.generator.is_some() {
            return Budget::Evaluations(nfe);
        }
        let scaling = &self.model.scaling;
        let ways = request.start.iter().zip(&request.times);
        let longest =
            ways.filter_map(|(start, times)| Some(scaling.way(*start, *times.last()?))).fold(0.0, f64::max);
        let share = (nfe as f64 * longest).round() as usize;
        Budget::Evaluations(share.max(self.tableau.stages()))
    }

    /// How the way to times of which the latest is this one, in the network's units, is cut into fixed steps.
    pub(super) fn cut(&self, budget: Budget, latest: f64) -> Result<Cut> {
        let scaling = &self.model.scaling;
        Ok(match budget {
            _ if self.motion == Motion::Step => Cut::PerOutput,
            Budget::StepPerOutput | Budget::Adaptive(_) | Budget::StepAtMost(_)
                if self.generator.is_some() =>
            {
                Cut::Equal(generate::STEPS)
            }
            Budget::StepPerOutput | Budget::Adaptive(_) => match scaling.interval / scaling.span {
                interval if interval > 0.0 => Cut::About(interval),
                // Runs of earlier versions do not know it.
                _ => Cut::PerOutput,
            },
            Budget::StepAtMost(length) => Cut::AtMost(scaling.step(length, latest)),
            Budget::Evaluations(nfe) | Budget::EvaluationsPerHorizon(nfe) => {
                let once = usize::from(self.slope.is_some()) * self.model.objective().evaluations();
                match nfe.saturating_sub(once) / self.evaluations_per_step() {
                    0 => {
                        let (needed, name) = (self.evaluations_per_step() + once, self.tableau.name);
                        let problem =
                            format!("a budget of {nfe} allows no step of `{name}`, which takes {needed}");
                        return Err(invalid("nfe", problem));
                    }
                    steps => Cut::Equal(steps),
                }
            }
        })
    }

    /// Evaluations of one more step.
    pub(super) fn evaluations_per_step(&self) -> usize {
        let stages = match self.motion {
            Motion::Step => 1,
            Motion::Velocity | Motion::Trajectory { .. } => self.tableau.evaluations_per_step(),
        };
        stages * self.model.objective().evaluations()
    }
}
