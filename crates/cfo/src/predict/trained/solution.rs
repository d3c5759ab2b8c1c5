//! The result of a prediction.

use crate::predict::rollout::Prediction;

/// Predicted states at the requested times.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The times, as they were requested.
    pub times: Vec<f64>,
    /// The states in the user's units, flattened `[trajectories, times, points, channels]`.
    pub states: Vec<f32>,
    /// Largest number of network evaluations that a trajectory took.
    pub evaluations: usize,
    size: usize,
}

impl Solution {
    pub(super) fn new(size: usize, times: &[f64], found: Prediction) -> Self {
        let Prediction { states, evaluations, .. } = found;
        Self { times: times.to_vec(), states: states.concat(), evaluations, size }
    }

    /// Returns state `index`, counted over the times of the first trajectory, then of the next.
    ///
    /// # Panics
    /// If `index` is out of range.
    pub fn state(&self, index: usize) -> &[f32] {
        &self.states[index * self.size..(index + 1) * self.size]
    }
}
