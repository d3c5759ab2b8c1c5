//! The training loop.

mod log;
mod supply;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cfo_data::Split;
use cfo_device::Device;
use cfo_engine::{Data, Memory, Program};
use serde::Serialize;

use crate::checkpoint::{Checkpoints, State, write_atomically};
use crate::error::{CfoError, Result};
use crate::evaluate::{Report, evaluate};
use crate::model::Model;
use crate::objective::{TrainingData, training_step};
use crate::recipe::Recipe;
use crate::rollout::Solver;
use crate::trajectories::TrajectorySet;
use log::Log;
use supply::Supply;

/// What is known after some steps.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct StepReport {
    /// Steps made.
    pub step: u32,
    /// Steps to make.
    pub steps: u32,
    /// Mean loss since the last report.
    pub loss: f64,
    /// Learning rate of the last step.
    pub learning_rate: f64,
    /// Steps a second since the last report.
    pub steps_per_second: f64,
    /// Mean relative L2 error of validation rollouts, when they were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<f64>,
}

/// Watches a training: progress bars, logs, early stops.
pub trait Observer {
    /// Called at each report.
    fn report(&mut self, report: &StepReport);
}

impl<F: FnMut(&StepReport)> Observer for F {
    fn report(&mut self, report: &StepReport) {
        self(report);
    }
}

/// Where a training runs, where it writes, and who watches it.
pub struct Session<'a> {
    /// The device.
    pub device: Device,
    /// The run's folder; nothing is written without one.
    pub folder: Option<&'a Path>,
    /// Whether to go on from the folder's newest checkpoint that is whole.
    pub resume: bool,
    /// Set from outside to stop after the step under way.
    pub interrupt: &'a AtomicBool,
    /// Who is told.
    pub observer: &'a mut dyn Observer,
}

/// A trained network: the model and the memory that holds its weights.
#[derive(Debug)]
pub struct Trained {
    /// The model.
    pub model: Model,
    /// Its weights, on the device.
    pub memory: Memory,
    /// Mean loss of the last report.
    pub loss: f64,
    /// Seconds of training.
    pub seconds: f64,
}

impl Trained {
    /// Prefix of the names of the weights that are evaluated.
    pub fn prefix(&self) -> &'static str {
        prefix(&self.model)
    }

    /// Loads a checkpoint of a run: `latest`, `best` or `step-N`.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub fn load(run: &Path, checkpoint: &str, device: Device) -> Result<Self> {
        let checkpoints = Checkpoints::of(run);
        let state = checkpoints.state(checkpoint)?;
        let mut memory = Memory::new(device, state.model.recipe.train.precision_on(device)?)?;
        checkpoints.load(checkpoint, &state, &mut memory, false)?;
        Ok(Self { model: state.model, memory, loss: f64::NAN, seconds: 0.0 })
    }
}

fn prefix(model: &Model) -> &'static str {
    if model.recipe.train.ema > 0.0 { "ema/" } else { "" }
}

/// Trains a model on a set by its recipe.
///
/// # Errors
/// If recipe and data do not fit, the disk or the device refuses, the loss diverges, or the run is interrupted (its
/// latest step is then saved).
pub fn train(recipe: &Recipe, set: &TrajectorySet, session: Session<'_>) -> Result<Trained> {
    let Session { device, folder, resume, interrupt, observer } = session;
    let mut model = Model::new(recipe, set)?;
    let checkpoints = folder.map(Checkpoints::of);
    let resumed = match &checkpoints {
        Some(checkpoints) if resume => {
            let (newest, _) = checkpoints.newest_whole()?;
            let state = checkpoints.state(&newest)?;
            // Units stay those of the run, whatever an earlier version measured.
            model.scaling = state.model.scaling.clone();
            Some((newest, state))
        }
        _ => None,
    };
    let mut memory =
        Memory::new(device, recipe.train.precision_on(device)?)?.with_determinism(recipe.train.deterministic);
    let data = training_data(&model, set, &memory)?;
    let fingerprint = data.fingerprint(&model, set)?;
    let (graph, _) = training_step(&model, &data)?;
    let mut best = None;
    if let (Some(checkpoints), Some((newest, state))) = (&checkpoints, resumed) {
        check_resumable(&state, &model, &fingerprint)?;
        checkpoints.load(&newest, &state, &mut memory, true)?;
        best = state.best;
    }
    memory.initialize(&graph, recipe.train.seed)?;
    memory.insert_real("train.loss", cfo_engine::Shape::scalar(), &[0.0])?;
    data.upload(&model, &mut memory)?;
    let refuse = |error| CfoError::of_step(error, recipe.train.batch);
    let program = Program::compile(&graph, &[], &memory).map_err(refuse)?;
    let step = memory.read_index("train.step")?[0];
    let log = Log::open(folder, step)?;
    let started = Instant::now();
    let mut run =
        Run { model: &model, set, fingerprint, checkpoints, program, log, best, interrupt, observer };
    let loss = std::thread::scope(|scope| {
        let supply = match data.is_streamed() {
            true => Some(Supply::start(scope, (&model, &data, set), &memory, step)?),
            false => None,
        };
        run.steps(step, supply, &mut memory)
    })?;
    drop(run);
    Ok(Trained { model, memory, loss, seconds: started.elapsed().as_secs_f64() })
}

