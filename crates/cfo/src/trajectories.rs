//! Trajectories, split three ways: from a file, from a simulator, or from the user's own program.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_data::simulate::{self, Equation};
use cfo_data::store::TrajectoryFile;
use cfo_data::{Description, Split, Trajectory};
use rayon::prelude::*;

use crate::error::{CfoError, Result};
use crate::paper::System;
use crate::recipe::DataConfig;

/// Trajectories with what holds for all of them and the part each belongs to.
#[derive(Clone, Debug)]
pub struct TrajectorySet {
    /// What holds for all.
    pub description: Description,
    /// The trajectories. One that was left in its file has no values here; [`TrajectorySet::load`] reads them.
    pub trajectories: Vec<Trajectory>,
    /// The part of each.
    pub splits: Vec<Split>,
    /// Where values are that are not in memory.
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
            check_times_and_parameters(i, trajectory, description.parameter_names.len())?;
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
        let mut set = Self::open(path, None)?;
        set.load(&Split::ALL)?;
        Ok(set)
    }

    /// The trajectories of a file, all values left in it to be read when they are needed. `split` counts trajectories for training,
    /// validation and test, where the file's parts are not wanted.
    ///
    /// # Errors
    /// If the file cannot be read or has fewer trajectories.
    pub fn open(path: &Path, split: Option<[usize; 3]>) -> Result<Self> {
        let file = TrajectoryFile::open(path)?;
        let count = file.len();
        let mut trajectories = Vec::with_capacity(count);
        for i in 0..count {
            let trajectory =
                Trajectory { times: file.times(i)?, values: Vec::new(), parameters: file.parameters(i)? };
            check_times_and_parameters(i, &trajectory, file.description().parameter_names.len())?;
            trajectories.push(trajectory);
        }
        let splits = (0..count).map(|i| file.split(i)).collect::<Option<Vec<_>>>();
        let splits = splits.unwrap_or_else(|| by_counts(count, default_counts(count)));
        let description = file.description().clone();
        let set = Self { description, trajectories, splits, file: Some(Arc::new(file)) };
        match split {
            Some(counts) => set.with_split(counts),
            None => Ok(set),
        }
    }

    /// Reads the values of all trajectories of some parts that are not in memory yet.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn load(&mut self, parts: &[Split]) -> Result<()> {
        let missing: Vec<usize> =
            (0..self.splits.len()).filter(|&i| parts.contains(&self.splits[i]) && self.is_left(i)).collect();
        for (i, trajectory) in missing.iter().zip(self.read_trajectories(&missing)?) {
            self.trajectories[*i] = trajectory;
        }
        Ok(())
    }

    /// Some trajectories with their values, copied or read; the others stay where they are.
    pub(crate) fn read_trajectories(&self, chosen: &[usize]) -> Result<Vec<Trajectory>> {
        let whole = |i: &usize| match &self.file {
            Some(file) if self.is_left(*i) => Ok(file.trajectory(*i)?),
            _ => Ok(self.trajectories[*i].clone()),
        };
        match self.is_sequential() {
            true => chosen.iter().map(whole).collect(),
            false => chosen.par_iter().map(whole).collect(),
        }
    }

    /// Whether values stay in a file.
    pub fn is_in_file(&self) -> bool {
        self.file.is_some() && (0..self.trajectories.len()).any(|i| self.is_left(i))
    }

    /// Whether trajectories are cheap to read only one after another, in their order.
    pub(crate) fn is_sequential(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.is_sequential())
    }

    /// Whether the values of a trajectory are in the file alone.
    fn is_left(&self, index: usize) -> bool {
        self.file.is_some() && self.trajectories[index].values.is_empty()
    }

    /// Some snapshots of a trajectory, one after another.
    pub(crate) fn frames(&self, index: usize, frames: &[usize]) -> Result<Vec<f32>> {
        let mut values = vec![0.0; frames.len() * self.description.shape.len()];
        self.frames_into(index, frames, &mut values)?;
        Ok(values)
    }

    /// Puts some snapshots of a trajectory, one after another, into a place for just these.
    ///
    /// # Errors
    /// If they cannot be read or are not finite.
    pub(crate) fn frames_into(&self, index: usize, frames: &[usize], out: &mut [f32]) -> Result<()> {
        if let Some(file) = &self.file
            && self.is_left(index)
        {
            return Ok(file.frames_into(index, frames, out)?);
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
                problem: format!("trajectory {index} holds a value that is not finite"),
                hint: "leave it out, or leave out the snapshots from there on".into(),
            });
        }
        Ok(())
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
            (Some(path), _) => return Self::open(path, config.split),
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

/// Bytes of memory that the system says are available, if it says so.
pub(crate) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Times must increase, and there must be as many parameters as are named.
fn check_times_and_parameters(index: usize, trajectory: &Trajectory, parameters: usize) -> Result<()> {
    let bad = |problem: String, hint: &str| Err(CfoError::BadData { problem, hint: hint.into() });
    let times = &trajectory.times;
    if times.is_empty() {
        return bad(format!("trajectory {index} has no snapshot"), "leave it out");
    }
    if let Some(frame) = times.iter().position(|time| !time.is_finite()) {
        return bad(
            format!("time {frame} of trajectory {index} is {}, not a finite number", times[frame]),
            "leave out the snapshots without a time",
        );
    }
    if let Some(frame) = times.windows(2).position(|pair| pair[1] <= pair[0]) {
        return bad(
            format!(
                "time {} of trajectory {index} is {}, not after {}",
                frame + 1,
                times[frame + 1],
                times[frame]
            ),
            "sort the snapshots by time and leave out repeated ones",
        );
    }
    if trajectory.parameters.len() != parameters {
        return bad(
            format!(
                "trajectory {index} has {} parameters; {parameters} are named",
                trajectory.parameters.len()
            ),
            "give each trajectory one number for each name",
        );
    }
    match trajectory.parameters.iter().position(|value| !value.is_finite()) {
        Some(which) => bad(
            format!("parameter {which} of trajectory {index} is {}", trajectory.parameters[which]),
            "leave the trajectory out, or give its parameter",
        ),
        None => Ok(()),
    }
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
