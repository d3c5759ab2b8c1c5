//! Opening trajectory files of any layout, and reading them with checks.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cfo_numerics::{TimeGrid, groups, nearness};

use super::layout::{self, Layout, TrajectorySource};
use super::memory::{Held, MemorySource};
use super::merged::Merged;
use super::stamp::{Stamp, Stamped};
use crate::sampling::spread;
use crate::trajectory::{Defect, Defects, first_not_finite};
use crate::{
    DataError, Description, FieldShape, Offset, Place, Split, StoredTrajectory, Trajectory, TrajectoryInputs,
};

/// An open trajectory file.
///
/// Only requested parts are read: a trajectory, or some of its frames. Threads may share a file.
///
/// ```no_run
/// use cfo_data::store::TrajectoryFile;
///
/// let file = TrajectoryFile::open("lorenz.h5")?;
/// println!("{} trajectories, layout {}", file.len(), file.layout());
/// let first = file.trajectory(0)?;
/// assert_eq!(first.values.len(), first.times.len() * file.description().shape.len());
/// # Ok::<(), cfo_data::DataError>(())
/// ```
pub struct TrajectoryFile {
    layout: Layout,
    source: Arc<dyn TrajectorySource>,
    /// Offset of the values that are returned.
    offset: Offset,
    /// The file's stamp, to detect changes; `None` for values in memory.
    stamped: Option<Stamped>,
}

/// Maximum numbers of trajectories, of snapshots per trajectory, and of values from which offsets are chosen.
const LOOKED_AT: [usize; 3] = [64, 16, 1 << 22];

impl fmt::Debug for TrajectoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TrajectoryFile");
        debug.field("path", &self.path()).field("layout", &self.layout).field("len", &self.len());
        debug.finish_non_exhaustive()
    }
}