/// The training part of a set: streamed if the recipe or the set says so, or if its values would take more than 60 % of
/// what a GPU has free.
fn training_data(model: &Model, set: &TrajectorySet, memory: &Memory) -> Result<TrainingData> {
    let data = TrainingData::streamed(model, set)?;
    let bytes = 4 * (data.rows() * model.shape().len()) as u64;
    let large = memory.available()?.is_some_and(|available| bytes > available / 10 * 6);
    match model.recipe.data.stream.unwrap_or(large) || set.is_in_file() {
        true => Ok(data),
        false => TrainingData::new(model, set),
    }
}

/// A training under way.
struct Run<'a> {
    model: &'a Model,
    set: &'a TrajectorySet,
    fingerprint: String,
    checkpoints: Option<Checkpoints>,
    program: Program,
    log: Log,
    best: Option<(f64, u32)>,
    interrupt: &'a AtomicBool,
    observer: &'a mut dyn Observer,
}

impl Run<'_> {
    /// Trains from a step to the last; returns the mean loss of the last report.
    fn steps(&mut self, first: u32, mut supply: Option<Supply>, memory: &mut Memory) -> Result<f64> {
        let (mut step, recipe) = (first, &self.model.recipe);
        let steps = recipe.train.steps;
        let due = |step: u32, every: u32| every > 0 && step.is_multiple_of(every);
        let mut since = (Instant::now(), step);
        let mut first_loss: Option<f64> = None;
        let mut last_loss = f64::NAN;
        while step < steps {
            let chunk = chunk(step, recipe, memory.is_asynchronous());
            match &mut supply {
                None => self.program.run_many(memory, chunk as usize)?,
                Some(supply) => {
                    for _ in 0..chunk {
                        supply.deliver(memory)?;
                        self.program.run(memory)?;
                    }
                }
            }
            step += chunk;
            let stop = self.interrupt.load(Ordering::Relaxed);
            let last = step == steps || stop;
            let validate = due(step, recipe.train.validate_every) || step == steps;
            let checkpoint_due = due(step, recipe.train.checkpoint_every) || validate || last;
            if !(due(step, recipe.train.report_every) || checkpoint_due) {
                continue;
            }
            let loss = memory.read_f64("train.loss")?[0] / f64::from(step - since.1);
            memory.write("train.loss", Data::F32(&[0.0]))?;
            let bound = 1e6 * first_loss.get_or_insert(loss).max(1e-6);
            if !loss.is_finite() || loss > bound {
                let good = self.checkpoints.as_ref().filter(|checkpoints| checkpoints.exist());
                let last_good = good.map(|_| "checkpoints/latest".to_owned());
                return Err(CfoError::Diverged { step, loss, last_good });
            }
            last_loss = loss;
            let steps_per_second = f64::from(step - since.1) / since.0.elapsed().as_secs_f64();
            let validation = match validate {
                true => validation_error(self.model, self.set, memory)?,
                false => None,
            };
            let adam = recipe.train.adam()?;
            let learning_rate = adam.learning_rate * adam.schedule.factor(step - 1);
            let report = StepReport { step, steps, loss, learning_rate, steps_per_second, validation };
            self.log.write(&report)?;
            self.observer.report(&report);
            if checkpoint_due {
                self.save(step, validation, memory)?;
            }
            if stop && step < steps {
                return Err(CfoError::Interrupted { step });
            }
            since = (Instant::now(), step);
        }
        Ok(last_loss)
    }

    /// Writes a checkpoint, and marks it as the best if it is.
    fn save(&mut self, step: u32, validation: Option<f64>, memory: &Memory) -> Result<()> {
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        let improved = validation
            .is_some_and(|error| error.is_finite() && self.best.is_none_or(|(lowest, _)| error < lowest));
        if let (Some(error), true) = (validation, improved) {
            self.best = Some((error, step));
        }
        checkpoints.save(memory, State::new(self.model, step, &self.fingerprint, self.best), improved)
    }
}

