//! Evaluation: errors of rollouts of whole trajectories from their first snapshot.

mod comparison;
mod joined;
mod miss;
mod time_bins;

use std::borrow::Cow;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use cfo_data::Trajectory;
use cfo_engine::Memory;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::predict::Alignment;
pub use crate::predict::metrics::{Bands, ChannelReport, Metrics};
use crate::predict::rollout::{Budget, Excursion, Request, Rollout, RolloutDivergence, Watch};
use crate::ranks;
use crate::trajectories::Part;
use comparison::Comparison;
use miss::Misses;
pub use miss::{Miss, TimeMiss};

const MOST: usize = 500;

/// Returns how many of `count` trajectories are rolled out together: enough to occupy a GPU. On the CPU, a step lasts about a second at
/// most, because an interrupt waits for its end.
pub(crate) fn batch(model: &Model, memory: &Memory, count: usize) -> usize {
    let values = if memory.is_asynchronous() { 1 << 21 } else { 1 << 16 };
    let moving: usize = model.moving_shape(1).iter().product();
    count.clamp(1, (values / moving).clamp(1, MOST))
}

/// Relative L2 errors over a set of trajectories.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RelativeL2 {
    /// Mean over the trajectories that did not diverge.
    pub mean: f64,
    /// Standard deviation over these trajectories.
    pub std: f64,
    /// Index of each trajectory in its set or file.
    pub indices: Vec<usize>,
    /// Error of each trajectory over all its snapshots, including the first; `None` if it diverged.
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

/// The result of an evaluation.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// The paper's metric.
    pub relative_l2: RelativeL2,
    /// The error over time: at each snapshot if all trajectories share their times, else in equal spans of time, as many as the longest
    /// trajectory has snapshots.
    pub per_time: Vec<TimeError>,
    /// Network evaluations for one trajectory.
    pub evaluations: usize,
    /// Seconds of integration per trajectory, computed in batches.
    pub seconds_per_trajectory: f64,
    /// Metrics of PDEBench and others, if they were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Metrics>,
    /// Errors of each channel relative to its standard deviation, if metrics were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ChannelReport>,
    /// By how much solutions over one interval miss the next snapshot, if metrics were requested. `None` for models of whole trajectories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub miss: Option<Miss>,
    /// The trajectories that diverged, with their index; not part of the written report.
    #[serde(skip)]
    pub diverged: Vec<RolloutDivergence>,
    /// The trajectories far outside the range of the training data, with their index; not part of the written report.
    #[serde(skip)]
    pub excursions: Vec<Excursion>,
    /// The trajectory with the highest error; not part of the written report.
    #[serde(skip)]
    pub worst: Option<Worst>,
    /// Trajectories with PDE parameters outside the range of the training data, with a description; not part of the written report.
    #[serde(skip)]
    pub strangers: Vec<(usize, String)>,
}

impl Report {
    /// Returns warnings: parameters and times outside the range of the training data, and rollouts far outside it.
    pub fn warnings(&self, model: &Model) -> Vec<String> {
        let strangers = strangers_warning(&self.strangers);
        let times: Vec<f64> = self.per_time.iter().map(|at| at.time).collect();
        let beyond = times
            .first()
            .filter(|_| model.is_timed())
            .and_then(|&start| model.beyond_times(&[start], &times));
        let excursions = Excursion::warning(model, &self.excursions);
        strangers.into_iter().chain(beyond).chain(excursions).collect()
    }
}

/// Returns a warning that describes the first trajectory with parameters outside the range of the training data, and the number of them.
pub fn strangers_warning(strangers: &[(usize, String)]) -> Option<String> {
    let (index, text) = strangers.first()?;
    let rest = match strangers.len() {
        1 => String::new(),
        count => format!(" (and in {} more trajectories)", count - 1),
    };
    Some(format!("trajectory {index}: {text}{rest}; beyond that it extrapolates"))
}

/// The trajectory with the highest error.
#[derive(Clone, Debug)]
pub struct Worst {
    /// Its index.
    pub index: usize,
    /// Its relative L2 error.
    pub error: f64,
    /// Its times and snapshots, starting with the initial one, relative to the model's offset.
    pub truth: Trajectory,
    /// Its predicted snapshots, in the user's units and relative to the model's offset.
    pub prediction: Vec<f32>,
}

/// Returns the index of the first snapshot that the model uses.
pub(crate) fn first_frame(model: &Model) -> usize {
    usize::from(model.recipe.data.drop_first)
}

/// Returns the number of snapshots that an evaluation of a part with metrics computes, for its progress.
pub fn snapshots(model: &Model, part: &Part<'_>) -> usize {
    part.frames().sum::<usize>() + miss::intervals(model, part)
}

#[derive(Debug, Default)]
pub(crate) struct Evaluator<'a> {
    /// Largest number of values of true snapshots in memory; predictions need as much again.
    pub(crate) held: usize,
    /// Whether the report has PDEBench's metrics and others, and the miss.
    pub(crate) metrics: bool,
    pub(crate) watch: Watch<'a>,
}

