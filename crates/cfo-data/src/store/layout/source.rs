//! The interface of layouts: trajectories by index, read in pieces.

use std::path::PathBuf;

use crate::{DataError, Description, Offset, Split, TrajectoryInputs};

/// What is known of a file before its snapshots are read.
pub(crate) struct Contents {
    pub path: PathBuf,
    /// The description of all trajectories.
    pub description: Description,
    /// Number of trajectories.
    pub count: usize,
    /// The offset of the values.
    pub offset: Offset,
    /// Warnings about valid content, such as arrays that are not used.
    pub warnings: Vec<String>,
    /// Whether the stored values have more digits than single precision.
    pub is_double: bool,
    /// Whether trajectories are cheap to read only in sequential order.
    pub is_sequential: bool,
}

impl Contents {
    /// Creates the contents of a file without offset and warnings, in which all trajectories are cheap to read.
    pub fn new(path: impl Into<PathBuf>, description: Description, count: usize, is_double: bool) -> Self {
        let (path, offset, warnings) = (path.into(), Offset::NONE, Vec::new());
        Self { path, description, count, offset, warnings, is_double, is_sequential: false }
    }
}

/// Trajectories in a file. Indices are in range: [`crate::store::TrajectoryFile`] checks them and the results.
pub(crate) trait TrajectorySource: Send + Sync {
    /// What is known of the file.
    fn contents(&self) -> &Contents;

    /// Number of snapshots of a trajectory.
    fn frames(&self, trajectory: usize) -> Result<usize, DataError>;

    /// Times of a trajectory, one for each snapshot.
    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError>;

    /// Snapshots `first..first + count` of a trajectory, `[count, points, channels]`.
    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError>;

    /// Snapshots `first..first + count` of a trajectory, in double precision.
    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError>;

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

    /// Inputs of a trajectory beside its state.
    fn inputs(&self, _trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        Ok(TrajectoryInputs::default())
    }

    /// Part to which a trajectory belongs, if the file contains it.
    fn split(&self, _trajectory: usize) -> Option<Split> {
        None
    }
}
