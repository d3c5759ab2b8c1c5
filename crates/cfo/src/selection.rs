//! What training sees of a set: which snapshots of which trajectories.

use cfo_data::{Split, thin};
use cfo_numerics::Clock;

use crate::error::{CfoError, Result};
use crate::recipe::Recipe;
use crate::smoothing::Denoiser;
use crate::trajectories::Trajectories;

/// The snapshots of one training trajectory that are left after dropping and thinning.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selection {
    /// Position of the trajectory in its set.
    pub(crate) trajectory: usize,
    /// Snapshots before thinning start here.
    pub(crate) first: usize,
    /// The snapshots, in increasing order; two at least.
    pub(crate) frames: Vec<usize>,
}

impl Selection {
    /// Of every training trajectory of a set.
    ///
    /// # Errors
    /// If a trajectory is too short.
    pub(crate) fn of_set(recipe: &Recipe, set: &Trajectories) -> Result<Vec<Self>> {
        let (config, seed) = (&recipe.data, recipe.data_seed());
        let first = usize::from(config.drop_first);
        let of = |(trajectory, times): (usize, &[f64])| {
            let count = times.len().saturating_sub(first);
            if count < 2 {
                return Err(CfoError::BadData {
                    problem: format!(
                        "trajectory {trajectory} has {count} snapshots; training needs at least 2"
                    ),
                    hint: "leave it out, or set `data.drop_first = false`".into(),
                });
            }
            let kept = thin::kept(count, config.keep_rate, seed, set.number(trajectory));
            let frames = kept.into_iter().map(|frame| first + frame).collect();
            Ok(Self { trajectory, first, frames })
        };
        set.part(Split::Train).map(|(i, trajectory)| of((i, &trajectory.times))).collect()
    }

    /// The snapshots themselves as training sees them, in the user's units: without noise, if there is something that takes it
    /// off.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn snapshots(&self, set: &Trajectories, denoiser: Option<&Denoiser>) -> Result<Vec<f32>> {
        let mut snapshots = set.frames(self.trajectory, &self.frames)?;
        if let Some(denoiser) = denoiser {
            denoiser.smooth(&self.times(&set.trajectories[self.trajectory].times), &mut snapshots);
        }
        Ok(snapshots)
    }

    /// The times of the snapshots.
    pub(crate) fn times(&self, times: &[f64]) -> Vec<f64> {
        self.frames.iter().map(|&frame| times[frame]).collect()
    }
}

/// What the times of a training set say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// The first of all.
    pub(crate) start: f64,
    /// From there to the last of all.
    pub(crate) duration: f64,
    /// Of the longest trajectory.
    pub(crate) longest: f64,
    /// Mean time between neighbouring snapshots before thinning.
    pub(crate) interval: f64,
}

impl Times {
    /// Times as a clock shows them: those of the start and the end stay.
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
            return Err(CfoError::BadData {
                problem: format!("{} training trajectories span no time", selections.len()),
                hint: "`cfo inspect` shows times and splits".into(),
            });
        }
        Ok(Self { start, duration, longest, interval: lengths / intervals as f64 })
    }
}