/// Steps until something is due, and no more than are worth waiting for before looking at the interrupt again.
fn chunk(step: u32, recipe: &Recipe, asynchronous: bool) -> u32 {
    let most = if asynchronous { 20 } else { 1 };
    let train = &recipe.train;
    let dues = [train.report_every, train.validate_every, train.checkpoint_every];
    let until = dues.into_iter().filter(|&every| every > 0).map(|every| every - step % every);
    until.chain([most, train.steps - step]).min().unwrap_or(1)
}

/// Mean relative L2 error of rollouts of some validation trajectories; `None` without any, infinite if one diverges.
fn validation_error(model: &Model, set: &TrajectorySet, memory: &mut Memory) -> Result<Option<f64>> {
    let limit = model.recipe.train.validate_trajectories;
    let chosen: Vec<_> = set.part(Split::Validation).take(limit).map(|(_, trajectory)| trajectory).collect();
    if chosen.is_empty() {
        return Ok(None);
    }
    let solver = Solver::from_config(&model.recipe.evaluate)?;
    match evaluate(model, memory, &chosen, &solver, prefix(model)) {
        Ok(Report { relative_l2, .. }) => Ok(Some(relative_l2.mean)),
        Err(CfoError::RolloutDiverged { .. }) => Ok(Some(f64::INFINITY)),
        Err(error) => Err(error),
    }
}

/// A run goes on only with the same data and a recipe that differs in nothing but how long it trains and reports.
fn check_resumable(state: &State, model: &Model, fingerprint: &str) -> Result<()> {
    let comparable = |model: &Model| {
        let mut recipe = model.recipe.clone();
        let train = &mut recipe.train;
        (train.steps, train.report_every, train.validate_every, train.checkpoint_every) = (1, 1, 1, 1);
        recipe.evaluate = crate::recipe::EvaluateConfig::default();
        (recipe.data.path, recipe.data.simulate, recipe.data.stream) = (None, None, None);
        recipe
    };
    if comparable(&state.model) != comparable(model) {
        return Err(CfoError::BadData {
            problem: "the checkpoint was made by another recipe".into(),
            hint: "resume with the run's own `recipe.toml`, or train into a new folder".into(),
        });
    }
    if state.data_fingerprint != fingerprint {
        return Err(CfoError::BadData {
            problem: "the checkpoint was made from other training data".into(),
            hint: "resume with the data of the first run, or train into a new folder".into(),
        });
    }
    Ok(())
}

/// Makes the run's folder and writes the resolved recipe into it.
///
/// # Errors
/// If there already is a run in it and it is not to be resumed, or the disk refuses.
pub fn prepare_folder(folder: &Path, recipe: &Recipe, resume: bool) -> Result<()> {
    let occupied = Checkpoints::of(folder).exist();
    if occupied && !resume {
        return Err(CfoError::BadData {
            problem: format!("`{}` already holds a run", folder.display()),
            hint: "go on with `--resume`, or choose another `--out`".into(),
        });
    }
    if resume && !occupied {
        return Err(CfoError::BadData {
            problem: format!("`{}` holds no checkpoint to resume from", folder.display()),
            hint: "train without `--resume` first".into(),
        });
    }
    fs_err::create_dir_all(folder)?;
    write_atomically(&folder.join("recipe.toml"), recipe.to_toml()?.as_bytes())
}
