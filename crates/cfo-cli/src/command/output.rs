//! Files that a command writes, and the trajectories that it takes.

use std::path::Path;

use anyhow::{Result, bail};
use cfo::CfoError;
use cfo_data::DataError;
use cfo_data::store::OutputLayout;
use serde::Serialize;

/// Numbers of frames of the shortest and the longest trajectory.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct FrameCounts {
    pub min: usize,
    pub max: usize,
}

/// The layout that the extension of a file selects: a NumPy archive for `.npz`, HDF5 for `.h5` and `.hdf5`.
pub(super) fn layout_of(path: &Path) -> Result<OutputLayout, DataError> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    match extension.as_deref() {
        Some("npz") => Ok(OutputLayout::Npz),
        Some("h5" | "hdf5" | "hdf" | "he5") => Ok(OutputLayout::Cfo),
        _ => Err(DataError::Argument {
            what: "the name of the output file",
            found: format!("`{}`", path.display()),
            needed: "a name that ends with `.h5`, `.hdf5` or `.npz`".to_owned(),
        }),
    }
}

pub(super) fn refuse_existing(path: &Path, force: bool) -> Result<()> {
    if path.exists() && !force {
        bail!(CfoError::bad_data(
            format!("`{}` already exists", path.display()),
            "choose another name, or replace the file with `--force`"
        ));
    }
    Ok(())
}

pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    matches!((fs_err::canonicalize(a), fs_err::canonicalize(b)), (Ok(a), Ok(b)) if a == b)
}

/// Refuses values of `--trajectory` beyond the trajectories of a file.
pub(super) fn check_trajectories(asked: &[usize], count: usize) -> Result<()> {
    if let Some(beyond) = asked.iter().find(|&&index| index >= count) {
        bail!(CfoError::invalid(
            "--trajectory",
            format!("there is no trajectory {beyond}; the file has 0 to {}", count - 1)
        ));
    }
    Ok(())
}
