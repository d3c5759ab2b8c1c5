//! Trajectories in memory, split three ways: from a file, from a simulator, or from the user's own program.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_data::simulate::{self, Equation};
use cfo_data::store::TrajectoryFile;
use cfo_data::{Description, Split, Trajectory};

use crate::error::{CfoError, Result};
use crate::paper::System;
use crate::recipe::DataConfig;

/// Trajectories with what holds for all of them and the part each belongs to.
#[derive(Clone, Debug)]
pub struct TrajectorySet {
    /// What holds for all.
    pub description: Description,
    /// The trajectories.
    pub trajectories: Vec<Trajectory>,
    /// The part of each.
    pub splits: Vec<Split>,
    /// Where the values are, if they stay in their file: those in `trajectories` are then empty.
    file: Option<Arc<TrajectoryFile>>,
}

impl TrajectorySet {
    /// Trajectories with 80 % for training, 10 % for validation and 10 % for test, in their order.
    ///
    /// # Errors
    /// If a trajectory does not fit the description.
    pub fn new(description: Description, trajectories: Vec<Trajectory>) -> Result<Self> {
        let size = description.shape.len();
        for (i, trajectory) in trajectories.iter().enumerate() {
            if trajectory.values.len() != trajectory.times.len() * size {
                return Err(CfoError::BadData {
                    problem: format!(
                        "trajectory {i} has {} values for {} times of {size} values each",
                        trajectory.values.len(),
                        trajectory.times.len()
                    ),
                    hint: "values are flattened `[frames, height, width, channels]`".into(),
                });
            }
        }
        let count = trajectories.len();
        let splits = by_counts(count, default_counts(count));
        Ok(Self { description, trajectories, splits, file: None })
    }

    /// All trajectories of a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let file = TrajectoryFile::open(path)?;
        let trajectories = (0..file.len()).map(|i| file.trajectory(i)).collect::<Result<Vec<_>, _>>()?;
        let mut set = Self::new(file.description().clone(), trajectories)?;
        if let Some(splits) = (0..file.len()).map(|i| file.split(i)).collect::<Option<Vec<_>>>() {
            set.splits = splits;
        }
        Ok(set)
    }

    /// The trajectories of a file, their values left in it to be read when they are needed ([`TrajectorySet::trajectory`]):
    /// for files larger than memory. `split` counts trajectories for training, validation and test, where the file's parts are not
    /// wanted.
    ///
    /// # Errors
    /// If the file cannot be read or has fewer trajectories.
    pub fn open(path: &Path, split: Option<[usize; 3]>) -> Result<Self> {
        let file = TrajectoryFile::open(path)?;
        let empty = |i: usize| -> Result<Trajectory> {
            Ok(Trajectory { times: file.times(i)?, values: Vec::new(), parameters: file.parameters(i)? })
        };
        let trajectories = (0..file.len()).map(empty).collect::<Result<Vec<_>>>()?;
        let count = trajectories.len();
        let splits = (0..count).map(|i| file.split(i)).collect::<Option<Vec<_>>>();
        let splits = splits.unwrap_or_else(|| by_counts(count, default_counts(count)));
        let mut set = Self { description: file.description().clone(), trajectories, splits, file: None };
        if let Some(counts) = split {
            set = set.with_split(counts)?;
        }
        set.file = Some(Arc::new(file));
        Ok(set)
    }

    /// A trajectory with its values, read now if they are in the file.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn trajectory(&self, index: usize) -> Result<Cow<'_, Trajectory>> {
        match &self.file {
            Some(file) => Ok(Cow::Owned(file.trajectory(index)?)),
            None => Ok(Cow::Borrowed(&self.trajectories[index])),
        }
    }

    /// Whether the values stay in their file.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some()
    }

    /// Some snapshots of a trajectory, one after another.
    pub(crate) fn frames(&self, index: usize, frames: &[usize]) -> Result<Cow<'_, [f32]>> {
        if let Some(file) = &self.file {
            return Ok(file.frames(index, frames)?.into());
        }
        let (size, values) = (self.description.shape.len(), &self.trajectories[index].values);
        let neighbors = frames.windows(2).all(|pair| pair[1] == pair[0] + 1);
        Ok(match frames.first() {
            Some(&first) if neighbors => values[first * size..(first + frames.len()) * size].into(),
            _ => {
                frames.iter().flat_map(|&frame| &values[frame * size..(frame + 1) * size]).copied().collect()
            }
        })
    }

    /// Simulates trajectories `0..samples` of a seed.
    ///
    /// # Errors
    /// If the simulator's options are wrong or it diverges.
    pub fn simulate(
        equation: &dyn Equation,
        samples: usize,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<Self> {
        let mut trajectories = Vec::with_capacity(samples);
        simulate::run(equation, samples, seed, interrupt, |_, trajectory| {
            trajectories.push(trajectory);
            Ok::<(), CfoError>(())
        })?;
        Self::new(equation.description(), trajectories)
    }

    /// What a recipe asks for: the file given, its own file, or a simulation of the paper's size.
    ///
    /// # Errors
    /// If there is no source, or it cannot be read or simulated.
    pub fn from_recipe(
        config: &DataConfig,
        file: Option<&Path>,
        seed: u64,
        interrupt: &AtomicBool,
    ) -> Result<Self> {
        let set = match (file.or(config.path.as_deref()), &config.simulate) {
            (Some(path), _) if config.stream.map_or_else(|| is_large(path), Ok)? => {
                return Self::open(path, config.split);
            }
            (Some(path), _) => Self::read(path)?,
            (None, Some(system)) => {
                let system = System::find(system)?;
                let (equation, counts) = (system.equation(), system.counts());
                let samples = config.samples.or(config.split.map(|split| split.iter().sum()));
                let set =
                    Self::simulate(&*equation, samples.unwrap_or(counts.iter().sum()), seed, interrupt)?;
                if samples.is_none() { set.with_split(counts)? } else { set }
            }
            (None, None) => {
                return Err(CfoError::BadData {
                    problem: "the recipe names no data".into(),
                    hint: "give `--data FILE`, or set `data.path` or `data.simulate`".into(),
                });
            }
        };
        match config.split {
            Some(counts) => set.with_split(counts),
            None => Ok(set),
        }
    }

    /// The same with other parts: so many for training, validation and test, in their order; the rest is left out.
    ///
    /// # Errors
    /// If there are fewer trajectories.
    pub fn with_split(mut self, counts: [usize; 3]) -> Result<Self> {
        let needed: usize = counts.iter().sum();
        if needed > self.trajectories.len() {
            return Err(CfoError::BadData {
                problem: format!(
                    "the split asks for {needed} trajectories, but there are {}",
                    self.trajectories.len()
                ),
                hint: "lower `data.split` or simulate more".into(),
            });
        }
        self.trajectories.truncate(needed);
        self.splits = by_counts(needed, counts);
        Ok(self)
    }

    /// Trajectories of a part, with their positions.
    pub fn part(&self, split: Split) -> impl Iterator<Item = (usize, &Trajectory)> {
        self.trajectories.iter().enumerate().filter(move |(i, _)| self.splits[*i] == split)
    }
}

