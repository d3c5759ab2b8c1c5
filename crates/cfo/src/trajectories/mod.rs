//! Sets of trajectories, split into training, validation and test. They come from a file, a simulator or the caller's program.

mod division;
mod part;
mod partition;

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_data::simulate::{self, Equation};
use cfo_data::store::{Stamp, TrajectoryFile};
use cfo_data::{Description, Offset, Split, Trajectory, TrajectoryError};

use crate::error::{CfoError, Result};
use crate::paper::System;
use crate::recipe::Recipe;
use division::by_default;
pub use part::Part;

/// A set of trajectories with their common description and their split into training, validation and test.
#[derive(Clone, Debug)]
pub struct Trajectories {
    /// Description of all trajectories: shape, names, domain.
    pub description: Description,
    /// The trajectories. The values of trajectories that stay in their file are empty; [`Trajectories::load`] reads them.
    pub trajectories: Vec<Trajectory>,
    /// The part of each trajectory.
    pub splits: Vec<Split>,
    /// Offset of all values, in memory and in the file.
    offset: Offset,
    /// Whether the split is that of the file or was set. If not, a recipe may define it.
    named: bool,
    /// The file of the values that are not in memory.
    file: Option<Arc<TrajectoryFile>>,
    /// The origin of each trajectory in the file, or among the initial trajectories.
    origins: Vec<Origin>,
}

/// A trajectory's index in its source, and its first snapshot there.
#[derive(Clone, Copy, Debug)]
struct Origin {
    number: usize,
    first: usize,
}

fn origins(count: usize) -> Vec<Origin> {
    (0..count).map(|number| Origin { number, first: 0 }).collect()
}

impl Trajectories {
    /// Creates a set with the first 80 % of the trajectories for training, then 10 % for validation and 10 % for test.
    ///
    /// # Errors
    /// If a trajectory does not fit the description.
    pub fn new(description: Description, trajectories: Vec<Trajectory>) -> Result<Self> {
        for (i, trajectory) in trajectories.iter().enumerate() {
            description.check(trajectory).map_err(|error| misfit(i, &error))?;
        }
        let count = trajectories.len();
        let (splits, offset) = (by_default(count), Offset::NONE);
        Ok(Self {
            description,
            trajectories,
            splits,
            offset,
            named: false,
            file: None,
            origins: origins(count),
        })
    }

    /// Sets the offset that the values are relative to.
    #[must_use]
    pub fn with_offset(self, offset: Offset) -> Self {
        Self { offset, ..self }
    }

    /// Returns the offset that all values are relative to; most data have none. See [`Offset`].
    pub fn offset(&self) -> &Offset {
        &self.offset
    }

    /// Returns warnings about the file.
    pub fn warnings(&self) -> &[String] {
        self.file.as_ref().map_or(&[], |file| file.warnings())
    }

    /// Sets the part of each trajectory.
    ///
    /// # Errors
    /// If the number of parts is not the number of trajectories.
    pub fn with_splits(self, splits: Vec<Split>) -> Result<Self> {
        let (found, needed) = (splits.len(), self.trajectories.len());
        if found != needed {
            return Err(CfoError::BadData {
                problem: format!("there are {found} parts for {needed} trajectories"),
                hint: "give one part per trajectory: training, validation or test".into(),
            });
        }
        Ok(Self { splits, named: true, ..self })
    }

