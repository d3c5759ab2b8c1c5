//! Selection of training data: which snapshots of which trajectories are used.

use std::ops::Range;

use cfo_data::{Split, thin};
use cfo_numerics::{Clock, groups, mean_time, nearness};

use crate::error::{CfoError, Result};
use crate::measure::smoothing::Denoiser;
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// The snapshots of one training trajectory that remain after dropping and subsampling.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    pub(crate) trajectory: usize,
    /// Index of the first snapshot before subsampling.
    pub(crate) first: usize,
    pub(crate) frames: Vec<usize>,
    /// Number of snapshots merged into each knot of the path; empty if nothing is merged.
    pub(crate) counts: Vec<u32>,
}

impl Selection {
    pub(crate) fn of_set(recipe: &Recipe, set: &Trajectories) -> Result<Vec<Self>> {
        let (config, seed) = (&recipe.data, recipe.data_seed());
        let first = usize::from(config.drop_first);
        let of = |(trajectory, times): (usize, &[f64])| {
            let count = times.len().saturating_sub(first);
            if count < 2 {
                return Err(CfoError::bad_data(
                    format!("trajectory {trajectory} has {count} snapshots; training needs at least 2"),
                    "remove it, or set `data.drop_first = false`",
                ));
            }
            let kept = thin::kept(count, config.keep_rate, seed, set.number(trajectory));
            let frames: Vec<usize> = kept.into_iter().map(|frame| first + frame).collect();
            let own: Vec<f64> = frames.iter().map(|&frame| times[frame]).collect();
            let groups = groups(&own, config.merge_below.unwrap_or_else(|| nearness(&own)));
            let merged = groups.len() < frames.len();
            if groups.len() < 2 {
                return Err(CfoError::bad_data(
                    format!(
                        "all snapshots of trajectory {trajectory} are closer in time than `data.merge_below`"
                    ),
                    "lower `data.merge_below`, or remove the trajectory",
                ));
            }
            let counts = groups.iter().filter(|_| merged).map(|group| group.len() as u32).collect();
            Ok(Self { trajectory, first, frames, counts })
        };
        set.part(Split::Train).map(|(i, trajectory)| of((i, &trajectory.times))).collect()
    }

    /// Returns the number of knots of the path, at least two.
    pub(crate) fn len(&self) -> usize {
        if self.counts.is_empty() { self.frames.len() } else { self.counts.len() }
    }

    /// Returns the number of snapshots merged into each knot.
    pub(crate) fn measurements(&self) -> impl Iterator<Item = u32> {
        (0..self.len()).map(|knot| self.counts.get(knot).copied().unwrap_or(1))
    }

    /// Returns the range of `frames` that some knots consist of.
    pub(crate) fn frames_of(&self, knots: Range<usize>) -> Range<usize> {
        if self.counts.is_empty() {
            return knots;
        }
        let before = |knot: usize| self.counts[..knot].iter().map(|&count| count as usize).sum::<usize>();
        let start = before(knots.start);
        start..start + self.counts[knots].iter().map(|&count| count as usize).sum::<usize>()
    }

    /// Reads the states at some knots, in the user's units. Merged snapshots are averaged.
    pub(crate) fn read(&self, set: &Trajectories, knots: Range<usize>, out: &mut [f32]) -> Result<()> {
        let frames = &self.frames[self.frames_of(knots.clone())];
        let counts = self.counts.get(knots).unwrap_or_default();
        read_means(set, self.trajectory, frames, counts, out)
    }

    /// Returns the states at all knots as training uses them, in the user's units: smoothed if there is a denoiser.
    pub(crate) fn snapshots(&self, set: &Trajectories, denoiser: Option<&Denoiser>) -> Result<Vec<f32>> {
        let mut snapshots = vec![0.0; self.len() * set.description.shape.len()];
        self.read(set, 0..self.len(), &mut snapshots)?;
        if let Some(denoiser) = denoiser {
            let times = self.times(&set.trajectories[self.trajectory].times);
            denoiser.smooth(&times, &self.counts, &mut snapshots);
        }
        Ok(snapshots)
    }

