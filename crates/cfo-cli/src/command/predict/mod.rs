//! `cfo predict`: integrates initial states to given times and writes a trajectory file.

mod options;

use std::ops::Range;
use std::path::PathBuf;

use anyhow::{Result, bail};
use cfo::data::store::{ControlsFile, TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo::data::{Description, Trajectory, TrajectoryInputs};
use cfo::evaluate::strangers_warning;
use cfo::numerics::TimeGrid;
use cfo::rollout::{Excursion, RolloutDivergence};
use cfo::{Alignment, CfoError, Model, Request, Trained, Watch};
use serde::Serialize;

use self::options::{parse_parameters, parse_times};
use super::evaluate::{divided, load, part};
use super::output::{check_trajectories, is_same, layout_of, refuse_existing};
use crate::args::{self, Frame};
use crate::diagnostics::{Incomplete, say};
use crate::progress::TerminalProgress;
use crate::{interrupt, report};

/// Most trajectories integrated together.
const BATCH: usize = 256;

/// Most values held in memory at a time.
const HELD: usize = 1 << 24;

#[derive(Debug, Serialize)]
struct Report {
    #[serde(serialize_with = "report::path")]
    out: PathBuf,
    trajectories: usize,
    indices: Vec<usize>,
    times: Vec<f64>,
    evaluations: usize,
    diverged: Vec<Diverged>,
    /// Trajectories that left the range of the training data.
    #[serde(skip)]
    excursions: usize,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Diverged {
    pub(super) trajectory: usize,
    pub(super) time: f64,
    pub(super) reason: String,
}

impl Diverged {
    pub(super) fn new(divergence: &RolloutDivergence, trajectory: usize) -> Self {
        Self { trajectory, time: divergence.time, reason: divergence.halt.to_string() }
    }

    pub(super) fn text(&self) -> String {
        format!("the integration of trajectory {} {} after time {}", self.trajectory, self.reason, self.time)
    }
}

struct Start {
    index: usize,
    time: f64,
    /// State, in the model's order.
    state: Vec<f32>,
    /// The inputs that the model takes, in its order.
    taken: TrajectoryInputs,
    /// The inputs, in the file's order.
    inputs: TrajectoryInputs,
}

struct Initial {
    file: TrajectoryFile,
    /// The file's, with the parameters and controls given on the command line.
    description: Description,
    alignment: Alignment,
    given: Vec<(String, f64)>,
    /// Controls given on the command line.
    controls: Option<ControlsFile>,
    /// The trajectories, each with the snapshot to start from and its time.
    chosen: Vec<(usize, usize, f64)>,
}

pub fn run(arguments: &args::Predict) -> Result<()> {
    let times = parse_times(&arguments.times)?;
    layout_of(&arguments.out)?;
    check_target(arguments)?;
    let (trained, _) = load(&arguments.run, &arguments.integration)?;
    let file = TrajectoryFile::open(&arguments.initial)?;
    let trained = trained.on_grid(file.description().shape)?;
    let initial = Initial::new(arguments, file, trained.model())?;
    let starts: Vec<f64> = initial.chosen.iter().map(|(_, _, time)| *time).collect();
    let beyond = trained.model().beyond_times(&starts, &times);
    let mut found = write(arguments, &trained, &initial, times)?;
    found.warnings.splice(0..0, initial.alignment.notes.iter().cloned().chain(beyond));
    report::print_result(arguments.json, &found, || text(&found))?;
    found.warnings.iter().for_each(|warning| say(&format!("warning: {warning}")));
    conclude(&found.diverged, found.trajectories)
}

impl Initial {
    fn new(arguments: &args::Predict, file: TrajectoryFile, model: &Model) -> Result<Self> {
        let given = parse_parameters(arguments.parameters.as_deref(), model)?;
        let mut description = file.description().clone();
        let new = given
            .iter()
            .map(|(name, _)| name)
            .filter(|name| !file.description().inputs.parameters.contains(name));
        description.inputs.parameters.extend(new.cloned());
        let controls = arguments.controls.as_ref().map(ControlsFile::read).transpose()?;
        if let Some(controls) = &controls {
            refuse_controls(model)?;
            description.inputs.controls = controls.names().to_vec();
        }
        let alignment = Alignment::new(model, &description, file.offset())?;
        let pieces = chosen(arguments, &file, model)?;
        let chosen = starts(arguments, &file, &pieces)?;
        Ok(Self { file, description, alignment, given, controls, chosen })
    }

    fn start(&self, &(index, frame, time): &(usize, usize, f64)) -> Result<Start> {
        let values = self.file.frames(index, &[frame])?;
        let names = &self.file.description().inputs.parameters;
        let mut inputs = self.file.inputs(index)?;
        for (name, value) in &self.given {
            match names.iter().position(|known| known == name) {
                Some(place) => inputs.parameters[place] = *value,
                None => inputs.parameters.push(*value),
            }
        }
        if let Some(controls) = &self.controls {
            inputs = inputs.with_controls(controls.of(index, self.file.len())?.clone());
        }
        let mut one = Trajectory::new(vec![time], values, inputs.clone())?;
        self.alignment.align(&mut one);
        Ok(Start { index, time, state: one.values, taken: one.inputs, inputs })
    }
}

/// Returns an error for controls that the model does not take.
fn refuse_controls(model: &Model) -> Result<()> {
    if model.inputs.controls.is_empty() {
        bail!(CfoError::InvalidKey {
            key: "--controls".into(),
            problem: "the model takes no controls: its training data had none, or `data.controls` is `none`"
                .into(),
        });
    }
    Ok(())
}

/// Predicts the trajectories portion by portion and writes them.
fn write(arguments: &args::Predict, trained: &Trained, initial: &Initial, times: Vec<f64>) -> Result<Report> {
    let count = initial.chosen.len();
    let model = trained.model();
    let batch = count.clamp(1, BATCH).min((HELD / (times.len() * model.shape().len())).max(1));
    let mut progress = TerminalProgress::new("predicting", (count * times.len()) as u64);
    let watch = Watch::default()
        .with_interrupt(interrupt::flag()?)
        .with_observer(|snapshots| progress.advance_by(snapshots as u64));
    let options = WriteOptions {
        layout: layout_of(&arguments.out)?,
        force: arguments.force,
        frames: Some(times.len()),
        offset: initial.alignment.restored_offset(),
        ..WriteOptions::default()
    };
    let mut writer = TrajectoryWriter::create(&arguments.out, &initial.description, options)?;
    let (mut strangers, mut evaluations, mut diverged) = (Vec::new(), 0, Vec::new());
    let (mut excursions, mut too_long) = (Vec::new(), None);
    for (number, portion) in initial.chosen.chunks(batch).enumerate() {
        let portion: Vec<Start> = portion.iter().map(|one| initial.start(one)).collect::<Result<_>>()?;
        let strange = |start: &Start| Some((start.index, model.beyond_training(&start.taken)?));
        strangers.extend(portion.iter().filter_map(strange));
        let request = request(&portion, &times);
        let found = trained.predict_each(&request, &watch)?;
        if number == 0 {
            let silent = Watch::default().with_interrupt(interrupt::flag()?);
            too_long = trained.too_long_steps(&request, &found, &silent)?;
        }
        evaluations = evaluations.max(found.evaluations);
        let named = |one: &Excursion| Excursion { trajectory: portion[one.trajectory].index, ..one.clone() };
        excursions.extend(found.excursions.iter().map(named));
        diverged.extend(found.diverged.iter().map(|one| Diverged::new(one, portion[one.trajectory].index)));
        for ((start, values), times) in portion.into_iter().zip(found.states).zip(found.times) {
            let mut predicted = predicted(start, times, values)?;
            initial.alignment.restore(&mut predicted.values);
            writer.push(&predicted, None)?;
        }
    }
    writer.finish()?;
    drop(watch);
    drop(progress);
    let advice = |problem: String| format!("{problem}; `--solver tsit5` chooses shorter steps");
    let warnings = strangers_warning(&strangers).into_iter().chain(Excursion::warning(model, &excursions));
    Ok(Report {
        out: arguments.out.clone(),
        trajectories: count,
        indices: initial.chosen.iter().map(|(index, _, _)| *index).collect(),
        times,
        evaluations,
        diverged,
        excursions: excursions.len(),
        warnings: warnings.chain(too_long.map(advice)).collect(),
    })
}

/// Fails if trajectories diverged, and names them.
pub(super) fn conclude(diverged: &[Diverged], trajectories: usize) -> Result<()> {
    let Some(first) = diverged.first() else { return Ok(()) };
    let rest = match diverged.len() {
        1 => String::new(),
        count => format!(" ({count} of {trajectories} trajectories ended early)"),
    };
    bail!(Incomplete {
        problem: first.text() + &rest,
        hint: "train longer, raise `--nfe`, or predict to nearer times; the other trajectories are complete"
            .into(),
    })
}

fn text(found: &Report) -> String {
    let left = match found.excursions {
        0 => String::new(),
        count => format!("; {count} left the range of the training data"),
    };
    format!(
        "{}: {} at {}, {} evaluations each{left}\n",
        found.out.display(),
        report::count(found.trajectories, "trajectory", "trajectories"),
        report::count(found.times.len(), "time", "times"),
        found.evaluations
    )
}

/// Refuses to overwrite an existing file, before anything is computed.
fn check_target(arguments: &args::Predict) -> Result<()> {
    if is_same(&arguments.out, &arguments.initial) {
        bail!(CfoError::bad_data(
            format!("`{}` is the file of the initial states", arguments.out.display()),
            "choose another `--out`"
        ));
    }
    refuse_existing(&arguments.out, arguments.force)
}

/// The trajectories to predict from, and which of their snapshots belong to the chosen part.
fn chosen(
    arguments: &args::Predict,
    file: &TrajectoryFile,
    model: &Model,
) -> Result<Vec<(usize, Range<usize>)>> {
    check_trajectories(&arguments.trajectory, file.len())?;
    let whole = |index: usize| Ok((index, 0..file.frame_count(index)?));
    match arguments.split {
        None if arguments.trajectory.is_empty() => (0..file.len()).map(whole).collect(),
        None => arguments.trajectory.iter().copied().map(whole).collect(),
        Some(split) => {
            let set = divided(&arguments.initial, model, split)?;
            Ok(part(&set, split)?.indices().iter().map(|&index| set.place(index)).collect())
        }
    }
}

/// Returns the snapshot that each trajectory starts from, and its time.
fn starts(
    arguments: &args::Predict,
    file: &TrajectoryFile,
    pieces: &[(usize, Range<usize>)],
) -> Result<Vec<(usize, usize, f64)>> {
    if let Some(from) = arguments.from.filter(|from| !from.is_finite()) {
        bail!(CfoError::invalid("--from", format!("{from} is not a finite time")));
    }
    let start = |(index, frames): &(usize, Range<usize>)| {
        let times = file.times(*index)?;
        let times = &times[frames.clone()];
        let last = times.len().saturating_sub(1);
        let frame = match arguments.frame {
            Frame::Number(frame) => frame,
            Frame::Last => last,
        };
        match times.get(frame) {
            Some(&time) => Ok((*index, frames.start + frame, arguments.from.unwrap_or(time))),
            None => bail!(CfoError::invalid(
                "--frame",
                format!("trajectory {index} has no snapshot {frame}; it has 0 to {last}")
            )),
        }
    };
    pieces.iter().map(start).collect()
}

fn request(portion: &[Start], times: &[f64]) -> Request {
    Request {
        start: portion.iter().map(|start| start.time).collect(),
        states: portion.iter().map(|start| start.state.clone()).collect(),
        times: vec![times.to_vec(); portion.len()],
        inputs: portion.iter().map(|start| start.taken.clone()).collect(),
    }
}

/// Creates the predicted trajectory. If it diverged at once, it has only the start.
fn predicted(start: Start, times: Vec<f64>, values: Vec<f32>) -> Result<Trajectory> {
    let (times, values) = match times.is_empty() {
        true => (vec![start.time], start.state),
        false => (times, values),
    };
    Ok(Trajectory { times: TimeGrid::new(times)?, values, inputs: start.inputs })
}