/// 80 % for training, 10 % each for validation and test; one each at least if there are three.
fn default_counts(count: usize) -> [usize; 3] {
    let held_out = (count / 10).max(usize::from(count > 2));
    [count.saturating_sub(2 * held_out), held_out.min(count), held_out.min(count)]
}

/// The part of each trajectory of a file: the file's own, else what a run's recipe says, else 80, 10 and 10 % in their order; none for
/// those that the recipe leaves out.
///
/// # Errors
/// If the recipe's split asks for more trajectories than there are.
pub fn parts(file: &TrajectoryFile, config: &DataConfig) -> Result<Vec<Option<Split>>> {
    let count = file.len();
    if let Some(own) = (0..count).map(|i| file.split(i)).collect::<Option<Vec<_>>>() {
        return Ok(own.into_iter().map(Some).collect());
    }
    let counts = config.split.unwrap_or_else(|| default_counts(count));
    let needed: usize = counts.iter().sum();
    if needed > count {
        return Err(CfoError::BadData {
            problem: format!("the run's split asks for {needed} trajectories, but the file has {count}"),
            hint: "`--split all` takes every one of them".into(),
        });
    }
    let taken = by_counts(needed, counts).into_iter().map(Some);
    Ok(taken.chain(std::iter::repeat(None)).take(count).collect())
}

/// Bytes of memory that the system says are available, if it says so.
fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Whether a file's values, twice (as read and as trained on), would take more than 70 % of what memory there is.
fn is_large(path: &Path) -> Result<bool> {
    let file = TrajectoryFile::open(path)?;
    let frames = (0..file.len()).map(|i| file.frame_count(i)).sum::<Result<usize, _>>()?;
    let bytes = 8 * frames as u64 * file.description().shape.len() as u64;
    Ok(available_memory().is_some_and(|available| bytes > available / 10 * 7))
}

fn by_counts(total: usize, [train, validation, _]: [usize; 3]) -> Vec<Split> {
    (0..total)
        .map(|i| match i {
            i if i < train => Split::Train,
            i if i < train + validation => Split::Validation,
            _ => Split::Test,
        })
        .collect()
}
