//! Joins the evaluations of several ranks, so that each rank has all of them.

use cfo_data::Trajectory;
use serde::{Deserialize, Serialize};

use super::comparison::{Comparison, Judged};
use crate::error::Result;
use crate::predict::metrics::Sums;
use crate::predict::rollout::{Divergence, Excursion, Prediction};
use crate::ranks::from_all;

/// The evaluation of a rank as it is sent. Floating-point numbers are stored as their bits, because the text format has no NaN or infinity.
#[derive(Serialize, Deserialize)]
struct Found {
    judged: Vec<Seen>,
    sums: Option<Vec<u64>>,
    /// Times and states are finite numbers, which the text format preserves exactly.
    diverged: Vec<Divergence>,
    excursions: Vec<Excursion>,
    strangers: Vec<(usize, String)>,
    evaluations: usize,
    seconds: f64,
}

/// The errors of a trajectory: its index, its error, its times and the error at each.
type Seen = (usize, Option<u64>, Vec<u64>, Vec<u64>);

fn bits(numbers: &[f64]) -> Vec<u64> {
    numbers.iter().map(|number| number.to_bits()).collect()
}

fn numbers(bits: &[u64]) -> Vec<f64> {
    bits.iter().map(|&bits| f64::from_bits(bits)).collect()
}

impl Comparison<'_> {
    /// Adds the evaluations of all other ranks.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn join(&mut self, strangers: &mut Vec<(usize, String)>) -> Result<()> {
        let seen =
            |one: Judged| (one.index, one.error.map(f64::to_bits), bits(&one.times), bits(&one.course));
        let own = Found {
            judged: self.judged.drain(..).map(seen).collect(),
            sums: self.sums.as_ref().map(|sums| bits(&sums.to_numbers())),
            diverged: std::mem::take(&mut self.diverged),
            excursions: std::mem::take(&mut self.excursions),
            strangers: std::mem::take(strangers),
            evaluations: self.evaluations,
            seconds: std::mem::take(&mut self.seconds),
        };
        let mut sums = self.sums.is_some().then(|| Sums::new(self.model));
        for found in from_all(&own)? {
            self.judged.extend(found.judged.into_iter().map(|(index, error, times, course)| Judged {
                index,
                error: error.map(f64::from_bits),
                times: numbers(&times),
                course: numbers(&course),
            }));
            if let (Some(sums), Some(more)) = (&mut sums, &found.sums) {
                sums.merge_numbers(&numbers(more));
            }
            self.diverged.extend(found.diverged);
            self.excursions.extend(found.excursions);
            strangers.extend(found.strangers);
            self.evaluations = self.evaluations.max(found.evaluations);
            self.seconds += found.seconds;
        }
        self.sums = sums;
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