    /// Reads all trajectories of a file into memory.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let mut set = Self::open(path.as_ref())?;
        set.load(&Split::ALL)?;
        Ok(set)
    }

    /// Opens a file with the split that it defines. Values are read only when they are needed ([`Trajectories::trajectory`]), for files
    /// larger than memory.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open(path: &Path) -> Result<Self> {
        let file = TrajectoryFile::open(path)?;
        let count = file.len();
        let mut trajectories = Vec::with_capacity(count);
        for i in 0..count {
            let trajectory =
                Trajectory { times: file.times(i)?, values: Vec::new(), inputs: file.inputs(i)? };
            file.description().check_inputs(&trajectory.inputs).map_err(|error| misfit(i, &error))?;
            trajectories.push(trajectory);
        }
        let found = (0..count).map(|i| file.split(i)).collect::<Option<Vec<_>>>();
        let named = found.is_some();
        let splits = found.unwrap_or_else(|| by_default(count));
        let (description, offset) = (file.description().clone(), file.offset().clone());
        let file = Some(Arc::new(file));
        Ok(Self { description, trajectories, splits, offset, named, file, origins: origins(count) })
    }

    /// Returns the origin of a trajectory: its index in the file or among the initial trajectories, and the range of its snapshots.
    pub fn place(&self, index: usize) -> (usize, Range<usize>) {
        let Origin { number, first } = self.origins[index];
        (number, first..first + self.trajectories[index].times.len())
    }

    /// Returns a trajectory's index in the file, or among the initial trajectories.
    pub(crate) fn number(&self, index: usize) -> usize {
        self.origins[index].number
    }

    /// Reads the values of all trajectories of the given parts into memory.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn load(&mut self, parts: &[Split]) -> Result<()> {
        let missing: Vec<usize> =
            (0..self.splits.len()).filter(|&i| parts.contains(&self.splits[i]) && self.is_left(i)).collect();
        let read: Vec<Trajectory> = self.chosen(&missing).read()?.into_iter().map(Cow::into_owned).collect();
        for (i, trajectory) in missing.into_iter().zip(read) {
            self.trajectories[i] = trajectory;
        }
        Ok(())
    }

    /// Returns a trajectory with its values. Values that are in the file are read.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn trajectory(&self, index: usize) -> Result<Cow<'_, Trajectory>> {
        if !self.is_left(index) {
            return Ok(Cow::Borrowed(&self.trajectories[index]));
        }
        let mut trajectory = self.trajectories[index].clone();
        let frames: Vec<usize> = (0..trajectory.times.len()).collect();
        trajectory.values = self.frames(index, &frames)?;
        Ok(Cow::Owned(trajectory))
    }

    /// Returns whether values stay in a file.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some() && (0..self.trajectories.len()).any(|i| self.is_left(i))
    }

    /// Returns the time of the last change of the file that holds values: when it was opened, and now.
    ///
    /// # Errors
    /// If the file system returns an error.
    pub(crate) fn stamps(&self) -> Result<Option<[Stamp; 2]>> {
        match &self.file {
            Some(file) if self.is_in_file() => Ok(file.stamps()?),
            _ => Ok(None),
        }
    }

    /// Returns the path of the file that the set was opened from.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(|file| file.path())
    }

    /// Returns whether trajectories are read efficiently only in their order.
    pub(crate) fn is_sequential(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_sequential())
    }

    /// Returns whether the values of a trajectory are in the file only.
    fn is_left(&self, index: usize) -> bool {
        self.file.is_some() && self.trajectories[index].values.is_empty()
    }

    /// Returns some snapshots of a trajectory, flattened.
    pub(crate) fn frames(&self, index: usize, frames: &[usize]) -> Result<Vec<f32>> {
        let mut values = vec![0.0; frames.len() * self.description.shape.len()];
        self.frames_into(index, frames, &mut values)?;
        Ok(values)
    }

    /// Copies some snapshots of a trajectory to `out`, which must have exactly their size.
    ///
    /// # Errors
    /// If they cannot be read or are not finite.
    pub(crate) fn frames_into(&self, index: usize, frames: &[usize], out: &mut [f32]) -> Result<()> {
        if let Some(file) = &self.file
            && self.is_left(index)
        {
            let Origin { number, first } = self.origins[index];
            let there: Vec<usize> = frames.iter().map(|frame| first + frame).collect();
            return Ok(file.frames_into(number, &there, out)?);
        }
        let (size, values) = (self.description.shape.len(), &self.trajectories[index].values);
        let mut place = &mut *out;
        for run in frames.chunk_by(|&one, &next| next == one + 1) {
            let (now, rest) = place.split_at_mut(run.len() * size);
            now.copy_from_slice(&values[run[0] * size..(run[0] + run.len()) * size]);
            place = rest;
        }
        if out.iter().fold(false, |bad, value| bad | !value.is_finite()) {
            return Err(CfoError::BadData {
                problem: format!("trajectory {index} has a value that is not finite"),
                hint: "remove it, or remove its snapshots from there on".into(),
            });
        }
        Ok(())
    }

    /// Simulates trajectories `0..samples` with a seed.
    ///
    /// # Errors
    /// If the simulator's options are wrong or it diverges.
    pub fn simulate(
        equation: &dyn Equation,
        samples: usize,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<Self> {
        let mut trajectories = Vec::new();
        simulate::run(equation, samples, seed, interrupt, |_, trajectory| {
            trajectories.push(trajectory);
            Ok::<(), CfoError>(())
        })?;
        Self::new(equation.description(), trajectories)
    }

    /// Reads `file`, or else the file that the recipe names; without either, simulates the system that the recipe names.
    ///
    /// # Errors
    /// If the recipe names no data, or they cannot be read or simulated.
    pub fn from_recipe(recipe: &Recipe, file: Option<&Path>, interrupt: &AtomicBool) -> Result<Self> {
        let config = &recipe.data;
        match (file.or(config.path.as_deref()), &config.simulate) {
            (Some(path), _) => Self::open_by(recipe, path),
            (None, Some(system)) => {
                let system = System::find(system)?;
                let counts = config.split.and_then(|split| split.counts()).unwrap_or(system.counts());
                let samples = counts.iter().fold(0, |sum: usize, &count| sum.saturating_add(count));
                let set = Self::simulate(&*system.equation(), samples, recipe.data_seed(), interrupt)?;
                match config.split {
                    None => set.divided(counts.into(), config.shuffle.then(|| recipe.data_seed())),
                    Some(_) => set.divided_by(recipe),
                }
            }
            (None, None) => Err(CfoError::NoData),
        }
    }

    /// Splits the trajectories, in their order, into training, validation and test with these counts. Further trajectories are removed.
    ///
    /// # Errors
    /// If there are fewer trajectories.
    pub fn with_split(self, counts: [usize; 3]) -> Result<Self> {
        self.divided(counts.into(), None)
    }

    /// Returns the trajectories of a part, with their positions.
    pub fn part(&self, split: Split) -> impl Iterator<Item = (usize, &Trajectory)> {
        let marked = self.trajectories.iter().enumerate().zip(&self.splits);
        marked.filter(move |(_, own)| **own == split).map(|(one, _)| one)
    }

    /// Checks the public fields of a set.
    ///
    /// # Errors
    /// If they contradict each other.
    pub(crate) fn check(&self) -> Result<()> {
        let [count, splits, origins] = [self.trajectories.len(), self.splits.len(), self.origins.len()];
        if splits != count || origins != count {
            return Err(CfoError::BadData {
                problem: format!(
                    "the set has {count} trajectories and {splits} parts, but it was created with {origins} trajectories"
                ),
                hint: "create another set with `Trajectories::new` and `Trajectories::with_splits`".into(),
            });
        }
        for (i, trajectory) in self.trajectories.iter().enumerate() {
            let checked = match self.is_left(i) {
                true => self.description.check_inputs(&trajectory.inputs),
                false => self.description.check(trajectory),
            };
            checked.map_err(|error| misfit(i, &error))?;
        }
        Ok(())
    }
}

/// Returns the error for a trajectory that does not fit the description of its set.
fn misfit(index: usize, error: &TrajectoryError) -> CfoError {
    CfoError::BadData {
        problem: format!("trajectory {index}: {error}"),
        hint: error.hint().unwrap_or_else(|| "remove the trajectory".into()),
    }
}
