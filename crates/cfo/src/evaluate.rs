//! Evaluation: rollouts of whole trajectories from their first snapshot, and how far they are from the truth.

use std::time::Instant;

use cfo_data::Trajectory;
use cfo_engine::Memory;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::rollout::{Prediction, Request, Rollout, Solver};

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
        request.start.push(trajectory.times[first]);
        request.states.push(trajectory.values[first * size..(first + 1) * size].to_vec());
        request.times.push(trajectory.times[first + 1..].to_vec());
        request.conditions.push(trajectory.parameters.clone());
    }
    let batch = trajectories.len().min((BATCH_VALUES / size).max(1)).min(500);
    let mut rollout = Rollout::new(model, memory, batch, solver.tableau, prefix)?;
    let started = Instant::now();
    let Prediction { states, evaluations } = rollout.predict(memory, &request, solver.budget)?;
    let seconds_per_trajectory = started.elapsed().as_secs_f64() / trajectories.len() as f64;

    let predictions: Vec<Vec<f32>> = states
        .into_iter()
        .zip(&request.states)
        .map(|(rest, start)| start.iter().copied().chain(rest).collect())
        .collect();
    let truths: Vec<&[f32]> =
        trajectories.iter().map(|trajectory| &trajectory.values[first * size..]).collect();
    let per_trajectory: Vec<f64> = predictions.iter().zip(&truths).map(|(p, q)| relative(p, q)).collect();
    let last = |values: &[f32]| values.len() - size;
    let finals = predictions.iter().zip(&truths).map(|(p, q)| relative(&p[last(p)..], &q[last(q)..]));
    let final_time = finals.sum::<f64>() / trajectories.len() as f64;
    let [mean, std] = mean_and_deviation(&per_trajectory);
    let per_time = per_time(model, trajectories, &predictions, first);
    let relative_l2 = RelativeL2 { mean, std, per_trajectory, final_time };
    Ok(Report { relative_l2, per_time, evaluations, seconds_per_trajectory, predictions })
}

/// `|prediction - truth| / |truth|`, both norms over all values.
pub fn relative(prediction: &[f32], truth: &[f32]) -> f64 {
    let (mut error, mut size) = (0.0, 0.0);
    for (&p, &q) in prediction.iter().zip(truth) {
        let (p, q) = (f64::from(p), f64::from(q));
        error += (p - q) * (p - q);
        size += q * q;
    }
    (error / size).sqrt()
}

fn mean_and_deviation(values: &[f64]) -> [f64; 2] {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    [mean, variance.sqrt()]
}

fn per_time(
    model: &Model,
    trajectories: &[&Trajectory],
    predictions: &[Vec<f32>],
    first: usize,
) -> Vec<TimeError> {
    let size = model.shape().len();
    let frames = trajectories.iter().map(|trajectory| trajectory.times.len() - first).max().unwrap_or(0);
    (0..frames)
        .map(|frame| {
            let (mut time, mut error, mut count) = (0.0, 0.0, 0.0);
            for (trajectory, prediction) in trajectories.iter().zip(predictions) {
                if let Some(t) = trajectory.times.get(first + frame) {
                    let truth = &trajectory.values[(first + frame) * size..(first + frame + 1) * size];
                    time += t;
                    error += relative(&prediction[frame * size..(frame + 1) * size], truth);
                    count += 1.0;
                }
            }
            TimeError { time: time / count, relative_l2: error / count }
        })
        .collect()
}
