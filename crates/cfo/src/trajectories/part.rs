//! Selections of the trajectories of a set, such as those for training, validation or test.

use std::borrow::Cow;

use cfo_data::store::Held;
use cfo_data::{Description, Offset, Split, Trajectory};
use rayon::prelude::*;

use super::Trajectories;
use crate::error::Result;
use crate::ranks::job;

/// A selection of the trajectories of a set. Values that are in a file are read when they are needed.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    set: &'a Trajectories,
    indices: Vec<usize>,
}

impl Trajectories {
    /// Returns the training trajectories.
    pub fn train(&self) -> Part<'_> {
        self.split(Split::Train)
    }

    /// Returns the validation trajectories.
    pub fn validation(&self) -> Part<'_> {
        self.split(Split::Validation)
    }

    /// Returns the test trajectories, which training does not use.
    pub fn test(&self) -> Part<'_> {
        self.split(Split::Test)
    }

    /// Returns whether the file or the caller defines the split.
    pub fn has_splits(&self) -> bool {
        self.named
    }

    /// Returns the trajectories at these positions.
    ///
    /// # Panics
    /// If a position is out of range.
    pub fn chosen(&self, indices: &[usize]) -> Part<'_> {
        assert!(indices.iter().all(|&index| index < self.trajectories.len()), "a position is out of range");
        Part { set: self, indices: indices.to_vec() }
    }

    /// Returns a set of the trajectories at these positions. They keep their numbers in the file; values in a file stay there.
    ///
    /// # Panics
    /// If a position is out of range.
    #[must_use]
    pub fn subset(&self, indices: &[usize]) -> Self {
        Self {
            description: self.description.clone(),
            trajectories: indices.iter().map(|&index| self.trajectories[index].clone()).collect(),
            splits: indices.iter().map(|&index| self.splits[index]).collect(),
            offset: self.offset.clone(),
            named: self.named,
            file: self.file.clone(),
            origins: indices.iter().map(|&index| self.origins[index]).collect(),
        }
    }

    /// Returns the trajectories of one part.
    pub fn split(&self, split: Split) -> Part<'_> {
        Part { set: self, indices: self.part(split).map(|(index, _)| index).collect() }
    }
}

/// Access to the values; all of them must be in memory.
impl Held for Trajectories {
    fn description(&self) -> &Description {
        &self.description
    }

    fn trajectories(&self) -> &[Trajectory] {
        &self.trajectories
    }

    fn offset(&self) -> &Offset {
        &self.offset
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        self.named.then(|| self.splits[trajectory])
    }
}

impl<'a> From<&'a Trajectories> for Part<'a> {
    /// Selects all trajectories.
    fn from(set: &'a Trajectories) -> Self {
        Self { set, indices: (0..set.trajectories.len()).collect() }
    }
}

impl<'a> Part<'a> {
    /// Returns the number of trajectories.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Returns whether the selection is empty.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// Keeps at most the first `most` trajectories.
    #[must_use]
    pub fn take(mut self, most: usize) -> Self {
        self.indices.truncate(most);
        self
    }

    /// Selects the trajectories at these positions of the selection.
    pub(crate) fn at(&self, places: &[usize]) -> Self {
        Self { set: self.set, indices: places.iter().map(|&place| self.indices[place]).collect() }
    }

    /// Returns an error if the set contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        self.set.check()
    }

    /// Returns the description of all trajectories of the set.
    pub fn description(&self) -> &'a Description {
        &self.set.description
    }

    /// Returns the offset that all values of the set are relative to.
    pub fn offset(&self) -> &'a Offset {
        &self.set.offset
    }

    /// Returns the position of each trajectory in the set.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// Returns the index of each trajectory in its file, or among the initial trajectories.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().map(|&index| self.set.place(index).0)
    }

    /// Returns the number of snapshots of each trajectory.
    pub fn frames(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().map(|&index| self.set.trajectories[index].times.len())
    }

    /// Returns the trajectories with their values.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn read(&self) -> Result<Vec<Cow<'a, Trajectory>>> {
        let set = self.set;
        match set.is_sequential() {
            true => self.indices.iter().map(|&index| set.trajectory(index)).collect(),
            false => self.indices.par_iter().map(|&index| set.trajectory(index)).collect(),
        }
    }

    /// Selects the trajectories of this rank. The ranks have equal numbers of trajectories, or differ by one.
    pub(crate) fn own(&self) -> Self {
        let (rank, size) = job().map_or((0, 1), |ranks| (ranks.rank(), ranks.size()));
        let start = |rank: usize| (rank * self.indices.len()).div_ceil(size);
        Self { set: self.set, indices: self.indices[start(rank)..start(rank + 1)].to_vec() }
    }

    /// Returns consecutive selections of `size` trajectories each; the last may be smaller.
    pub(crate) fn portions(&self, size: usize) -> impl Iterator<Item = Self> {
        self.indices.chunks(size).map(|indices| Self { set: self.set, indices: indices.to_vec() })
    }
}
