//! Evaluation: rollouts of whole trajectories from their first snapshot, and how far they are from the truth.

use std::sync::atomic::AtomicBool;
use std::time::Instant;

use cfo_data::Trajectory;
use cfo_device::Device;
use cfo_engine::{Data, Memory, Role};
use cfo_numerics::metric::{Summary, relative_l2, relative_l2_per_time};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::metrics::{Metrics, Sums};
use crate::model::Model;
use crate::recipe::RolloutPrecision;
use crate::rollout::{Budget, Divergence, Request, Rollout, Solver};

/// Trajectories of a rollout batch at most.
const MOST: usize = 500;

/// Numbers that a rollout batch holds at most: enough to keep a GPU busy. A step of the CPU ends within a second or so, since that
/// is how long an interrupt waits.
fn batch_values(memory: &Memory) -> usize {
    if memory.is_asynchronous() { 1 << 21 } else { 1 << 16 }
}

/// Errors over a set of trajectories.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RelativeL2 {
    /// Mean over the trajectories that arrived.
    pub mean: f64,
    /// Standard deviation over them.
    pub std: f64,
    /// Index of each trajectory in its set or file.
    #[serde(default)]
    pub indices: Vec<usize>,
    /// Of each trajectory over all its snapshots, the first included; none for one that diverged.
    pub per_trajectory: Vec<Option<f64>>,
    /// Mean at the last snapshot alone.
    pub final_time: f64,
}

/// The error at a time, over the trajectories that have a snapshot there.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TimeError {
    /// Mean time of the snapshots.
    pub time: f64,
    /// Mean relative L2 error.
    pub relative_l2: f64,
    /// Relative L2 error of the trajectory that is worst there.
    pub worst: f64,
}

/// What evaluation finds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The paper's metric.
    pub relative_l2: RelativeL2,
    /// Its course over time: at each snapshot if all trajectories share their times, else over as many equal spans of time as
    /// the longest has snapshots.
    pub per_time: Vec<TimeError>,
    /// Network evaluations for one trajectory.
    pub evaluations: usize,
    /// Seconds of integration for one trajectory, many in one batch.
    pub seconds_per_trajectory: f64,
    /// PDEBench's metrics and others, where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// The trajectories that did not arrive, by their index; not part of the written report.
    #[serde(skip)]
    pub diverged: Vec<Divergence>,
    /// The trajectory with the highest error; not part of the written report.
    #[serde(skip)]
    pub worst: Option<Worst>,
}

/// The trajectory with the highest error.
#[derive(Clone, Debug)]
pub struct Worst {
    /// Its index.
    pub index: usize,
    /// Its relative L2 error.
    pub error: f64,
    /// Its times and snapshots, from the one on that is predicted from.
    pub truth: Trajectory,
    /// Its predicted snapshots, in the user's units.
    pub prediction: Vec<f32>,
}

/// The snapshots of a trajectory that a model sees.
pub(crate) fn first_frame(model: &Model) -> usize {
    usize::from(model.recipe.data.drop_first)
}

/// Rolls out trajectories from their first snapshot over all their times and compares, in the precision that the recipe names for rollouts.
///
/// # Errors
/// If a trajectory does not fit the model or its rollout diverges.
pub fn evaluate(
    model: &Model,
    memory: &mut Memory,
    trajectories: &[&Trajectory],
    solver: &Solver,
    prefix: &str,
) -> Result<Report> {
    let mut other = weights_for_rollouts(model, memory)?;
    let memory = other.as_mut().unwrap_or(memory);
    let mut evaluation = Evaluation::new(model, memory, trajectories.len(), *solver, prefix)?;
    let numbered: Vec<(usize, &Trajectory)> = trajectories.iter().copied().enumerate().collect();
    evaluation.add(memory, &numbered)?;
    let report = evaluation.report();
    match report.diverged.first() {
        Some(&divergence) => Err(divergence.into()),
        None => Ok(report),
    }
}

