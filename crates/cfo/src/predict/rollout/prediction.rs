//! Requests for predictions, and their results.

use cfo_data::TrajectoryInputs;
use serde::{Deserialize, Serialize};

use super::Excursion;
use crate::error::{CfoError, Halt, Result};

/// The result of a [`Request`]: states at the requested times.
#[derive(Clone, Debug, Default)]
pub struct Prediction {
    /// Snapshots of each trajectory, flattened `[times, points, channels]`, in the user's units and relative to the model's offset
    /// (see [`Scaling::absolute`](crate::measure::scaling::Scaling::absolute)). A trajectory that diverged has the snapshots before that.
    pub states: Vec<Vec<f32>>,
    /// Times of each trajectory's snapshots.
    pub times: Vec<Vec<f64>>,
    /// Largest number of network evaluations that a trajectory took.
    pub evaluations: usize,
    /// The trajectories that diverged, in their order.
    pub diverged: Vec<RolloutDivergence>,
    /// The trajectories far outside the range of the training data, in their order.
    pub excursions: Vec<Excursion>,
}

/// A trajectory that ended before the last requested time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RolloutDivergence {
    /// Its index in the request.
    pub trajectory: usize,
    /// The last time that was reached, in the user's units.
    pub time: f64,
    /// Why it ended.
    pub halt: Halt,
}

impl RolloutDivergence {
    /// Returns the divergence with the trajectory's number elsewhere.
    pub(crate) fn numbered(&self, number: impl Fn(usize) -> usize) -> Self {
        Self { trajectory: number(self.trajectory), ..*self }
    }
}

impl From<RolloutDivergence> for CfoError {
    fn from(RolloutDivergence { trajectory, time, halt }: RolloutDivergence) -> Self {
        Self::RolloutDiverged { trajectory, time, halt }
    }
}

/// A request for a prediction: initial states and the times to predict at.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Initial time of each trajectory, in the user's units.
    pub start: Vec<f64>,
    /// Initial state of each trajectory, in the user's units and relative to the model's offset (see
    /// [`Scaling::relative`](crate::measure::scaling::Scaling::relative)).
    pub states: Vec<Vec<f32>>,
    /// Requested times of each trajectory. [`Trained::predict_each`](crate::Trained::predict_each) takes them in any order, on both sides
    /// of the start. A [`Rollout`](super::Rollout) takes times on one side of the start, in order of their distance.
    pub times: Vec<Vec<f64>>,
    /// PDE parameters and controls of each trajectory. May be empty for a model that takes neither.
    pub inputs: Vec<TrajectoryInputs>,
}

impl Request {
    /// Checks that `start`, `states`, `times` and `inputs` have equal lengths; `inputs` may be empty.
    ///
    /// # Errors
    /// If a number of entries differs.
    pub fn check(&self) -> Result<()> {
        let (count, inputs) = (self.start.len(), self.inputs.len());
        let parts = [("states", self.states.len(), true), ("times", self.times.len(), true)];
        let others = ("inputs", inputs, inputs > 0);
        match parts.into_iter().chain([others]).find(|&(_, found, needed)| needed && found != count) {
            None => Ok(()),
            Some((what, found, _)) => Err(CfoError::bad_data(
                format!("a request has `{what}` for {found} trajectories and `start` for {count}"),
                "give `start`, `states` and `times` one entry per trajectory, and `inputs` too if the model has PDE parameters or controls",
            )),
        }
    }
}
