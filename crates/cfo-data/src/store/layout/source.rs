//! The interface of layouts: trajectories by index, read in pieces.

use std::path::Path;

use crate::{DataError, Description, Offset, Split};

/// Trajectories in a file. Indices are in range: [`crate::store::TrajectoryFile`] checks them and the results.
pub(crate) trait TrajectorySource: Send + Sync {
    /// Path of the file.
    fn path(&self) -> &Path;

    /// The description of all trajectories.
    fn description(&self) -> &Description;

    /// Number of trajectories.
    fn len(&self) -> usize;

    /// Number of snapshots of a trajectory.
    fn frames(&self, trajectory: usize) -> Result<usize, DataError>;

    /// Times of a trajectory, one for each snapshot.
    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError>;

    /// Snapshots `first..first + count` of a trajectory, `[count, height, width, channels]`.
    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError>;

    /// Snapshots `first..first + count` of a trajectory, in double precision.
    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError>;

    /// The offset of the source's values.
    fn offset(&self) -> Offset {
        Offset::NONE
    }

    /// Warnings about valid content, such as arrays that are not used.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Reads snapshots as [`values`](Self::values) does, into a buffer of their length.
    fn values_into(
        &self,
        trajectory: usize,
        first: usize,
        count: usize,
        out: &mut [f32],
    ) -> Result<(), DataError> {
        out.copy_from_slice(&self.values(trajectory, first, count)?);
        Ok(())
    }

    /// Whether the stored values have more digits than single precision.
    fn is_double(&self) -> bool;

    /// Whether trajectories are cheap to read only in sequential order.
    fn is_sequential(&self) -> bool {
        false
    }

    /// PDE parameters of a trajectory.
    fn parameters(&self, _trajectory: usize) -> Result<Vec<f64>, DataError> {
        Ok(Vec::new())
    }

    /// Part to which a trajectory belongs, if the file contains it.
    fn split(&self, _trajectory: usize) -> Option<Split> {
        None
    }
}
