//! Errors of trajectory files, with the place of the error in the file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use cfo_numerics::TimeGridError;
use thiserror::Error;

use crate::{Defect, Place, TrajectoryError};

/// An error of a trajectory file.
///
/// [`DataError::is_bad_input`] returns whether the input is at fault, [`DataError::hint`] what to change.
#[derive(Debug, Error)]
pub enum DataError {
    /// There is no such file.
    #[error("`{path}` does not exist", path = path.display())]
    Missing {
        /// The path as given.
        path: PathBuf,
    },
    /// The path names a directory or a device.
    #[error("`{path}` is not a file", path = path.display())]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("`{path}` is empty", path = path.display())]
    Empty {
        /// The path as given.
        path: PathBuf,
    },
    /// The file was changed while it was in use.
    #[error("the values of `{path}` have changed since it was first read", path = path.display())]
    Changed {
        /// The path as given.
        path: PathBuf,
    },
    /// The output exists and may not be replaced.
    #[error("`{path}` already exists", path = path.display())]
    Exists {
        /// The path as given.
        path: PathBuf,
    },
    /// The content has no known layout.
    #[error("`{path}` has no known layout of trajectories: {found}", path = path.display())]
    UnknownLayout {
        /// The path as given.
        path: PathBuf,
        /// Content of the file.
        found: String,
    },
    /// The content contradicts itself or its format.
    #[error("`{path}` is damaged at {place}: {detail}", path = path.display())]
    Damaged {
        /// The path as given.
        path: PathBuf,
        /// Place of the contradiction.
        place: Box<Place>,
        /// Description of the contradiction.
        detail: String,
    },
    /// The numbers of a dataset are in other files.
    #[error(
        "`{path}`: {place} is {article} {kind} dataset: its numbers are in other files, which are not read",
        path = path.display(), place = dataset_of(place), article = if *kind == "external" { "an" } else { "a" }
    )]
    Elsewhere {
        /// The path as given.
        path: PathBuf,
        /// The dataset.
        place: Box<Place>,
        /// `virtual` or `external`.
        kind: &'static str,
    },
    /// Values at scattered points instead of a grid.
    #[error(
        "`{path}` has `coordinates`: its values are at scattered points, which are not supported",
        path = path.display()
    )]
    Scattered {
        /// The path as given.
        path: PathBuf,
    },
    /// A required dataset or attribute is missing.
    #[error("`{path}` has no `{name}`; found {found}", path = path.display(), found = listed(found))]
    Absent {
        /// The path as given.
        path: PathBuf,
        /// The missing dataset, array or attribute.
        name: String,
        /// Names of existing ones.
        found: Vec<String>,
    },
    /// An array holds Python objects or lists of different lengths.
    #[error("`{path}`: {place} holds {found}; needed: one array of real numbers", path = path.display())]
    Ragged {
        /// The path as given.
        path: PathBuf,
        /// Place of the array.
        place: Box<Place>,
        /// Content of the array.
        found: String,
    },
    /// A dataset, attribute or trajectory has another type, shape or value than needed.
    #[error("`{path}`: {place} has {found}; needed: {needed}", path = path.display())]
    Unfit {
        /// The path as given.
        path: PathBuf,
        /// Place of the value.
        place: Box<Place>,
        /// The type, shape or value found.
        found: String,
        /// The type, shape or value needed.
        needed: String,
    },
    /// Times do not increase, or one is not finite.
    #[error("`{path}`: {place}: {source}", path = path.display())]
    Times {
        /// The path as given.
        path: PathBuf,
        /// The trajectory.
        place: Box<Place>,
        /// The error of the times.
        source: TimeGridError,
    },
    /// A trajectory to be written does not fit the file.
    #[error("`{path}`: {place}: {source}", path = path.display())]
    Misfit {
        /// The output as given.
        path: PathBuf,
        /// The trajectory.
        place: Box<Place>,
        /// The mismatch.
        source: TrajectoryError,
    },
    /// Numbers that the caller passed are not a valid trajectory.
    #[error(transparent)]
    Trajectory(#[from] TrajectoryError),
    /// A value is NaN, infinite or beyond single precision.
    #[error("`{path}`: {place} is {}", unusable(*value), path = path.display())]
    NotFinite {
        /// The path as given.
        path: PathBuf,
        /// Place of the value.
        place: Box<Place>,
        /// The value.
        value: f64,
    },
    /// A parameter is NaN or infinite.
    #[error("`{path}`: {place}: column {column} is {value}; parameters must be finite", path = path.display())]
    Parameter {
        /// The path as given.
        path: PathBuf,
        /// Place of the parameter.
        place: Box<Place>,
        /// Index of the parameter.
        column: usize,
        /// The value.
        value: f64,
    },
    /// The index of a trajectory or frame is out of range.
    #[error("`{path}`: {place} does not exist: there are {count}", path = path.display())]
    OutOfRange {
        /// The path as given.
        path: PathBuf,
        /// The requested trajectory or frame.
        place: Box<Place>,
        /// Number of existing ones.
        count: usize,
    },
    /// A valid format that this library does not read or write.
    #[error("`{path}`: {what} is not supported", path = path.display())]
    Unsupported {
        /// The path as given.
        path: PathBuf,
        /// Description of the feature.
        what: String,
    },
    /// The disk is full.
    #[error("the disk is full: `{path}` cannot be written", path = path.display())]
    DiskFull {
        /// The output as given.
        path: PathBuf,
    },
    /// The operating system reported an error while reading or writing.
    #[error("cannot {action} `{path}`", path = path.display())]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The path as given.
        path: PathBuf,
        /// The reported error.
        source: io::Error,
    },
    /// The HDF5 writer failed for another reason than a full disk.
    #[error("cannot write `{path}`: {detail}", path = path.display())]
    Writer {
        /// The output as given.
        path: PathBuf,
        /// The reported error.
        detail: String,
    },
    /// An argument of a function is invalid.
    #[error("{what} is {found}; needed: {needed}")]
    Argument {
        /// Name of the argument.
        what: &'static str,
        /// The value passed.
        found: String,
        /// Accepted values.
        needed: String,
    },
}

