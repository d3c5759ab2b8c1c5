//! Comparison of predicted trajectories with true ones: the errors of each and their summary.

use cfo_data::Trajectory;
use cfo_numerics::metric::{Summary, relative_l2, relative_l2_per_time};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::time_bins::TimeBins;
use super::{RelativeL2, Report, TimeError, Worst, first_frame};
use crate::model::Model;
use crate::predict::metrics::Sums;
use crate::predict::rollout::{Excursion, Prediction, RolloutDivergence};

/// Errors so far. Trajectories are added in portions; only the states of the worst are kept, to limit memory.
pub(super) struct Comparison<'a> {
    pub(super) model: &'a Model,
    pub(super) judged: Vec<Judged>,
    pub(super) sums: Option<Sums>,
    pub(super) diverged: Vec<RolloutDivergence>,
    pub(super) excursions: Vec<Excursion>,
    pub(super) worst: Option<Worst>,
    pub(super) evaluations: usize,
    pub(super) seconds: f64,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Judged {
    pub(super) index: usize,
    pub(super) error: Option<f64>,
    pub(super) times: Vec<f64>,
    /// Error of each snapshot; empty if the trajectory diverged.
    pub(super) course: Vec<f64>,
}

impl<'a> Comparison<'a> {
    /// Creates an empty comparison. With `metrics` it includes PDEBench's metrics and others.
    pub(super) fn new(model: &'a Model, metrics: bool) -> Self {
        let sums = metrics.then(|| Sums::new(model));
        let (judged, diverged, excursions) = (Vec::new(), Vec::new(), Vec::new());
        Self { model, judged, sums, diverged, excursions, worst: None, evaluations: 0, seconds: 0.0 }
    }

    /// Adds predictions for indexed trajectories. One that diverged has no error and does not affect the others.
    pub(super) fn add(&mut self, trajectories: &[(usize, &Trajectory)], found: &Prediction, seconds: f64) {
        self.seconds += seconds;
        self.evaluations = self.evaluations.max(found.evaluations);
        let number = |place: usize| trajectories[place].0;
        self.diverged.extend(found.diverged.iter().map(|one| one.numbered(number)));
        self.excursions.extend(found.excursions.iter().map(|one| one.numbered(number)));
        let judged: Vec<(Judged, Option<Sums>)> =
            (0..trajectories.len()).into_par_iter().map(|i| self.judge(trajectories[i], found, i)).collect();
        for (i, (judged, sums)) in judged.into_iter().enumerate() {
            if let (Some(all), Some(one)) = (&mut self.sums, sums) {
                all.merge(one);
            }
            self.keep_worst(&judged, trajectories[i].1, &found.states[i]);
            self.judged.push(judged);
        }
    }

    pub(super) fn judge(
        &self,
        (index, trajectory): (usize, &Trajectory),
        found: &Prediction,
        place: usize,
    ) -> (Judged, Option<Sums>) {
        let (size, first) = (self.model.shape().len(), first_frame(self.model));
        let times = trajectory.times[first..].to_vec();
        if found.diverged.iter().any(|one| one.trajectory == place) {
            return (Judged { index, error: None, times, course: Vec::new() }, None);
        }
        let (prediction, truth) = (&found.states[place], &trajectory.values[first * size..]);
        let offset = self.model.scaling.offset();
        // Relative errors need absolute states.
        match offset.is_none() {
            true => self.measure(index, prediction, truth, times),
            false => self.measure(index, &offset.absolute(prediction), &offset.absolute(truth), times),
        }
    }

    /// Computes the errors of a prediction, in any precision.
    fn measure<V: Copy + Into<f64>>(
        &self,
        index: usize,
        prediction: &[V],
        truth: &[V],
        times: Vec<f64>,
    ) -> (Judged, Option<Sums>) {
        let error = Some(relative_l2(prediction, truth));
        let course = relative_l2_per_time(prediction, truth, times.len());
        let sums = self.sums.is_some().then(|| Sums::of(self.model, prediction, truth, &times));
        (Judged { index, error, times, course }, sums)
    }

