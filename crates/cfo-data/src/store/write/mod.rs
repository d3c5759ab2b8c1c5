//! Writing trajectories one by one into a file that appears complete or not at all.

mod channels;
mod grid;
mod hdf5;
mod layout;
mod netcdf;
mod npz;
mod pdebench;
mod table;
mod target;
mod the_well;
mod vtkhdf;
mod xdmf;

use std::path::{Path, PathBuf};

use cfo_numerics::TimeGrid;
use tempfile::TempPath;

use crate::store::TrajectoryFile;
use crate::trajectory::first_not_finite;
use crate::{DataError, Description, Offset, Place, Split, Trajectory, TrajectoryError, TrajectoryInputs};
use hdf5::Hdf5Output;
pub use layout::OutputLayout;
use netcdf::NetcdfOutput;
use npz::NpzOutput;
use pdebench::PdebenchOutput;
use table::TableOutput;
use target::{appear, check_description, resolve, temporary_beside};
use the_well::TheWellOutput;
use vtkhdf::VtkhdfOutput;
pub use xdmf::describe_as_xdmf;

/// Compression of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Shuffle and gzip with a level from 1 (fast) to 9 (small).
    Gzip(u32),
}

/// Options for writing a trajectory file.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// Layout of the file.
    pub layout: OutputLayout,
    /// Whether to replace an existing file.
    pub force: bool,
    /// Compression of the values.
    pub compression: Compression,
    /// Snapshots of the longest trajectory, if known. Without it the layout `cfo` grows as needed, and the others use
    /// the first trajectory's number.
    pub frames: Option<usize>,
    /// Offset of the values, added before they are written: as float64 in the layouts `cfo` and `npz`, otherwise
    /// rounded to float32.
    pub offset: Offset,
}

impl WriteOptions {
    /// Whether values are written in double precision.
    fn is_double(&self) -> bool {
        !self.offset.is_none() && self.layout.takes_doubles()
    }
}

/// Writes trajectories one by one.
///
/// The file is built under a temporary name beside its target, and [`TrajectoryWriter::finish`] renames it. A writer
/// that is dropped earlier leaves no file. Memory holds one trajectory at a time, or a few snapshots of one with
/// [`TrajectoryWriter::start`] and [`TrajectoryWriter::frames`].
///
/// ```
/// use cfo_data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
/// use cfo_data::{Description, FieldShape, InputNames, Split, Trajectory};
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
///     inputs: InputNames::default(),
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
    offset: Offset,
    count: usize,
    /// Number of snapshots of the trajectory that was started last, and how many of them are written.
    current: (usize, usize),
    has_splits: Option<bool>,
    /// Set by a failed write: the file can no longer be completed.
    failed: bool,
    /// `None` after the end.
    output: Option<Box<dyn LayoutOutput>>,
    /// The file of an HDF5 layout, closed after `output` is dropped.
    file: Option<Hdf5Output>,
    temporary: Option<TempPath>,
    /// The XML file that refers to this one.
    companion: Option<PathBuf>,
}

/// Properties of a trajectory that are known before its snapshots.
pub(crate) struct Head<'a> {
    pub times: &'a [f64],
    pub inputs: &'a TrajectoryInputs,
    pub split: Option<Split>,
}

/// The content of a file of one layout that is being written.
pub(crate) trait LayoutOutput: Send {
    /// Starts a trajectory that fits the description.
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError>;

    /// Writes the next snapshots of the trajectory that was started last.
    fn frames(&mut self, values: &[f32]) -> Result<(), DataError>;

    /// Writes snapshots in double precision. Layouts in single precision round them.
    fn doubles(&mut self, values: &[f64]) -> Result<(), DataError> {
        self.frames(&values.iter().map(|&value| value as f32).collect::<Vec<f32>>())
    }

    /// Writes the parts that are known only at the end.
    fn complete(&mut self) -> Result<(), DataError> {
        Ok(())
    }
}