impl DataError {
    /// Returns whether the input or usage is at fault (exit code 2) and not the work itself (exit code 1).
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::DiskFull { .. } | Self::Writer { .. } | Self::Changed { .. } => false,
            Self::Io { source, .. } => {
                matches!(
                    source.kind(),
                    ErrorKind::NotFound
                        | ErrorKind::PermissionDenied
                        | ErrorKind::IsADirectory
                        | ErrorKind::NotADirectory
                        | ErrorKind::ReadOnlyFilesystem
                )
            }
            _ => true,
        }
    }

    /// Returns advice on what to change, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Missing { .. } => "check the path",
            Self::NotAFile { path } if path.is_dir() => "give one of the files in that directory",
            Self::NotAFile { .. } => return None,
            Self::Empty { .. } => "the file was probably not finished; write or download it again",
            Self::Changed { .. } => {
                "training has not used the new values: restore the old file and resume, or start a new run with the new file; write new data under another name"
            }
            Self::Exists { .. } => "choose another name, or allow the file to be replaced",
            Self::UnknownLayout { .. } => {
                "trajectory files are HDF5 with `/values` and `/times`, `.npz` with the same arrays, PDEBench or The Well"
            }
            Self::Damaged { .. } => "the file is probably truncated or corrupted; write or download it again",
            Self::Elsewhere { .. } => {
                "copy the numbers into one file, for example with h5py: `new[\"values\"] = old[\"values\"][...]`"
            }
            Self::Scattered { .. } => {
                "interpolate the values to a grid with one or two axes, or store each point as a channel, `[trajectories, frames, channels]`"
            }
            Self::Absent { name, .. } if name.starts_with("control") => {
                "store `controls` ([trajectories, control times, controls]) and `control_times` ([control times] or [trajectories, control times]) together"
            }
            Self::Absent { .. } => {
                "name the arrays `values` ([trajectories, frames, (space...,) channels]) and `times` ([frames] or [trajectories, frames])"
            }
            Self::Ragged { .. } => {
                "pad the trajectories to the length of the longest in one array, and store the length of each in `lengths`, one whole number per trajectory"
            }
            Self::Parameter { .. } => "correct the parameter, or remove the trajectory",
            Self::Trajectory(source) | Self::Misfit { source, .. } => return source.hint(),
            Self::Unfit { .. } | Self::OutOfRange { .. } | Self::Argument { .. } => return None,
            Self::Times { source: TimeGridError::NotIncreasing { value, previous, .. }, .. }
                if value == previous && f64::from(*value as f32) == *value =>
            {
                "store `times` as float64 if float32 has rounded two times to the same number; otherwise remove one of the two snapshots"
            }
            Self::Times { .. } => {
                "sort each trajectory by time and remove repeated frames; if trajectories differ in length, store `lengths`"
            }
            Self::NotFinite { value, .. } if value.is_finite() => {
                "use other units for the channel, in which its values are below 1e38"
            }
            Self::NotFinite { .. } => "shorten or remove the trajectories with such values",
            Self::Unsupported { .. } => "convert the file to the layout `cfo`",
            Self::DiskFull { .. } => "free some space or choose another directory; no partial file remains",
            Self::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                "check the permissions"
            }
            Self::Io { action: "write", source, .. } if source.kind() == ErrorKind::NotFound => {
                "create the directory first"
            }
            Self::Io { .. } | Self::Writer { .. } => return None,
        };
        Some(text.to_string())
    }

    /// Creates an error from a defect of a trajectory in a file.
    pub fn defect(path: &Path, defect: Defect) -> Self {
        let path = path.to_owned();
        match defect {
            Defect::Time { place, previous, time } => {
                let index = place.frame.unwrap_or(0);
                let source = match time.is_finite() {
                    true => TimeGridError::NotIncreasing { index, value: time, previous },
                    false => TimeGridError::NotFinite { index, value: time },
                };
                Self::Times { path, place: Box::new(Place { frame: None, ..place }), source }
            }
            Defect::Value { place, value } => Self::NotFinite { path, place: Box::new(place), value },
            Defect::Parameter { place, column, value } => {
                Self::Parameter { path, place: Box::new(place), column, value }
            }
        }
    }

    /// Creates the error that something has another type, shape or value than needed.
    pub(crate) fn unfit(
        path: &Path,
        place: Place,
        found: impl Into<String>,
        needed: impl Into<String>,
    ) -> Self {
        let (place, found, needed) = (Box::new(place), found.into(), needed.into());
        Self::Unfit { path: path.to_owned(), place, found, needed }
    }

    /// Creates the error that a file contradicts itself or its format.
    pub(crate) fn damaged(path: &Path, place: Place, detail: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), place: Box::new(place), detail: detail.into() }
    }

    pub(crate) fn unsupported(path: &Path, what: impl Into<String>) -> Self {
        Self::Unsupported { path: path.to_owned(), what: what.into() }
    }

    pub(crate) fn argument(what: &'static str, found: impl Into<String>, needed: impl Into<String>) -> Self {
        Self::Argument { what, found: found.into(), needed: needed.into() }
    }

    pub(crate) fn reading(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            ErrorKind::NotFound => Self::Missing { path: path.to_owned() },
            ErrorKind::UnexpectedEof => Self::damaged(path, Place::default(), "the file ends too early"),
            // All arguments of a reader's system calls (offsets and lengths) come from the file.
            ErrorKind::InvalidInput | ErrorKind::InvalidData => {
                Self::damaged(path, Place::default(), format!("a part of it cannot be read ({source})"))
            }
            _ => Self::Io { action: "read", path: path.to_owned(), source },
        }
    }

    pub(crate) fn writing(path: &Path, source: io::Error) -> Self {
        match source.kind() {
            // A limit on file sizes and an exceeded quota are treated like a full disk.
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::DiskFull { path: path.to_owned() }
            }
            ErrorKind::AlreadyExists => Self::Exists { path: path.to_owned() },
            _ => Self::Io { action: "write", path: path.to_owned(), source },
        }
    }
}

