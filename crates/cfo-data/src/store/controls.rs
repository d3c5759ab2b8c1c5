//! Files of controls without trajectories.

use std::path::{Path, PathBuf};

use super::layout;
use crate::{Controls, DataError, Place};

/// The controls in a file: `controls [trajectories, times, controls]` or `[times, controls]` with `control_times`, in HDF5 or `.npz`. The
/// file may also be a whole trajectory file of layout `cfo` or `npz`.
#[derive(Clone, Debug)]
pub struct ControlsFile {
    path: PathBuf,
    names: Vec<String>,
    rows: Vec<Controls>,
}

impl ControlsFile {
    /// Reads a file of controls.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let (names, rows) = layout::controls(path)?;
        Ok(Self { path: path.to_owned(), names, rows })
    }

    /// The names of the controls, numbers if the file has none.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The controls of a trajectory out of `count`. A file with one row has them for all.
    ///
    /// # Errors
    /// If the file has another number of rows.
    pub fn of(&self, trajectory: usize, count: usize) -> Result<&Controls, DataError> {
        match &self.rows[..] {
            [one] => Ok(one),
            rows if rows.len() == count => Ok(&rows[trajectory]),
            rows => Err(DataError::unfit(
                &self.path,
                Place::dataset("controls"),
                format!("{} rows", rows.len()),
                format!("one row for all trajectories, or {count}, one for each"),
            )),
        }
    }
}