    pub(super) fn keep_worst(&mut self, judged: &Judged, trajectory: &Trajectory, prediction: &[f32]) {
        let Some(error) = judged.error else { return };
        if self.worst.as_ref().is_some_and(|worst| error <= worst.error) {
            return;
        }
        let (size, first) = (self.model.shape().len(), first_frame(self.model));
        let frames = trajectory.times.len();
        let truth = Trajectory {
            times: trajectory
                .times
                .part(first..frames)
                .expect("a trajectory without times is refused before"),
            values: trajectory.values[first * size..].to_vec(),
            inputs: trajectory.inputs.clone(),
        };
        self.worst = Some(Worst { index: judged.index, error, truth, prediction: prediction.to_vec() });
    }

    pub(super) fn report(self) -> Report {
        let mut judged = self.judged;
        judged.sort_by_key(|one| one.index);
        let errors: Vec<f64> = judged.iter().filter_map(|one| one.error).collect();
        let finals: Vec<f64> = judged.iter().filter_map(|one| one.course.last().copied()).collect();
        let Summary { mean, deviation: std, .. } = Summary::of(&errors);
        let relative_l2 = RelativeL2 {
            mean,
            std,
            indices: judged.iter().map(|one| one.index).collect(),
            per_trajectory: judged.iter().map(|one| one.error).collect(),
            final_time: Summary::of(&finals).mean,
        };
        Report {
            relative_l2,
            per_time: per_time(&judged),
            evaluations: self.evaluations,
            seconds_per_trajectory: self.seconds / judged.len().max(1) as f64,
            channels: self.sums.as_ref().map_or(Vec::new(), |sums| sums.channels(&self.model.channel_names)),
            metrics: self.sums.map(|sums| sums.metrics(errors.len())),
            diverged: self.diverged,
            excursions: self.excursions,
            worst: self.worst,
            miss: None,
            strangers: Vec::new(),
        }
    }
}

/// Returns means over the snapshots at each time.
fn per_time(judged: &[Judged]) -> Vec<TimeError> {
    let arrived = || judged.iter().filter(|one| !one.course.is_empty());
    let Some(spans) = TimeBins::of(arrived().map(|one| &one.times[..])) else { return Vec::new() };
    let mut bins: Vec<Vec<(f64, f64)>> = vec![Vec::new(); spans.count()];
    for one in arrived() {
        for (frame, (&time, &error)) in one.times.iter().zip(&one.course).enumerate() {
            bins[spans.bin(frame, time)].push((time, error));
        }
    }
    let filled = bins.iter().filter(|bin| !bin.is_empty());
    filled
        .map(|bin| {
            let (times, errors): (Vec<f64>, Vec<f64>) = bin.iter().copied().unzip();
            let Summary { mean, greatest, .. } = Summary::of(&errors);
            TimeError { time: Summary::of(&times).mean, relative_l2: mean, worst: greatest }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(times: &[f64], course: &[f64]) -> Judged {
        Judged { index: 0, error: Some(0.0), times: times.to_vec(), course: course.to_vec() }
    }

    #[test]
    fn shared_times_are_averaged_frame_by_frame() {
        let found = per_time(&[judged(&[0.0, 1.0, 5.0], &[0.0, 0.2, 0.4]), judged(&[0.0, 1.0], &[0.0, 0.4])]);
        let pairs: Vec<(f64, f64)> = found.iter().map(|at| (at.time, at.relative_l2)).collect();
        assert_eq!(pairs.len(), 3);
        assert!((pairs[1].1 - 0.3).abs() < 1e-15 && pairs[1].0 == 1.0);
        assert_eq!((pairs[2], found[1].worst), ((5.0, 0.4), 0.4));
    }

    /// Checks that an error which is a function of time is reported as that function, with increasing times, whatever the trajectories'
    /// times are.
    #[test]
    fn other_times_are_averaged_by_time() {
        let trajectories: Vec<Judged> = (0..20)
            .map(|i| {
                let times: Vec<f64> =
                    (0..10 + i % 7).map(|k| 0.3 * f64::from(i) + f64::from(k * k) * 0.05).collect();
                let course: Vec<f64> = times.iter().map(|t| 0.1 * t).collect();
                judged(&times, &course)
            })
            .collect();
        let found = per_time(&trajectories);
        assert!(found.len() > 8);
        assert!(found.windows(2).all(|pair| pair[1].time > pair[0].time));
        for at in &found {
            assert!((at.relative_l2 - 0.1 * at.time).abs() < 1e-12, "{at:?}");
        }
        assert!(per_time(&[]).is_empty());
    }
}