/// Names a dataset in a message. For the root group the name is unknown.
fn dataset_of(place: &Place) -> String {
    match place.dataset.as_deref() {
        None | Some("/") => "one of its datasets".to_string(),
        Some(name) => format!("`{name}`"),
    }
}

fn unusable(value: f64) -> String {
    match value.is_finite() {
        true => format!(
            "{value:e}; after subtraction of the channel's mean, values must be in the range of float32, up to 3.4e38"
        ),
        false => format!("{value}; values must be finite"),
    }
}

pub(crate) fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    let shown: Vec<String> = names.iter().take(MOST).map(|name| format!("`{name}`")).collect();
    match names.len() {
        0 => "nothing".into(),
        1..=MOST => shown.join(", "),
        more => format!("{} and {} more", shown.join(", "), more - MOST),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_from_the_outside_in() {
        let place = Place {
            dataset: Some("values".into()),
            trajectory: Some(17),
            frame: Some(3),
            point: Some(vec![0, 5]),
            channel: Some(1),
        };
        assert_eq!(place.to_string(), "`values`, trajectory 17, frame 3, point (0, 5), channel 1");
        assert_eq!(Place::default().to_string(), "the file");
    }

    #[test]
    fn a_full_disk_is_not_the_users_fault() {
        let full = DataError::writing(Path::new("a.h5"), ErrorKind::StorageFull.into());
        assert!(matches!(full, DataError::DiskFull { .. }));
        assert!(!full.is_bad_input());
        let missing = DataError::reading(Path::new("a.h5"), ErrorKind::NotFound.into());
        assert!(missing.is_bad_input());
        assert_eq!(missing.to_string(), "`a.h5` does not exist");
        assert!(missing.hint().is_some());
    }
}
