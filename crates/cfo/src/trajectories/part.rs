//! Some trajectories of a set: those that train, validate or test.

use std::borrow::Cow;

use cfo_data::store::Held;
use cfo_data::{Description, Offset, Split, Trajectory};
use rayon::prelude::*;

use super::Trajectories;
use crate::error::Result;
use crate::ranks::job;

/// Some trajectories of a set. Values that are in a file are read when they are needed.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    set: &'a Trajectories,
    indices: Vec<usize>,
}

impl Trajectories {
    /// Those that are fitted.
    pub fn train(&self) -> Part<'_> {
        self.split(Split::Train)
    }

    /// Those that are watched while fitting.
    pub fn validation(&self) -> Part<'_> {
        self.split(Split::Validation)
    }

    /// Those that are touched only to report.
    pub fn test(&self) -> Part<'_> {
        self.split(Split::Test)
    }

    /// Whether their source says which part each plays, or somebody did.
    pub fn has_splits(&self) -> bool {
        self.named
    }

    /// Those at these positions.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn chosen(&self, indices: &[usize]) -> Part<'_> {
        assert!(indices.iter().all(|&index| index < self.trajectories.len()), "there are fewer trajectories");
        Part { set: self, indices: indices.to_vec() }
    }

    /// The same with those at these positions alone. They keep their numbers, and their values where those are.
    ///
    /// # Panics
    /// If there are fewer.
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

    /// Those that play one of these parts.
    pub fn split(&self, split: Split) -> Part<'_> {
        Part { set: self, indices: self.part(split).map(|(index, _)| index).collect() }
    }
}

/// Only where all values are in memory.
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
    /// All of them.
    fn from(set: &'a Trajectories) -> Self {
        Self { set, indices: (0..set.trajectories.len()).collect() }
    }
}

impl<'a> Part<'a> {
    /// Trajectories.
    pub fn len(&self) -> usize {
        self.indices.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.indices.is_empty()
    }

    /// The same without those after the first few.
    #[must_use]
    pub fn take(mut self, most: usize) -> Self {
        self.indices.truncate(most);
        self
    }

    /// Those at these places of it.
    pub(crate) fn at(&self, places: &[usize]) -> Self {
        Self { set: self.set, indices: places.iter().map(|&place| self.indices[place]).collect() }
    }

    /// Refuses some trajectories of a set that contradicts itself.
    pub(crate) fn check(&self) -> Result<()> {
        self.set.check()
    }

    /// What holds for all trajectories of the set.
    pub fn description(&self) -> &'a Description {
        &self.set.description
    }

    /// The offset that all values of the set are relative to.
    pub fn offset(&self) -> &'a Offset {
        &self.set.offset
    }

    /// The position of each in the set.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    /// The number of each in its file, or among the trajectories first given.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().map(|&index| self.set.place(index).0)
    }

    /// Snapshots of each.
    pub fn frames(&self) -> impl Iterator<Item = usize> {
        self.indices.iter().map(|&index| self.set.trajectories[index].times.len())
    }

    /// The trajectories with their values.
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

    /// Those of this process, where several share the work: as many as each of the others has, or one more.
    pub(crate) fn own(&self) -> Self {
        let (rank, size) = job().map_or((0, 1), |ranks| (ranks.rank(), ranks.size()));
        let start = |rank: usize| (rank * self.indices.len()).div_ceil(size);
        Self { set: self.set, indices: self.indices[start(rank)..start(rank + 1)].to_vec() }
    }

    /// Parts of so many trajectories, one after another.
    pub(crate) fn portions(&self, size: usize) -> impl Iterator<Item = Self> {
        self.indices.chunks(size).map(|indices| Self { set: self.set, indices: indices.to_vec() })
    }
}
