//! Evaluation: rollouts of whole trajectories from their first snapshot, and how far they are from the truth.

use std::time::Instant;

use cfo_data::Trajectory;
use cfo_engine::Memory;
use cfo_numerics::metric::{Summary, relative_l2, relative_l2_per_time};
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::rollout::{Budget, Prediction, Request, Rollout, Solver};

/// Numbers that a rollout batch holds at most, so that big fields do not exhaust memory.
const BATCH_VALUES: usize = 1 << 21;

/// Errors over a set of trajectories.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RelativeL2 {
    /// Mean over trajectories.
    pub mean: f64,
    /// Standard deviation over trajectories.
    pub std: f64,
    /// Of each trajectory over all its snapshots, the first included.
    pub per_trajectory: Vec<f64>,
    /// Mean at the last snapshot alone.
    pub final_time: f64,
}

/// The error at one snapshot, over trajectories that have it.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct TimeError {
    /// Mean time of the snapshot.
    pub time: f64,
    /// Mean relative L2 error.
    pub relative_l2: f64,
    /// Relative L2 error of the trajectory that is worst there.
    pub worst: f64,
}

/// What evaluation finds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The paper's metric.
    pub relative_l2: RelativeL2,
    /// Its course over the snapshots.
    pub per_time: Vec<TimeError>,
    /// Network evaluations for one trajectory.
    pub evaluations: usize,
    /// Seconds of integration for one trajectory, all in one batch.
    pub seconds_per_trajectory: f64,
    /// The predicted snapshots, in the user's units; not part of the written report.
    #[serde(skip)]
    pub predictions: Vec<Vec<f32>>,
}

/// The snapshots of a trajectory that a model sees.
pub(crate) fn first_frame(model: &Model) -> usize {
    usize::from(model.recipe.data.drop_first)
}

/// Rolls out trajectories from their first snapshot over all their times and compares.
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
    let batch = batch_size(model, trajectories.len());
    let mut rollout = Rollout::new(model, memory, batch, solver.tableau, prefix)?;
    evaluate_on(&mut rollout, model, memory, trajectories, solver.budget)
}

/// Trajectories that are rolled out together.
pub(crate) fn batch_size(model: &Model, trajectories: usize) -> usize {
    trajectories.min((BATCH_VALUES / model.shape().len()).max(1)).clamp(1, 500)
}

/// The same by a rollout that is compiled already.
pub(crate) fn evaluate_on(
    rollout: &mut Rollout<'_>,
    model: &Model,
    memory: &mut Memory,
    trajectories: &[&Trajectory],
    budget: Budget,
) -> Result<Report> {
    let size = model.shape().len();
    let first = first_frame(model);
    let mut request = Request::default();
    for (i, trajectory) in trajectories.iter().enumerate() {
        if trajectory.times.len() < first + 2 {
            return Err(CfoError::BadData {
                problem: format!(
                    "trajectory {i} has {} snapshots; evaluation needs {}",
                    trajectory.times.len(),
                    first + 2
                ),
                hint: "leave it out of the test set".into(),
            });
        }
        if trajectory.values.len() != trajectory.times.len() * size {
            return Err(CfoError::BadData {
                problem: format!(
                    "trajectory {i} has {} values for {} times of {size} values each",
                    trajectory.values.len(),
                    trajectory.times.len()
                ),
                hint: "`TrajectorySet::load` reads what was left in a file".into(),
            });
        }
        request.start.push(trajectory.times[first]);
        request.states.push(trajectory.values[first * size..(first + 1) * size].to_vec());
        request.times.push(trajectory.times[first + 1..].to_vec());
        request.conditions.push(trajectory.parameters.clone());
    }
    let started = Instant::now();
    let Prediction { states, evaluations, .. } = rollout.predict(memory, &request, budget)?;
    let seconds_per_trajectory = started.elapsed().as_secs_f64() / trajectories.len() as f64;

    let predictions: Vec<Vec<f32>> = states
        .into_iter()
        .zip(&request.states)
        .map(|(rest, start)| start.iter().copied().chain(rest).collect())
        .collect();
    let truths: Vec<&[f32]> =
        trajectories.iter().map(|trajectory| &trajectory.values[first * size..]).collect();
    let pairs = || predictions.iter().zip(&truths);
    let per_trajectory: Vec<f64> = pairs().map(|(p, &q)| relative_l2(p, q)).collect();
    let courses: Vec<Vec<f64>> = pairs().map(|(p, &q)| relative_l2_per_time(p, q, q.len() / size)).collect();
    let finals: Vec<f64> = courses.iter().filter_map(|course| course.last().copied()).collect();
    let Summary { mean, deviation: std, .. } = Summary::of(&per_trajectory);
    let relative_l2 = RelativeL2 { mean, std, per_trajectory, final_time: Summary::of(&finals).mean };
    let per_time = per_time(trajectories, &courses, first);
    Ok(Report { relative_l2, per_time, evaluations, seconds_per_trajectory, predictions })
}

/// Means over the trajectories that have a snapshot.
fn per_time(trajectories: &[&Trajectory], courses: &[Vec<f64>], first: usize) -> Vec<TimeError> {
    let frames = courses.iter().map(Vec::len).max().unwrap_or(0);
    (0..frames)
        .map(|frame| {
            let there = || trajectories.iter().zip(courses).filter(|(_, course)| frame < course.len());
            let times: Vec<f64> = there().map(|(trajectory, _)| trajectory.times[first + frame]).collect();
            let errors: Vec<f64> = there().map(|(_, course)| course[frame]).collect();
            let Summary { mean, greatest, .. } = Summary::of(&errors);
            TimeError { time: Summary::of(&times).mean, relative_l2: mean, worst: greatest }
        })
        .collect()
}
