//! Target path of a file that is being written under a temporary name beside it.

use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::{DataError, Description, Place};

/// Syncs a file to disk and renames it to its target.
pub(super) fn appear(temporary: TempPath, target: &Path, force: bool) -> Result<(), DataError> {
    let failed = |error| DataError::writing(target, error);
    fs_err::OpenOptions::new()
        .write(true)
        .open(&temporary)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    let persisted = match force {
        true => temporary.persist(target),
        false => temporary.persist_noclobber(target),
    };
    persisted.map_err(|error| failed(error.error))?;
    // The name is durable once its directory is synced; some file systems cannot sync directories.
    if let Ok(directory) = fs_err::File::open(directory_of(target)) {
        let _ = directory.sync_all();
    }
    Ok(())
}

/// The path to write, with links followed. An error if it exists and must not be replaced.
pub(super) fn resolve(path: &Path, force: bool) -> Result<PathBuf, DataError> {
    if path.file_name().is_none() {
        return Err(DataError::NotAFile { path: path.to_owned() });
    }
    let Ok(existing) = fs_err::metadata(path) else {
        return Ok(path.to_owned());
    };
    if !existing.is_file() {
        return Err(DataError::NotAFile { path: path.to_owned() });
    }
    if !force {
        return Err(DataError::Exists { path: path.to_owned() });
    }
    fs_err::canonicalize(path).map_err(|error| DataError::writing(path, error))
}

pub(super) fn check_description(target: &Path, description: &Description) -> Result<(), DataError> {
    let shape = &description.shape;
    let labels = [&description.channel_names, &description.channel_units];
    let fits = !shape.is_empty()
        && description.periodic.len() == shape.axes()
        && description.domain.len() == shape.axes()
        && labels.iter().all(|names| names.is_empty() || names.len() == shape.channels);
    if fits {
        return Ok(());
    }
    let found = format!("a description that contradicts itself: {description:?}");
    let needed = "one period flag and domain for each space axis, and a name for each channel or none";
    Err(DataError::unfit(target, Place::default(), found, needed))
}

fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates an empty file in the same directory, hence on the same file system; it is removed when dropped.
pub(super) fn temporary_beside(target: &Path) -> std::io::Result<TempPath> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".partial");
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(directory_of(target)).map(tempfile::NamedTempFile::into_temp_path)
}
