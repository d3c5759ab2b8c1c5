//! Trajectories in memory with the interface of a file.

use std::path::Path;
use std::sync::Arc;

use super::layout::TrajectorySource;
use crate::{DataError, Description, Offset, Split, Trajectory};

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
pub(super) struct MemorySource(pub(super) Arc<dyn Held>);

impl TrajectorySource for MemorySource {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn description(&self) -> &Description {
        self.0.description()
    }

    fn len(&self) -> usize {
        self.0.trajectories().len()
    }

    fn frames(&self, trajectory: usize) -> Result<usize, DataError> {
        Ok(self.0.trajectories()[trajectory].times.len())
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        Ok(self.0.trajectories()[trajectory].times.to_vec())
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        let size = self.description().shape.len();
        Ok(self.0.trajectories()[trajectory].values[first * size..(first + count) * size].to_vec())
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        Ok(self.values(trajectory, first, count)?.into_iter().map(f64::from).collect())
    }

    fn offset(&self) -> Offset {
        self.0.offset().clone()
    }

    fn is_double(&self) -> bool {
        false
    }

    fn parameters(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        Ok(self.0.trajectories()[trajectory].parameters.clone())
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        self.0.split(trajectory)
    }
}
