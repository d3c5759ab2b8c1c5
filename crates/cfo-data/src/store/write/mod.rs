//! Writing trajectories one by one into a file that appears whole or not at all.

mod hdf5;
mod npz;
mod pdebench;
mod table;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use tempfile::TempPath;

use crate::trajectory::first_not_finite;
use crate::{DataError, Description, Place, Split, Trajectory};
use npz::NpzOutput;
use pdebench::PdebenchOutput;
use table::TableOutput;

/// How a written file arranges its trajectories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputLayout {
    /// Our HDF5 layout.
    #[default]
    Cfo,
    /// A NumPy archive with arrays of the same names.
    Npz,
    /// What PDEBench's own loaders read: groups for two space axes, `tensor` for one.
    Pdebench,
}

impl fmt::Display for OutputLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cfo => "cfo",
            Self::Npz => "npz",
            Self::Pdebench => "pdebench",
        })
    }
}

impl FromStr for OutputLayout {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        let all = [Self::Cfo, Self::Npz, Self::Pdebench];
        all.into_iter().find(|layout| layout.to_string() == text).ok_or_else(|| DataError::Argument {
            what: "the layout",
            found: format!("`{text}`"),
            needed: "`cfo`, `npz` or `pdebench`".to_string(),
        })
    }
}

/// Whether and how values are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Shuffle and gzip at a level from 1 (fast) to 9 (small).
    Gzip(u32),
}

/// How to write a trajectory file.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Arrangement of the file.
    pub layout: OutputLayout,
    /// Replace an existing file.
    pub force: bool,
    /// Compression of the values.
    pub compression: Compression,
    /// Snapshots of the longest trajectory, when known. Without it the layout `cfo` grows as needed, and the others
    /// take the first trajectory's.
    pub frames: Option<usize>,
}

/// Writes trajectories one after the other.
///
/// The file is built under another name beside its target and appears whole with [`TrajectoryWriter::finish`]; a
/// writer that is dropped before leaves nothing. Memory holds one trajectory, whatever their number.
///
/// ```
/// use cfo_data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
/// use cfo_data::{Description, FieldShape, Split, Trajectory};
///
/// # let directory = tempfile::tempdir().unwrap();
/// # let path = directory.path().join("decay.h5");
/// let description = Description {
///     system: "decay".to_string(),
///     shape: FieldShape::system(1),
///     periodic: vec![],
///     domain: vec![],
///     channel_names: vec!["u".to_string()],
///     channel_units: vec![],
///     parameter_names: vec![],
/// };
/// let mut writer = TrajectoryWriter::create(&path, &description, WriteOptions::default())?;
/// let trajectory = Trajectory::new(vec![0.0, 0.5], vec![1.0, 0.6], vec![])?;
/// writer.push(&trajectory, Some(Split::Train))?;
/// writer.finish()?;
///
/// let file = TrajectoryFile::open(&path)?;
/// assert_eq!(file.trajectory(0)?, trajectory);
/// # Ok::<(), cfo_data::DataError>(())
/// ```
pub struct TrajectoryWriter {
    target: PathBuf,
    force: bool,
    description: Description,
    frames: Option<usize>,
    count: usize,
    has_splits: Option<bool>,
    /// Set by a failed write: the file cannot be completed any more.
    failed: bool,
    /// Declared before `temporary`, which must outlive it.
    output: Option<Box<dyn Output>>,
    temporary: Option<TempPath>,
}

/// A file of one layout that is being written.
pub(crate) trait Output: Send {
    /// Add a trajectory that fits the description.
    fn push(&mut self, trajectory: &Trajectory, split: Option<Split>) -> Result<(), DataError>;

    /// Complete the file.
    fn finish(self: Box<Self>) -> Result<(), DataError>;

    /// Give the file up without a word.
    fn abandon(self: Box<Self>);
}

impl TrajectoryWriter {
    /// Start a file for trajectories that fit `description`.
    pub fn create(
        path: impl AsRef<Path>,
        description: &Description,
        options: WriteOptions,
    ) -> Result<Self, DataError> {
        let target = resolve(path.as_ref(), options.force)?;
        check_description(&target, description)?;
        let failed = |error| DataError::writing(&target, error);
        let temporary = temporary_beside(&target).map_err(failed)?;
        let output: Box<dyn Output> = match options.layout {
            OutputLayout::Cfo => Box::new(TableOutput::create(&temporary, &target, description, &options)?),
            OutputLayout::Npz => Box::new(NpzOutput::create(&temporary, &target, description, &options)?),
            OutputLayout::Pdebench => {
                Box::new(PdebenchOutput::create(&temporary, &target, description, &options)?)
            }
        };
        Ok(Self {
            target,
            force: options.force,
            description: description.clone(),
            frames: options.frames,
            count: 0,
            has_splits: None,
            failed: false,
            output: Some(output),
            temporary: Some(temporary),
        })
    }

