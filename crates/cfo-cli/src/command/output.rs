//! Trajectory files that a command writes: the layout by extension.

use std::path::Path;

use cfo_data::DataError;
use cfo_data::store::OutputLayout;

/// The layout that the extension of a file selects: a NumPy archive for `.npz`, HDF5 for `.h5` and `.hdf5`.
///
/// # Errors
/// If the name has another extension.
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
