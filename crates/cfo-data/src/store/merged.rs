//! A view of a file in which snapshots at nearly equal times are merged into their mean.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cfo_numerics::{groups, mean_time, nearness};

use super::layout::{Contents, TrajectorySource};
use crate::{DataError, Split, TrajectoryInputs};

/// Merges snapshots of another source.
pub(super) struct Merged {
    source: Arc<dyn TrajectorySource>,
    /// The groups of each trajectory that was read; `None` if nothing is merged.
    known: Mutex<HashMap<usize, Option<Groups>>>,
}

/// Ranges of snapshots that are merged.
type Groups = Arc<[Range<usize>]>;

impl Merged {
    pub fn new(source: Arc<dyn TrajectorySource>) -> Self {
        Self { source, known: Mutex::default() }
    }

    fn groups(&self, trajectory: usize) -> Result<Option<Groups>, DataError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.get(&trajectory) {
            return Ok(found.clone());
        }
        let times = self.source.times(trajectory)?;
        let sound = times.windows(2).all(|pair| pair[0] < pair[1]);
        let found =
            sound.then(|| groups(&times, nearness(&times))).filter(|groups| groups.len() < times.len());
        let found = found.map(Groups::from);
        known.insert(trajectory, found.clone());
        Ok(found)
    }

    /// Merged snapshots from those that `read` returns, with means rounded by `round`.
    fn merge<T: Copy + Into<f64>>(
        &self,
        trajectory: usize,
        first: usize,
        count: usize,
        read: impl Fn(usize, usize) -> Result<Vec<T>, DataError>,
        round: impl Fn(f64) -> T,
    ) -> Result<Vec<T>, DataError> {
        let Some(groups) = self.groups(trajectory)? else { return read(first, count) };
        let own = &groups[first..first + count];
        let (Some(start), Some(end)) = (own.first(), own.last()) else { return Ok(Vec::new()) };
        let read = read(start.start, end.end - start.start)?;
        let size = self.contents().description.shape.len();
        Ok(means(own, size, |place| read[place].into()).map(round).collect())
    }
}

/// Means of consecutive groups of snapshots with `size` values each.
fn means(groups: &[Range<usize>], size: usize, values: impl Fn(usize) -> f64) -> impl Iterator<Item = f64> {
    let first = groups.first().map_or(0, |group| group.start);
    groups.iter().flat_map(move |group| {
        let values = &values;
        let group = group.start - first..group.end - first;
        (0..size)
            .map(move |position| {
                let count = group.len() as f64;
                group.clone().map(|frame| values(frame * size + position)).sum::<f64>() / count
            })
            .collect::<Vec<f64>>()
    })
}

impl TrajectorySource for Merged {
    fn contents(&self) -> &Contents {
        self.source.contents()
    }

    fn frames(&self, trajectory: usize) -> Result<usize, DataError> {
        match self.groups(trajectory)? {
            Some(groups) => Ok(groups.len()),
            None => self.source.frames(trajectory),
        }
    }

    fn times(&self, trajectory: usize) -> Result<Vec<f64>, DataError> {
        let times = self.source.times(trajectory)?;
        Ok(match self.groups(trajectory)? {
            Some(groups) => groups.iter().map(|group| mean_time(&times[group.clone()])).collect(),
            None => times,
        })
    }

    fn values(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f32>, DataError> {
        let read = |first: usize, count: usize| self.source.values(trajectory, first, count);
        self.merge(trajectory, first, count, read, |value| value as f32)
    }

    fn doubles(&self, trajectory: usize, first: usize, count: usize) -> Result<Vec<f64>, DataError> {
        let read = |first: usize, count: usize| self.source.doubles(trajectory, first, count);
        self.merge(trajectory, first, count, read, |value| value)
    }

    fn inputs(&self, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        self.source.inputs(trajectory)
    }

    fn split(&self, trajectory: usize) -> Option<Split> {
        self.source.split(trajectory)
    }
}
