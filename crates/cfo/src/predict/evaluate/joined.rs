//! Joins the evaluations of several ranks, so that each rank has all of them.

use cfo_data::Trajectory;
use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, Judged};
use crate::error::Result;
use crate::predict::metrics::Sums;
use crate::predict::rollout::{Excursion, Prediction, RolloutDivergence};
use crate::ranks::from_all;

#[derive(Serialize, Deserialize)]
struct Found {
    judged: Vec<Judged>,
    sums: Option<Sums>,
    diverged: Vec<RolloutDivergence>,
    excursions: Vec<Excursion>,
    strangers: Vec<(usize, String)>,
    evaluations: usize,
    seconds: f64,
}

impl Comparison<'_> {
    /// Adds the evaluations of all other ranks.
    pub(super) fn join(&mut self, strangers: &mut Vec<(usize, String)>) -> Result<()> {
        let own = Found {
            judged: std::mem::take(&mut self.judged),
            sums: self.sums.take(),
            diverged: std::mem::take(&mut self.diverged),
            excursions: std::mem::take(&mut self.excursions),
            strangers: std::mem::take(strangers),
            evaluations: self.evaluations,
            seconds: std::mem::take(&mut self.seconds),
        };
        for found in from_all(&own)? {
            self.judged.extend(found.judged);
            match (&mut self.sums, found.sums) {
                (Some(sums), Some(more)) => sums.merge(more),
                (sums, more) => *sums = more,
            }
            self.diverged.extend(found.diverged);
            self.excursions.extend(found.excursions);
            strangers.extend(found.strangers);
            self.evaluations = self.evaluations.max(found.evaluations);
            self.seconds += found.seconds;
        }
        Ok(())
    }

    /// Returns the trajectory with the highest error if another rank rolled it out, so that its states are not available here.
    pub(super) fn worst_elsewhere(&mut self) -> Option<usize> {
        let arrived = self.judged.iter().filter_map(|one| Some((one.index, one.error?)));
        let worst = arrived.fold(None, |worst: Option<(usize, f64)>, (index, error)| match worst {
            Some((_, most)) if error <= most => worst,
            _ => Some((index, error)),
        });
        let here = self.worst.as_ref().map(|worst| worst.index);
        let elsewhere = worst.map(|(index, _)| index).filter(|&index| here != Some(index));
        if elsewhere.is_some() {
            self.worst = None;
        }
        elsewhere
    }

    /// Compares trajectories with the worst one so far. Their errors are already counted.
    pub(super) fn look_at(&mut self, trajectories: &[(usize, &Trajectory)], found: &Prediction) {
        for (place, &(index, trajectory)) in trajectories.iter().enumerate() {
            let (judged, _) = self.judge((index, trajectory), found, place);
            self.keep_worst(&judged, trajectory, &found.states[place]);
        }
    }
}
