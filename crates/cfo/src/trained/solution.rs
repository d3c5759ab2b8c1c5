//! What a prediction comes to.

use crate::rollout::Prediction;

/// States at the times asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The times, as they were asked for.
    pub times: Vec<f64>,
    /// The states in the user's units, flattened `[trajectories, times, height, width, channels]`.
    pub states: Vec<f32>,
    /// Network evaluations for one trajectory (the most that any took).
    pub evaluations: usize,
    /// Numbers of a state.
    size: usize,
}

impl Solution {
    pub(super) fn new(size: usize, times: &[f64], found: Prediction) -> Self {
        let Prediction { states, evaluations, .. } = found;
        Self { times: times.to_vec(), states: states.concat(), evaluations, size }
    }

    /// State `index` of all: of the first trajectory at its times, then of the next.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn state(&self, index: usize) -> &[f32] {
        &self.states[index * self.size..(index + 1) * self.size]
    }
}
