//! Division of trajectories, or of their times, into training, validation and test.

use std::path::Path;

use cfo_data::{Split, Trajectory};

use super::partition::{assign, default_counts, held_out_times};
use super::{Origin, Trajectories};
use crate::error::Result;
use crate::recipe::{Portions, Recipe};

impl Trajectories {
    /// Opens a file and divides it with a recipe: by `data.split` and `data.shuffle` if they are set, or else by the split of the file.
    /// Without either, 80 % of the trajectories are for training and 10 % each for validation and test. With one or two trajectories, the
    /// last times of each are held out instead.
    ///
    /// # Errors
    /// If the file cannot be read or has fewer trajectories than the split asks for.
    pub fn open_by(recipe: &Recipe, path: &Path) -> Result<Self> {
        Self::open(path)?.divided_by(recipe)
    }

    /// Opens a file to test a run, divided as for its training, so that no test trajectory was trained on. The split of the file is used if
    /// the run's split does not fit the file, or if the run's data were simulated.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn open_for_run(recipe: &Recipe, path: &Path) -> Result<Self> {
        let set = Self::open(path)?;
        let config = &recipe.data;
        let fits = config.split.is_none_or(|portions| portions.of(set.trajectories.len()).is_ok());
        if fits && !(set.named && config.simulate.is_some()) {
            return set.divided_by(recipe);
        }
        Ok(set)
    }

    /// Divides the set with a recipe; see [`Trajectories::open_by`].
    ///
    /// # Errors
    /// If there are fewer trajectories than the split asks for.
    pub fn divided_by(self, recipe: &Recipe) -> Result<Self> {
        let config = &recipe.data;
        let shuffle = config.shuffle.then(|| recipe.data_seed());
        let count = self.trajectories.len();
        match config.split {
            Some(portions) => self.divided(portions, shuffle),
            None if self.named => Ok(self),
            None if count <= 2 => Ok(self.with_held_out_times()),
            None => self.divided(default_counts(count).into(), shuffle),
        }
    }

    /// Assigns parts in the order of the trajectories, or shuffled with a seed. Trajectories beyond the portions are removed.
    pub(super) fn divided(self, portions: Portions, shuffle: Option<u64>) -> Result<Self> {
        let count = self.trajectories.len();
        let parts = assign(count, portions.of(count)?, shuffle);
        let all = self.trajectories.into_iter().zip(self.origins).zip(&parts);
        let (trajectories, origins) = all.filter(|(_, part)| part.is_some()).map(|(one, _)| one).unzip();
        let splits = parts.iter().flatten().copied().collect();
        Ok(Self { trajectories, origins, splits, ..self })
    }

    /// Divides every trajectory: its first times are for training, the next for validation, the last for test.
    fn with_held_out_times(self) -> Self {
        let size = self.description.shape.len();
        let (mut trajectories, mut splits, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for (trajectory, origin) in self.trajectories.into_iter().zip(&self.origins) {
            let frames = trajectory.times.len();
            let lengths = held_out_times(frames).unwrap_or([frames, 0, 0]);
            let mut first = 0;
            for (length, split) in lengths.into_iter().zip(Split::ALL).filter(|(length, _)| *length > 0) {
                let values = trajectory.values.get(first * size..(first + length) * size);
                trajectories.push(Trajectory {
                    times: trajectory
                        .times
                        .part(first..first + length)
                        .expect("parts without times are left out"),
                    values: values.map(<[f32]>::to_vec).unwrap_or_default(),
                    inputs: trajectory.inputs.clone(),
                });
                splits.push(split);
                origins.push(Origin { number: origin.number, first: origin.first + first });
                first += length;
            }
        }
        Self { trajectories, splits, origins, ..self }
    }
}

/// Returns the default part of each of `count` trajectories.
pub(super) fn by_default(count: usize) -> Vec<Split> {
    assign(count, default_counts(count), None).into_iter().flatten().collect()
}