impl TrajectoryWriter {
    /// Starts a file for trajectories that fit `description`.
    pub fn create(
        path: impl AsRef<Path>,
        description: &Description,
        options: WriteOptions,
    ) -> Result<Self, DataError> {
        let named = resolve(path.as_ref(), options.force)?;
        check_description(&named, description)?;
        let (target, companion) = match options.layout {
            OutputLayout::Xdmf => (resolve(&xdmf::beside(&named)?, options.force)?, Some(named)),
            _ => (named, None),
        };
        let failed = |error| DataError::writing(&target, error);
        let temporary = temporary_beside(&target).map_err(failed)?;
        let (output, file) = output(&temporary, &target, description, &options)?;
        Ok(Self {
            target,
            force: options.force,
            description: description.clone(),
            frames: options.frames,
            offset: options.offset,
            count: 0,
            current: (0, 0),
            has_splits: None,
            failed: false,
            output: Some(output),
            file,
            temporary: Some(temporary),
            companion,
        })
    }

    /// Writes a trajectory with finite values. Either all trajectories have a part, or none has.
    pub fn push(&mut self, trajectory: &Trajectory, split: Option<Split>) -> Result<(), DataError> {
        // Checked before anything is written, so that a rejected trajectory does not change the file.
        self.description.check(trajectory).map_err(|source| self.unsound(source))?;
        self.check_finite(self.count, 0, &trajectory.values)?;
        self.start(&trajectory.times, &trajectory.inputs, split)?;
        self.put(&trajectory.values)
    }

    /// Starts a trajectory whose snapshots follow by [`TrajectoryWriter::frames`], so that memory holds only a few of
    /// them.
    pub fn start(
        &mut self,
        times: &TimeGrid,
        inputs: &TrajectoryInputs,
        split: Option<Split>,
    ) -> Result<(), DataError> {
        self.check_complete()?;
        self.check(times, inputs, split)?;
        let output = self.output.as_mut().expect("the output lives until `finish`");
        let started = output.start(&Head { times, inputs, split });
        self.failed |= started.is_err();
        started?;
        self.has_splits = Some(split.is_some());
        self.current = (times.len(), 0);
        self.count += 1;
        Ok(())
    }

