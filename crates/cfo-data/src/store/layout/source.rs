//! What every layout offers: trajectories by number, read in pieces.

use std::path::Path;

use crate::{DataError, Description, Offset, Split};

/// Trajectories in a file. Numbers are in range: [`crate::store::TrajectoryFile`] checks them, and what it reads.
pub(crate) trait Source: Send + Sync {
    /// Where the trajectories are.
    fn path(&self) -> &Path;

    /// What holds for all of them.
    fn description(&self) -> &Description;

    /// How many there are.
    fn len(&self) -> usize;

    /// Snapshots of one.
    fn frames(&self, trajectory: usize) -> Result<usize, DataError>;

    /// Times of one, as many as snapshots.
    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError>;

    /// Snapshots `first..first + count` of one, `[count, height, width, channels]`.
    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError>;

    /// Snapshots `first..first + count` of one, in double precision.
    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError>;

    /// The offset that the source's values are relative to.
    fn offset(&self) -> Offset {
        Offset::NONE
    }

    /// Warnings about valid content, such as arrays that are not used.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// The same into a buffer, as long as the snapshots.
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

    /// Whether the stored values have more digits than single precision keeps.
    fn is_double(&self) -> bool;

    /// Whether trajectories are cheap to read only one after another, in their order.
    fn is_sequential(&self) -> bool {
        false
    }

    /// PDE parameters of one.
    fn parameters(&self, _trajectory: usize) -> Result<Vec<f64>, DataError> {
        Ok(Vec::new())
    }

    /// What one is used for, if the file says so.
    fn split(&self, _trajectory: usize) -> Option<Split> {
        None
    }
}