impl Evaluator<'_> {
    /// Returns the number of trajectories of a part that are in memory at a time.
    pub(crate) fn portion(&self, model: &Model, part: &Part<'_>) -> usize {
        let longest = part.frames().max().unwrap_or(1).max(1);
        (self.held / (longest * model.shape().len())).max(1)
    }

    /// Rolls out the trajectories of a part over all their times, from the first snapshot that the model uses, and returns their errors.
    ///
    /// # Errors
    /// If a trajectory does not fit the model or cannot be read, or the evaluation is interrupted.
    pub(crate) fn run(
        &self,
        model: &Model,
        (rollout, memory): (&mut Rollout, &mut Memory),
        budget: Budget,
        part: &Part<'_>,
    ) -> Result<Report> {
        let alignment = Alignment::new(model, part.description(), part.offset())?;
        let (portion, batch) = (self.portion(model, part), rollout.batch());
        // Full batches, except for the last one.
        let portion = (portion / batch * batch).max(batch);
        let mut comparison = Comparison::new(model, self.metrics);
        let mut misses = self.metrics.then(|| Misses::new(model, part)).flatten();
        let mut strangers = Vec::new();
        let compared = each_read(&part.own(), portion, &alignment, |read| {
            let strange =
                |&(index, one): &(usize, &Trajectory)| Some((index, model.beyond_training(&one.inputs)?));
            strangers.extend(read.iter().filter_map(strange));
            let request = request(model, read)?;
            let started = Instant::now();
            let found = rollout.predict_each(memory, &request, budget, &self.watch)?;
            comparison.add(read, &found, started.elapsed().as_secs_f64());
            drop((request, found));
            misses
                .as_mut()
                .map_or(Ok(()), |misses| misses.add((&mut *rollout, &mut *memory), budget, read, &self.watch))
        });
        settle(compared)?;
        if ranks::job().is_some() {
            comparison.join(&mut strangers)?;
            misses.as_mut().map_or(Ok(()), Misses::join)?;
            // The rank that plots the worst trajectory repeats its rollout if another rank has it.
            let worst = comparison.worst_elsewhere().filter(|_| self.metrics && ranks::is_first());
            let numbers = part.numbers().enumerate();
            let places: Vec<usize> =
                numbers.filter(|&(_, number)| Some(number) == worst).map(|(place, _)| place).collect();
            each_read(&part.at(&places), 1, &alignment, |read| {
                let request = request(model, read)?;
                comparison.look_at(read, &rollout.predict_each(memory, &request, budget, &self.watch)?);
                Ok(())
            })?;
        }
        Ok(Report { strangers, miss: misses.and_then(Misses::report), ..comparison.report() })
    }
}

/// Returns the outcome for all ranks: an interrupt if any rank was interrupted, or else the error of any rank.
fn settle(outcome: Result<()>) -> Result<()> {
    match ranks::any(matches!(outcome, Err(CfoError::RolloutInterrupted))) {
        true => Err(CfoError::RolloutInterrupted),
        false => ranks::agree(outcome),
    }
}

/// Calls `work` with portions of a part in the model's order, with indices. The next portion is read at the same time.
fn each_read<'a>(
    part: &Part<'a>,
    portion: usize,
    alignment: &Alignment,
    mut work: impl FnMut(&[(usize, &Trajectory)]) -> Result<()>,
) -> Result<()> {
    let read = |portion: Part<'a>| -> Result<(Vec<usize>, Vec<Cow<'a, Trajectory>>)> {
        let mut read = portion.read()?;
        for trajectory in read.iter_mut().filter(|_| !alignment.is_identity()) {
            alignment.align(trajectory.to_mut());
        }
        Ok((portion.numbers().collect(), read))
    };
    thread::scope(|scope| {
        // Without a buffer, at most one portion waits. The reader ends once the receiver is dropped.
        let (sender, receiver) = mpsc::sync_channel(0);
        scope.spawn(move || part.portions(portion).map(read).all(|read| sender.send(read).is_ok()));
        receiver.into_iter().try_for_each(|read| {
            let (numbers, read) = read?;
            let read = read.iter().map(Cow::as_ref);
            work(&numbers.into_iter().zip(read).collect::<Vec<_>>())
        })
    })
}

/// Returns the request for all snapshots of trajectories, from the first one that the model uses.
fn request(model: &Model, trajectories: &[(usize, &Trajectory)]) -> Result<Request> {
    let (size, first) = (model.shape().len(), first_frame(model));
    let mut request = Request::default();
    for (index, trajectory) in trajectories {
        if trajectory.times.len() < first + 2 {
            return Err(CfoError::bad_data(
                format!(
                    "trajectory {index} has {} snapshots; evaluation needs {}",
                    trajectory.times.len(),
                    first + 2
                ),
                "remove it from the test set",
            ));
        }
        request.start.push(trajectory.times[first]);
        request.states.push(trajectory.values[first * size..(first + 1) * size].to_vec());
        request.times.push(trajectory.times[first..].to_vec());
        request.inputs.push(trajectory.inputs.clone());
    }
    Ok(request)
}