    pub(crate) fn times(&self, times: &[f64]) -> Vec<f64> {
        let own: Vec<f64> = self.frames.iter().map(|&frame| times[frame]).collect();
        match self.counts.is_empty() {
            true => own,
            false => grouped(&own, &self.counts, 1).map(mean_time).collect(),
        }
    }

    /// Returns a warning about merged snapshots, or `None` if there are none.
    pub(crate) fn merged(selections: &[Self]) -> Option<String> {
        let merged: usize = selections.iter().map(|one| one.frames.len() - one.len()).sum();
        let trajectories = selections.iter().filter(|one| !one.counts.is_empty()).count();
        let plural =
            |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
        (merged > 0).then(|| {
            format!(
                "{} in {} at nearly the same time as the previous one: merged into their mean (`data.merge_below` sets the distance)",
                plural(merged, "snapshot", "snapshots"),
                plural(trajectories, "training trajectory is", "training trajectories are"),
            )
        })
    }
}

/// Reads snapshots of a trajectory and averages consecutive ones; `counts` gives the size of each group (empty: one each).
pub(crate) fn read_means(
    set: &Trajectories,
    trajectory: usize,
    frames: &[usize],
    counts: &[u32],
    out: &mut [f32],
) -> Result<()> {
    if counts.iter().all(|&count| count == 1) {
        return set.frames_into(trajectory, frames, out);
    }
    let size = set.description.shape.len();
    let read = set.frames(trajectory, frames)?;
    for (group, mean) in grouped(&read, counts, size).zip(out.chunks_exact_mut(size)) {
        if group.len() == size {
            mean.copy_from_slice(group);
            continue;
        }
        let count = (group.len() / size) as f64;
        for (position, mean) in mean.iter_mut().enumerate() {
            let values = group.iter().skip(position).step_by(size);
            *mean = (values.map(|&value| f64::from(value)).sum::<f64>() / count) as f32;
        }
    }
    Ok(())
}

/// Returns the groups of snapshots, of `size` values each, that are merged into one; `counts` are their sizes.
fn grouped<'a, T>(mut values: &'a [T], counts: &'a [u32], size: usize) -> impl Iterator<Item = &'a [T]> {
    counts.iter().map(move |&count| {
        let (group, rest) = values.split_at(count as usize * size);
        values = rest;
        group
    })
}

/// Start, durations and mean interval of a training set's times.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) start: f64,
    pub(crate) duration: f64,
    pub(crate) longest: f64,
    /// Mean time between neighbouring snapshots before subsampling.
    pub(crate) interval: f64,
}

impl Times {
    /// Converts times to a clock's readings. The start and the end are unchanged.
    pub(crate) fn by(self, clock: Clock, times: Vec<f64>) -> Vec<f64> {
        let Self { start, duration, .. } = self;
        match clock {
            Clock::Even => times,
            _ => {
                times.iter().map(|time| start + duration * clock.reading((time - start) / duration)).collect()
            }
        }
    }

    pub(crate) fn of(selections: &[Selection], set: &Trajectories) -> Result<Self> {
        let (mut start, mut end) = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut longest, mut lengths, mut intervals) = (0.0_f64, 0.0, 0);
        for selection in selections {
            let times = &set.trajectories[selection.trajectory].times[selection.first..];
            let (first, last) = (times[0], times[times.len() - 1]);
            (start, end) = (start.min(first), end.max(last));
            longest = longest.max(last - first);
            lengths += last - first;
            intervals += times.len() - 1;
        }
        let duration = end - start;
        if selections.is_empty() || !(longest > 0.0 && duration.is_finite()) {
            return Err(CfoError::bad_data(
                format!("{} training trajectories span no time", selections.len()),
                "`cfo inspect` shows times and splits",
            ));
        }
        Ok(Self { start, duration, longest, interval: lengths / intervals as f64 })
    }
}
