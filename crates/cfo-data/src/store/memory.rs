//! Trajectories in memory with the interface of a file.

use std::sync::Arc;

use super::layout::{Contents, TrajectorySource};
use crate::{DataError, Description, Offset, Split, Trajectory, TrajectoryInputs};

/// Trajectories in memory, with their values.
pub trait Held: Send + Sync {
    /// The description of all trajectories.
    fn description(&self) -> &Description;

    /// All trajectories; each fits the description.
    fn trajectories(&self) -> &[Trajectory];

    /// The offset of the values.
    fn offset(&self) -> &Offset {
        static NONE: Offset = Offset::NONE;
        &NONE
    }

    /// Part to which a trajectory belongs, if known.
    fn split(&self, trajectory: usize) -> Option<Split>;
}

/// Trajectories in memory as a source.
pub(super) struct MemorySource {
    contents: Contents,
    held: Arc<dyn Held>,
}

impl MemorySource {
    pub(super) fn new(held: Arc<dyn Held>) -> Self {
        let contents = Contents::new("memory", held.description().clone(), held.trajectories().len(), false);
        Self { contents: Contents { offset: held.offset().clone(), ..contents }, held }
    }
}

impl TrajectorySource for MemorySource {
    fn contents(&self) -> &Contents {
        &self.contents
    }

    fn frames(&self, trajectory: usize) -> Result<usize, DataError> {
        Ok(self.held.trajectories()[trajectory].times.len())
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        Ok(self.held.trajectories()[trajectory].times.to_vec())
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        let size = self.contents.description.shape.len();
        Ok(self.held.trajectories()[trajectory].values[first * size..(first + count) * size].to_vec())
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        Ok(self.values(trajectory, first, count)?.into_iter().map(f64::from).collect())
    }

    fn inputs(&self, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        Ok(self.held.trajectories()[trajectory].inputs.clone())
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        self.held.split(trajectory)
    }
}
