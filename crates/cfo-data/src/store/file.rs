//! Opening a trajectory file of any layout, and checked reading from it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cfo_numerics::TimeGrid;

use super::layout::{self, Layout, Source};
use super::memory::{Held, Memory};
use crate::trajectory::{Defects, first_not_finite};
use crate::{DataError, Description, Place, Split, StoredTrajectory, Trajectory};

/// An open trajectory file.
///
/// Only what is asked for is read: a trajectory, or a few of its frames. Threads may share it.
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
    source: Box<dyn Source>,
}

impl fmt::Debug for TrajectoryFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TrajectoryFile");
        debug.field("path", &self.path()).field("layout", &self.layout).field("len", &self.len());
        debug.finish_non_exhaustive()
    }
}

impl TrajectoryFile {
    /// Open a file, recognising its layout by what it holds.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        let path = path.as_ref();
        let (layout, source) = layout::open(path)?;
        Self::new(layout, source)
    }

    /// Trajectories in memory, for what looks at files. Where a message names a path it is `memory`.
    ///
    /// # Errors
    /// If there is none.
    pub fn held(held: Arc<dyn Held>) -> Result<Self, DataError> {
        Self::new(Layout::Memory, Box::new(Memory(held)))
    }

    fn new(layout: Layout, source: Box<dyn Source>) -> Result<Self, DataError> {
        if source.len() == 0 {
            return Err(DataError::Unfit {
                path: source.path().to_owned(),
                place: Box::new(Place::default()),
                found: "no trajectory".to_string(),
                needed: "at least one".to_string(),
            });
        }
        Ok(Self { layout, source })
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        self.source.path()
    }

    /// How the file arranges its trajectories.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What holds for every trajectory.
    pub fn description(&self) -> &Description {
        self.source.description()
    }

    /// How many trajectories there are.
    pub fn len(&self) -> usize {
        self.source.len()
    }

    /// Whether the stored values have more digits than are read: values are read in single precision.
    pub fn is_double(&self) -> bool {
        self.source.is_double()
    }

    /// Always `false`: a file without trajectories does not open.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a trajectory is used for, if the file says so.
    pub fn split(&self, trajectory: usize) -> Option<Split> {
        if trajectory < self.len() { self.source.split(trajectory) } else { None }
    }

    /// How many snapshots a trajectory has.
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

    /// The PDE parameters of a trajectory, in the order of [`Description::parameter_names`]; they are finite.
    pub fn parameters(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        self.check_trajectory(trajectory)?;
        let parameters = self.source.parameters(trajectory)?;
        match parameters.iter().position(|value| !value.is_finite()) {
            None => Ok(parameters),
            Some(column) => Err(DataError::Parameter {
                path: self.path().to_owned(),
                place: Box::new(Place::dataset("parameters").in_trajectory(trajectory)),
                column,
                value: parameters[column],
            }),
        }
    }

    /// A whole trajectory; its times increase and its values are finite.
    pub fn trajectory(&self, trajectory: usize) -> Result<Trajectory, DataError> {
        let times = self.times(trajectory)?;
        let values = self.source.values(trajectory, 0, times.len())?;
        self.check_finite(trajectory, &[0], &values)?;
        let parameters = self.parameters(trajectory)?;
        Ok(Trajectory { times, values, parameters })
    }

    /// A whole trajectory as it is stored, with what is wrong with it: for tools that report rather than stop.
    pub fn audit(&self, trajectory: usize) -> Result<(StoredTrajectory, Defects), DataError> {
        self.check_trajectory(trajectory)?;
        let times = self.source.times(trajectory)?;
        let values = self.source.values(trajectory, 0, times.len())?;
        let parameters = self.source.parameters(trajectory)?;
        let trajectory = StoredTrajectory { times, values, parameters };
        let defects = trajectory.defects(&self.description().shape);
        Ok((trajectory, defects))
    }

    /// Some snapshots of a trajectory in the order asked for, `[frames, height, width, channels]`.
    ///
    /// Runs of neighbours are read together; only these bytes (or the chunks that hold them) are touched.
    pub fn frames(&self, trajectory: usize, frames: &[usize]) -> Result<Vec<f32>, DataError> {
        let mut values = vec![0.0; frames.len() * self.description().shape.len()];
        self.frames_into(trajectory, frames, &mut values)?;
        Ok(values)
    }

    /// As [`TrajectoryFile::frames`], into a buffer of exactly this length.
    pub fn frames_into(&self, trajectory: usize, frames: &[usize], out: &mut [f32]) -> Result<(), DataError> {
        let count = self.frame_count(trajectory)?;
        if let Some(&frame) = frames.iter().find(|&&frame| frame >= count) {
            let place = Place::trajectory(trajectory).at_frame(frame);
            return Err(DataError::OutOfRange {
                path: self.path().to_owned(),
                place: Box::new(place),
                count,
            });
        }
        let size = self.description().shape.len();
        let needed = frames.len() * size;
        if out.len() != needed {
            return Err(DataError::Argument {
                what: "the buffer for snapshots",
                found: format!("{} numbers", out.len()),
                needed: format!("{needed}"),
            });
        }
        let mut place = &mut *out;
        for run in frames.chunk_by(|&one, &next| next == one + 1) {
            let (now, rest) = place.split_at_mut(run.len() * size);
            self.source.values_into(trajectory, run[0], run.len(), now)?;
            place = rest;
        }
        self.check_finite(trajectory, frames, out)
    }

    /// Whether trajectories are cheap to read only one after another, in their order: those of a compressed archive.
    pub fn is_sequential(&self) -> bool {
        self.source.is_sequential()
    }

    fn check_trajectory(&self, trajectory: usize) -> Result<(), DataError> {
        if trajectory < self.len() {
            return Ok(());
        }
        let (path, place) = (self.path().to_owned(), Place::trajectory(trajectory));
        Err(DataError::OutOfRange { path, place: Box::new(place), count: self.len() })
    }

    /// Refuse a value that is not finite; frame `n` of `values` is `frames[n]`, or counted on from the last of them.
    fn check_finite(&self, trajectory: usize, frames: &[usize], values: &[f32]) -> Result<(), DataError> {
        let Some(position) = first_not_finite(values) else {
            return Ok(());
        };
        let shape = &self.description().shape;
        let mut place = shape.place(position).in_trajectory(trajectory);
        let index = place.frame.unwrap_or(0);
        place.frame = Some(frames.get(index).copied().unwrap_or(index));
        Err(DataError::NotFinite {
            path: self.path().to_owned(),
            place: Box::new(place),
            value: values[position],
        })
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