    /// Writes the next snapshots of the trajectory that was started last, `[frames, points, channels]`.
    pub fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        let (total, written) = self.current;
        let size = self.description.shape.len();
        if !values.len().is_multiple_of(size) || values.len() / size > total - written {
            let found = format!("{} values after {written} snapshots", values.len());
            let needed = format!("{size} for each of at most {} more snapshots", total - written);
            return Err(self.misfit(self.count.saturating_sub(1), &found, &needed));
        }
        self.check_finite(self.count.saturating_sub(1), written, values)?;
        self.put(values)
    }

    fn put(&mut self, values: &[f32]) -> Result<(), DataError> {
        let output = self.output.as_mut().expect("the output lives until `finish`");
        let written = match self.offset.is_none() {
            true => output.frames(values),
            false => output.doubles(&self.offset.absolute(values)),
        };
        self.failed |= written.is_err();
        self.current.1 += values.len() / self.description.shape.len();
        written
    }

    /// Completes the file, syncs it to disk and renames it to its target.
    pub fn finish(mut self) -> Result<(), DataError> {
        if self.failed {
            let found = "a trajectory that could not be written";
            return Err(self.misfit(self.count, found, "all trajectories"));
        }
        if self.count == 0 {
            return Err(self.misfit(0, "no trajectory", "at least one"));
        }
        self.check_complete()?;
        self.output.as_mut().expect("the output lives until `finish`").complete()?;
        drop(self.output.take());
        self.file.take().map_or(Ok(()), Hdf5Output::close)?;
        let temporary = self.temporary.take().expect("it lives until `finish`");
        let companion = match &self.companion {
            None => None,
            Some(companion) => {
                let numbers = TrajectoryFile::open(&temporary)?;
                Some((xdmf::write(companion, &self.target, &numbers)?, companion))
            }
        };
        appear(temporary, &self.target, self.force)?;
        let Some((written, companion)) = companion else { return Ok(()) };
        appear(written, companion, self.force).inspect_err(|_| {
            // Nothing refers to the numbers, so they are removed, unless they replaced an existing file.
            if !self.force {
                let _ = fs_err::remove_file(&self.target);
            }
        })
    }

    fn check(
        &self,
        times: &TimeGrid,
        inputs: &TrajectoryInputs,
        split: Option<Split>,
    ) -> Result<(), DataError> {
        self.description.check_inputs(inputs).map_err(|source| self.unsound(source))?;
        let frames = times.len();
        if let Some(most) = self.frames.filter(|&most| frames > most) {
            let needed = format!("at most {most}, as announced");
            return Err(self.misfit(self.count, &format!("{frames} frames"), &needed));
        }
        if self.has_splits.is_some_and(|has_splits| has_splits != split.is_some()) {
            let needed = "a part for all of them or for none";
            return Err(self.misfit(self.count, "a part for some trajectories", needed));
        }
        Ok(())
    }

    fn unsound(&self, source: TrajectoryError) -> DataError {
        let place = Box::new(Place::trajectory(self.count));
        DataError::Misfit { path: self.target.clone(), place, source }
    }

    /// Checks that all values are finite; the first of `values` belongs to snapshot `first`.
    fn check_finite(&self, trajectory: usize, first: usize, values: &[f32]) -> Result<(), DataError> {
        let Some(position) = first_not_finite(values) else { return Ok(()) };
        let mut place = self.description.shape.place(position).in_trajectory(trajectory);
        place.frame = place.frame.map(|frame| frame + first);
        let (path, value) = (self.target.clone(), f64::from(values[position]));
        Err(DataError::NotFinite { path, place: Box::new(place), value })
    }

    fn check_complete(&self) -> Result<(), DataError> {
        match self.current {
            (total, written) if written < total => {
                let found = format!("{written} of {total} snapshots");
                Err(self.misfit(self.count.saturating_sub(1), &found, "all of them"))
            }
            _ => Ok(()),
        }
    }

    fn misfit(&self, trajectory: usize, found: &str, needed: &str) -> DataError {
        DataError::unfit(&self.target, Place::trajectory(trajectory), found, needed)
    }
}

/// Creates the content of the requested layout, and the file of an HDF5 layout.
fn output(
    temporary: &Path,
    target: &Path,
    description: &Description,
    options: &WriteOptions,
) -> Result<(Box<dyn LayoutOutput>, Option<Hdf5Output>), DataError> {
    fn boxed(output: impl LayoutOutput + 'static) -> Box<dyn LayoutOutput> {
        Box::new(output)
    }
    if options.layout == OutputLayout::Npz {
        return Ok((boxed(NpzOutput::create(temporary, target, description, options)?), None));
    }
    let file = Hdf5Output::create(temporary, target, options.layout == OutputLayout::Netcdf)?;
    let root = file.root();
    let output = match options.layout {
        OutputLayout::Pdebench => PdebenchOutput::new(root, target, description, options).map(boxed),
        OutputLayout::TheWell => TheWellOutput::new(root, target, description, options).map(boxed),
        OutputLayout::Netcdf => Ok(boxed(NetcdfOutput::new(root, description, options))),
        OutputLayout::Vtkhdf => Ok(boxed(VtkhdfOutput::new(root, description, options))),
        _ => TableOutput::new(root, description, options).map(boxed),
    };
    match output {
        Ok(output) => Ok((output, Some(file))),
        Err(error) => {
            file.abandon();
            Err(error)
        }
    }
}

impl Drop for TrajectoryWriter {
    fn drop(&mut self) {
        drop(self.output.take());
        if let Some(file) = self.file.take() {
            file.abandon();
        }
    }
}