impl TrajectoryFile {
    /// Opens a file and recognises its layout from its content.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        // Before the first read, so that no change is missed. The layout reports files that cannot be opened.
        let stamped = Stamped::open(path).ok();
        let (layout, source) = layout::open(path)?;
        let file = Self::new(layout, source.into(), stamped)?;
        let offset = if file.is_double() { file.suiting_offset()? } else { Offset::NONE };
        Ok(Self { offset, ..file })
    }

    /// Returns the file with values relative to another offset, for example that of a model.
    #[must_use]
    pub fn relative_to(self, offset: &Offset) -> Self {
        Self { offset: offset.clone(), ..self }
    }

    /// Returns a view in which snapshots at nearly equal times are merged into their mean; see
    /// [`nearness`](cfo_numerics::nearness).
    #[must_use]
    pub fn merged(&self) -> Self {
        let source = Arc::new(Merged::new(Arc::clone(&self.source)));
        Self { layout: self.layout, source, offset: self.offset.clone(), stamped: None }
    }

    /// Number of snapshots, over all trajectories, that [`TrajectoryFile::merged`] merges with the previous one.
    ///
    /// # Errors
    /// If times cannot be read.
    pub fn nearly_equal(&self) -> Result<usize, DataError> {
        let of = |trajectory| {
            let times = self.times(trajectory)?;
            Ok(times.len() - groups(&times, nearness(&times)).len())
        };
        (0..self.len()).map(of).sum()
    }

    /// The offset of all values that are read. Only files in double precision have one.
    pub fn offset(&self) -> &Offset {
        &self.offset
    }

    /// Warnings about valid content, such as arrays that are not used.
    pub fn warnings(&self) -> &[String] {
        &self.source.contents().warnings
    }

    /// Chooses the offset from a sample of snapshots.
    fn suiting_offset(&self) -> Result<Offset, DataError> {
        let shape = self.description().shape;
        let [most, frames, numbers] = LOOKED_AT;
        let affordable = (numbers / shape.len().max(1)).max(2);
        let mut read = Vec::new();
        for trajectory in spread(self.len(), most.min(affordable)) {
            let each = (affordable / self.len().min(most)).clamp(1, frames);
            for frame in spread(self.source.frames(trajectory)?, each) {
                read.push(self.source.doubles(trajectory, frame, 1)?);
            }
        }
        Ok(Offset::suiting(shape.channels, read.iter().map(Vec::as_slice)))
    }

    /// Creates a file from trajectories in memory. Messages that contain a path show `memory`.
    ///
    /// # Errors
    /// If there are no trajectories.
    pub fn held(held: Arc<dyn Held>) -> Result<Self, DataError> {
        Self::new(Layout::Memory, Arc::new(MemorySource::new(held)), None)
    }

    fn new(
        layout: Layout,
        source: Arc<dyn TrajectorySource>,
        stamped: Option<Stamped>,
    ) -> Result<Self, DataError> {
        let contents = source.contents();
        if contents.count == 0 {
            return Err(DataError::unfit(&contents.path, Place::default(), "no trajectory", "at least one"));
        }
        let offset = contents.offset.clone();
        Ok(Self { layout, source, offset, stamped })
    }

    /// The path, as given.
    pub fn path(&self) -> &Path {
        &self.source.contents().path
    }

    /// Stamps of the file when it was opened and now; `None` for values in memory.
    ///
    /// # Errors
    /// If the file system reports an error.
    pub fn stamps(&self) -> Result<Option<[Stamp; 2]>, DataError> {
        let stamps = self.stamped.as_ref().map(Stamped::stamps).transpose();
        stamps.map_err(|error| DataError::reading(self.path(), error))
    }

    /// Layout of the file.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The description of all trajectories.
    pub fn description(&self) -> &Description {
        &self.source.contents().description
    }

    /// Number of trajectories.
    pub fn len(&self) -> usize {
        self.source.contents().count
    }

    /// Whether the stored values have more digits than the single precision in which they are read.
    pub fn is_double(&self) -> bool {
        self.source.contents().is_double
    }

    /// Always `false`: a file without trajectories does not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Part to which a trajectory belongs, if the file contains it.
    pub fn split(&self, trajectory: usize) -> Option<Split> {
        if trajectory < self.len() { self.source.split(trajectory) } else { None }
    }

    /// Number of snapshots of a trajectory.
    pub fn frame_count(&self, trajectory: usize) -> Result<usize, DataError> {
        self.check_trajectory(trajectory)?;
        self.source.frames(trajectory)
    }

    /// The times of a trajectory.
    pub fn times(&self, trajectory: usize) -> Result<TimeGrid, DataError> {
        self.check_trajectory(trajectory)?;
        TimeGrid::new(self.source.times(trajectory)?).map_err(|source| DataError::Times {
            path: self.path().to_owned(),
            place: Box::new(Place::trajectory(trajectory)),
            source,
        })
    }

    /// The inputs of a trajectory beside its state, as [`Description::inputs`] names them; they are finite.
    pub fn inputs(&self, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        self.check_trajectory(trajectory)?;
        let inputs = self.source.inputs(trajectory)?;
        if let Some(statics) = &inputs.statics {
            self.check_statics(trajectory, statics)?;
        }
        match inputs.parameters.iter().position(|value| !value.is_finite()) {
            None => Ok(inputs),
            Some(column) => Err(DataError::Parameter {
                path: self.path().to_owned(),
                place: Box::new(Place::dataset("parameters").in_trajectory(trajectory)),
                column,
                value: inputs.parameters[column],
            }),
        }
    }

    /// Checks that static fields are finite.
    fn check_statics(&self, trajectory: usize, statics: &[f32]) -> Result<(), DataError> {
        let Some(position) = first_not_finite(statics) else { return Ok(()) };
        let description = self.description();
        let shape = FieldShape { channels: description.inputs.statics.len(), ..description.shape };
        let place = Place { dataset: Some("statics".into()), frame: None, ..shape.place(position) };
        let (path, value) = (self.path().to_owned(), f64::from(statics[position]));
        Err(DataError::NotFinite { path, place: Box::new(place.in_trajectory(trajectory)), value })
    }

    /// Reads a whole trajectory. Its times increase and its values are finite.
    pub fn trajectory(&self, trajectory: usize) -> Result<Trajectory, DataError> {
        let times = self.times(trajectory)?;
        let values = self.values(trajectory, 0, times.len())?;
        self.check_finite(trajectory, &[0], &values)?;
        let inputs = self.inputs(trajectory)?;
        Ok(Trajectory { times, values, inputs })
    }

    /// Reads a whole trajectory as it is stored, with a list of its defects.
    pub fn audit(&self, trajectory: usize) -> Result<(StoredTrajectory, Defects), DataError> {
        self.check_trajectory(trajectory)?;
        let times = self.source.times(trajectory)?;
        let values = self.values(trajectory, 0, times.len())?;
        let inputs = self.source.inputs(trajectory)?;
        let stored = StoredTrajectory { times, values, inputs };
        let mut defects = stored.defects(&self.description().shape);
        for defect in &mut defects.first {
            if let Defect::Value { place, value } = defect {
                *value = self.stored(trajectory, place, *value as f32);
            }
        }
        Ok((stored, defects))
    }

    /// Reads consecutive snapshots.
    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        if self.is_as_stored() {
            return self.source.values(trajectory, first, count);
        }
        let mut values = vec![0.0; count * self.description().shape.len()];
        self.read_into(trajectory, first, count, &mut values)?;
        Ok(values)
    }

    /// Whether values are used as the source stores them, without conversion.
    fn is_as_stored(&self) -> bool {
        self.source.contents().offset == self.offset
    }

    fn read_into(
        &self,
        trajectory: usize,
        first: usize,
        count: usize,
        out: &mut [f32],
    ) -> Result<(), DataError> {
        if self.is_as_stored() {
            return self.source.values_into(trajectory, first, count, out);
        }
        let own = &self.source.contents().offset;
        if own.is_none() {
            self.offset.relative(&self.source.doubles(trajectory, first, count)?, out);
        } else {
            self.source.values_into(trajectory, first, count, out)?;
            own.shift(&self.offset, out);
        }
        Ok(())
    }

    /// Returns the stored double-precision number of a value that is not finite in single precision.
    fn stored(&self, trajectory: usize, place: &Place, value: f32) -> f64 {
        let shape = self.description().shape;
        let point = place.point.as_ref().map_or(0, |point| shape.grid.point(point));
        let position = point * shape.channels + place.channel.unwrap_or(0);
        let read = |frame| self.source.doubles(trajectory, frame, 1).ok()?.get(position).copied();
        place.frame.and_then(read).unwrap_or(f64::from(value))
    }

    /// Reads some snapshots of a trajectory in the requested order, `[frames, points, channels]`.
    ///
    /// Neighbouring frames are read together. Only their bytes (or the chunks that contain them) are read.
    pub fn frames(&self, trajectory: usize, frames: &[usize]) -> Result<Vec<f32>, DataError> {
        let mut values = vec![0.0; frames.len() * self.description().shape.len()];
        self.frames_into(trajectory, frames, &mut values)?;
        Ok(values)
    }

    /// Reads snapshots as [`TrajectoryFile::frames`] does, into a buffer of exactly their length.
    pub fn frames_into(&self, trajectory: usize, frames: &[usize], out: &mut [f32]) -> Result<(), DataError> {
        let count = self.frame_count(trajectory)?;
        if let Some(&frame) = frames.iter().find(|&&frame| frame >= count) {
            let place = Place::trajectory(trajectory).at_frame(frame);
            let path = self.path().to_owned();
            return Err(DataError::OutOfRange { path, place: Box::new(place), count });
        }
        let size = self.description().shape.len();
        let needed = frames.len() * size;
        if out.len() != needed {
            let found = format!("{} numbers", out.len());
            return Err(DataError::argument("the buffer for snapshots", found, needed.to_string()));
        }
        let mut place = &mut *out;
        for run in frames.chunk_by(|&one, &next| next == one + 1) {
            let (now, rest) = place.split_at_mut(run.len() * size);
            self.read_into(trajectory, run[0], run.len(), now)?;
            place = rest;
        }
        self.check_finite(trajectory, frames, out)
    }

    /// Whether trajectories are cheap to read only in sequential order, as in a compressed archive.
    pub fn is_sequential(&self) -> bool {
        self.source.contents().is_sequential
    }

    fn check_trajectory(&self, trajectory: usize) -> Result<(), DataError> {
        if trajectory < self.len() {
            return Ok(());
        }
        let (path, place) = (self.path().to_owned(), Place::trajectory(trajectory));
        Err(DataError::OutOfRange { path, place: Box::new(place), count: self.len() })
    }

    /// Checks that all values are finite. Frame `n` of `values` is `frames[n]`, or `n` beyond the end of `frames`.
    fn check_finite(&self, trajectory: usize, frames: &[usize], values: &[f32]) -> Result<(), DataError> {
        let Some(position) = first_not_finite(values) else {
            return Ok(());
        };
        let shape = &self.description().shape;
        let mut place = shape.place(position).in_trajectory(trajectory);
        let index = place.frame.unwrap_or(0);
        place.frame = Some(frames.get(index).copied().unwrap_or(index));
        let value = self.stored(trajectory, &place, values[position]);
        Err(DataError::NotFinite { path: self.path().to_owned(), place: Box::new(place), value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_may_share_an_open_file() {
        fn shared<T: Send + Sync>() {}
        shared::<TrajectoryFile>();
    }
}