    /// Trajectories written so far.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no trajectory was written yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Add a trajectory with finite values; all trajectories have a part or none has.
    pub fn push(&mut self, trajectory: &Trajectory, split: Option<Split>) -> Result<(), DataError> {
        self.check(trajectory, split)?;
        let output = self.output.as_mut().expect("the output lives until `finish`");
        let pushed = output.push(trajectory, split);
        self.failed |= pushed.is_err();
        pushed?;
        self.has_splits = Some(split.is_some());
        self.count += 1;
        Ok(())
    }

    /// Complete the file, make it durable and let it appear under its name.
    pub fn finish(mut self) -> Result<(), DataError> {
        if self.failed {
            return Err(self.misfit("a trajectory that could not be written", "all trajectories"));
        }
        if self.count == 0 {
            return Err(self.misfit("no trajectory", "at least one"));
        }
        let (output, temporary) = (self.output.take(), self.temporary.take());
        let (output, temporary) = output.zip(temporary).expect("both live until `finish`");
        output.finish()?;
        let failed = |error| DataError::writing(&self.target, error);
        fs_err::OpenOptions::new()
            .write(true)
            .open(&temporary)
            .and_then(|file| file.sync_all())
            .map_err(failed)?;
        let persisted = match self.force {
            true => temporary.persist(&self.target),
            false => temporary.persist_noclobber(&self.target),
        };
        persisted.map_err(|error| failed(error.error))?;
        // The name is durable once its directory is; some file systems cannot sync directories.
        if let Ok(directory) = fs_err::File::open(directory_of(&self.target)) {
            let _ = directory.sync_all();
        }
        Ok(())
    }

    fn check(&self, trajectory: &Trajectory, split: Option<Split>) -> Result<(), DataError> {
        let place = || Place::trajectory(self.count);
        self.description.check(trajectory).map_err(|source| DataError::Misfit {
            path: self.target.clone(),
            place: Box::new(place()),
            source,
        })?;
        let frames = trajectory.times.len();
        if let Some(most) = self.frames.filter(|&most| frames > most) {
            return Err(self.misfit(&format!("{frames} frames"), &format!("at most {most}, as announced")));
        }
        if self.has_splits.is_some_and(|has_splits| has_splits != split.is_some()) {
            return Err(self.misfit("a part for some trajectories", "a part for all of them or for none"));
        }
        match first_not_finite(&trajectory.values) {
            None => Ok(()),
            Some(position) => Err(DataError::NotFinite {
                path: self.target.clone(),
                place: Box::new(self.description.shape.place(position).in_trajectory(self.count)),
                value: trajectory.values[position],
            }),
        }
    }

    fn misfit(&self, found: &str, needed: &str) -> DataError {
        DataError::Unfit {
            path: self.target.clone(),
            place: Box::new(Place::trajectory(self.count)),
            found: found.to_string(),
            needed: needed.to_string(),
        }
    }
}

impl Drop for TrajectoryWriter {
    fn drop(&mut self) {
        if let Some(output) = self.output.take() {
            output.abandon();
        }
    }
}

/// The file to write: links followed, and nothing there that may not be replaced.
fn resolve(path: &Path, force: bool) -> Result<PathBuf, DataError> {
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

fn check_description(target: &Path, description: &Description) -> Result<(), DataError> {
    let shape = &description.shape;
    let labels = [&description.channel_names, &description.channel_units];
    let fits = shape.axes <= 2
        && !shape.is_empty()
        && (shape.axes == 2 || shape.height == 1)
        && (shape.axes > 0 || shape.width == 1)
        && description.periodic.len() == shape.axes
        && description.domain.len() == shape.axes
        && labels.iter().all(|names| names.is_empty() || names.len() == shape.channels);
    if fits {
        return Ok(());
    }
    Err(DataError::Unfit {
        path: target.to_owned(),
        place: Box::new(Place::default()),
        found: format!("a description that contradicts itself: {description:?}"),
        needed: "one period flag and domain for each space axis, and a name for each channel or none"
            .to_string(),
    })
}

fn directory_of(target: &Path) -> &Path {
    target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// An empty file in the same directory, hence on the same file system, removed when dropped.
fn temporary_beside(target: &Path) -> std::io::Result<TempPath> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let prefix = format!(".{name}.");
    let mut builder = tempfile::Builder::new();
    builder.prefix(&prefix).suffix(".partial");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(directory_of(target)).map(tempfile::NamedTempFile::into_temp_path)
}
