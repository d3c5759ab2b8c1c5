//! What is asked of a rollout and what comes out.

use std::fmt;

use super::Excursion;
use crate::error::{CfoError, Result};

/// States at the times asked for.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// For each trajectory its snapshots, flattened `[times, height, width, channels]`, in the user's units and relative to the model's offset
    /// (see [`Scaling::absolute`](crate::scaling::Scaling::absolute)); of one that diverged those before.
    pub states: Vec<Vec<f32>>,
    /// For each trajectory the times of these.
    pub times: Vec<Vec<f64>>,
    /// Network evaluations for one trajectory (the most that any took).
    pub evaluations: usize,
    /// The trajectories that did not arrive, in their order.
    pub diverged: Vec<Divergence>,
    /// The trajectories that went far out of the range of the training data, in their order.
    pub excursions: Vec<Excursion>,
}

/// A trajectory that did not arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Divergence {
    /// Its place in the request.
    pub trajectory: usize,
    /// The last time that was reached, in the user's units.
    pub time: f64,
    /// Why it went no further.
    pub halt: Halt,
}

/// Why an integration ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The state or its velocity is no longer a finite number.
    NotFinite,
    /// The tolerances ask for steps below the resolution of time.
    StepTooSmall,
    /// More steps were attempted than allowed.
    TooManySteps,
}

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotFinite => "became infinite or undefined",
            Self::StepTooSmall => "needs steps too small to matter",
            Self::TooManySteps => "took too many steps",
        })
    }
}

impl From<Divergence> for CfoError {
    fn from(Divergence { trajectory, time, halt }: Divergence) -> Self {
        Self::RolloutDiverged { trajectory, time, halt }
    }
}

/// Where a batch of trajectories starts and where it is wanted.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// For each trajectory the time at which it starts, in the user's units.
    pub start: Vec<f64>,
    /// For each trajectory the state there, in the user's units and relative to the model's offset (see
    /// [`Scaling::relative`](crate::scaling::Scaling::relative)).
    pub states: Vec<Vec<f32>>,
    /// For each trajectory the times asked for. [`Trained::predict_each`](crate::Trained::predict_each) takes them in any order, on both sides of the
    /// start; a [`Rollout`](super::Rollout) alone takes times after the start or before it, in order away from it.
    pub times: Vec<Vec<f64>>,
    /// For each trajectory its PDE parameters. May be empty for a model that takes none.
    pub conditions: Vec<Vec<f64>>,
}

impl Request {
    /// Refuses a request that does not have one state, one list of times and, where they are given, one list of parameters for each start.
    ///
    /// # Errors
    /// Then.
    pub fn check(&self) -> Result<()> {
        let (count, conditions) = (self.start.len(), self.conditions.len());
        let parts = [("states", self.states.len(), true), ("times", self.times.len(), true)];
        let parameters = ("conditions", conditions, conditions > 0);
        match parts.into_iter().chain([parameters]).find(|&(_, found, needed)| needed && found != count) {
            None => Ok(()),
            Some((what, found, _)) => Err(CfoError::BadData {
                problem: format!("a request has `{what}` for {found} trajectories and `start` for {count}"),
                hint: "give `start`, `states` and `times` one entry for each trajectory, and `conditions` where the model takes parameters".into(),
            }),
        }
    }
}