/// A copy of the weights in the precision of rollouts, where that is another one than in training.
pub(crate) fn weights_for_rollouts(model: &Model, memory: &Memory) -> Result<Option<Memory>> {
    let device = Device::of(memory)?;
    let precision = model.recipe.rollout_precision_on(device);
    if model.recipe.evaluate.precision == RolloutPrecision::Same || precision == memory.precision() {
        return Ok(None);
    }
    let mut copy = Memory::new(device, precision)?.with_determinism(model.recipe.train.deterministic);
    for name in memory.names_where(Role::is_network) {
        let (value_type, values) = (memory.value_type(name)?, memory.read(name)?);
        let shape = value_type.shape.clone();
        copy.insert_as(memory.role(name)?, name, value_type.element, shape, Data::F32(&values))?;
    }
    Ok(Some(copy))
}

/// An evaluation under way. Trajectories may come in portions, and only the worst is kept, so that a large test set need not be in memory.
pub struct Evaluation<'a> {
    model: &'a Model,
    rollout: Rollout<'a>,
    budget: Budget,
    judged: Vec<Judged>,
    sums: Option<Sums>,
    diverged: Vec<Divergence>,
    worst: Option<Worst>,
    evaluations: usize,
    seconds: f64,
}

/// What remains of a trajectory.
struct Judged {
    index: usize,
    error: Option<f64>,
    times: Vec<f64>,
    /// Error of each snapshot; of none if it diverged.
    course: Vec<f64>,
}

impl<'a> Evaluation<'a> {
    /// Of `count` trajectories in all; weights are read under `prefix` (empty, or `ema/`).
    ///
    /// # Errors
    /// If memory does not hold the model's weights.
    pub fn new(
        model: &'a Model,
        memory: &mut Memory,
        count: usize,
        solver: Solver,
        prefix: &str,
    ) -> Result<Self> {
        let most = (batch_values(memory) / model.shape().len()).clamp(1, MOST);
        let rollout = Rollout::new(model, memory, count.clamp(1, most), solver.tableau, prefix)?;
        Ok(Self {
            model,
            rollout,
            budget: solver.budget,
            judged: Vec::new(),
            sums: None,
            diverged: Vec::new(),
            worst: None,
            evaluations: 0,
            seconds: 0.0,
        })
    }

    /// The same with PDEBench's metrics and others in the report.
    pub fn with_metrics(mut self) -> Self {
        self.sums = Some(Sums::new(self.model));
        self
    }

    /// The same, ended early by a flag that is looked at before each step.
    pub fn with_interrupt(mut self, interrupt: &'a AtomicBool) -> Self {
        self.rollout = self.rollout.with_interrupt(interrupt);
        self
    }

    /// The same, telling how many snapshots were predicted since it last told.
    pub fn with_observer(mut self, observer: impl FnMut(usize) + 'a) -> Self {
        self.rollout = self.rollout.with_observer(observer);
        self
    }

    /// Trajectories that are integrated together.
    pub fn batch(&self) -> usize {
        self.rollout.batch()
    }

    /// Rolls out trajectories, each with its index, and compares. Of those that diverge the error is not known; they cost the
    /// others nothing.
    ///
    /// # Errors
    /// If a trajectory does not fit the model, or the flag was set.
    pub fn add(&mut self, memory: &mut Memory, trajectories: &[(usize, &Trajectory)]) -> Result<()> {
        let request = self.request(trajectories)?;
        let started = Instant::now();
        let prediction = self.rollout.predict_each(memory, &request, self.budget)?;
        self.seconds += started.elapsed().as_secs_f64();
        self.evaluations = self.evaluations.max(prediction.evaluations);
        let name = |one: &Divergence| Divergence { trajectory: trajectories[one.trajectory].0, ..*one };
        let diverged: Vec<bool> = (0..trajectories.len())
            .map(|i| prediction.diverged.iter().any(|one| one.trajectory == i))
            .collect();
        self.diverged.extend(prediction.diverged.iter().map(name));
        let (model, with_sums) = (self.model, self.sums.is_some());
        let (size, first) = (model.shape().len(), first_frame(model));
        let found: Vec<(Judged, Option<Sums>)> = trajectories
            .par_iter()
            .zip(&prediction.states)
            .zip(&diverged)
            .map(|((&(index, trajectory), prediction), &diverged)| {
                let times = trajectory.times[first..].to_vec();
                if diverged {
                    return (Judged { index, error: None, times, course: Vec::new() }, None);
                }
                let truth = &trajectory.values[first * size..];
                let error = Some(relative_l2(prediction, truth));
                let course = relative_l2_per_time(prediction, truth, times.len());
                let sums = with_sums.then(|| Sums::of(model, prediction, truth, &times));
                (Judged { index, error, times, course }, sums)
            })
            .collect();
        for (i, (judged, sums)) in found.into_iter().enumerate() {
            if let (Some(all), Some(one)) = (&mut self.sums, sums) {
                all.merge(one);
            }
            if let Some(error) = judged.error
                && self.worst.as_ref().is_none_or(|worst| error > worst.error)
            {
                let trajectory = trajectories[i].1;
                let truth = Trajectory {
                    times: trajectory.times.part(first..trajectory.times.len()).expect("checked above"),
                    values: trajectory.values[first * size..].to_vec(),
                    parameters: trajectory.parameters.clone(),
                };
                let prediction = prediction.states[i].clone();
                self.worst = Some(Worst { index: judged.index, error, truth, prediction });
            }
            self.judged.push(judged);
        }
        Ok(())
    }

    /// From the first snapshot that the model sees to all of them.
    fn request(&self, trajectories: &[(usize, &Trajectory)]) -> Result<Request> {
        let (size, first) = (self.model.shape().len(), first_frame(self.model));
        let mut request = Request::default();
        for (index, trajectory) in trajectories {
            if trajectory.times.len() < first + 2 {
                return Err(CfoError::BadData {
                    problem: format!(
                        "trajectory {index} has {} snapshots; evaluation needs {}",
                        trajectory.times.len(),
                        first + 2
                    ),
                    hint: "leave it out of the test set".into(),
                });
            }
            if trajectory.values.len() != trajectory.times.len() * size {
                return Err(CfoError::BadData {
                    problem: format!(
                        "trajectory {index} has {} values for {} times of {size} values each",
                        trajectory.values.len(),
                        trajectory.times.len()
                    ),
                    hint: "values that were left in their file are read by `Trajectories::load`".into(),
                });
            }
            request.start.push(trajectory.times[first]);
            request.states.push(trajectory.values[first * size..(first + 1) * size].to_vec());
            request.times.push(trajectory.times[first..].to_vec());
            request.conditions.push(trajectory.parameters.clone());
        }
        Ok(request)
    }

    /// What was found.
    pub fn report(self) -> Report {
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
            metrics: self.sums.map(|sums| sums.metrics(errors.len())),
            diverged: self.diverged,
            worst: self.worst,
        }
    }
}

/// Means over the snapshots at a time.
fn per_time(judged: &[Judged]) -> Vec<TimeError> {
    let arrived = || judged.iter().filter(|one| !one.course.is_empty());
    let Some(longest) = arrived().map(|one| &one.times).max_by_key(|times| times.len()) else {
        return Vec::new();
    };
    let ends = arrived().flat_map(|one| [one.times[0], one.times[one.times.len() - 1]]);
    let [start, end] =
        ends.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], t| [low.min(t), high.max(t)]);
    let span = end - start;
    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * span;
    let shared = arrived().all(|one| one.times.iter().zip(longest).all(near));
    let count = longest.len();
    let mut bins: Vec<Vec<(f64, f64)>> = vec![Vec::new(); count];
    for one in arrived() {
        for (frame, (&time, &error)) in one.times.iter().zip(&one.course).enumerate() {
            let share = ((time - start) / span * count as f64) as usize;
            bins[if shared { frame } else { share.min(count - 1) }].push((time, error));
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

    /// An error that is a function of time is found as that function, and time does not run backward, whatever the trajectories' own times.
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
