//! The training loop.

mod log;
mod supply;
mod validation;
mod wall_time;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cfo_engine::{Data, Device, Memory, Program};
use serde::Serialize;

use crate::checkpoint::{Checkpoints, State, write_atomically};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::objective::training_step;
use crate::recipe::Recipe;
use crate::survey::FINGERPRINT;
use crate::training_data::TrainingData;
use crate::trajectories::TrajectorySet;
use log::Log;
use supply::Supply;
use validation::Validation;
pub use wall_time::WallTime;
use wall_time::timed;

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
    /// Where the wall time went.
    pub time: WallTime,
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
        Ok(Self { model: state.model, memory, loss: f64::NAN, seconds: 0.0, time: WallTime::default() })
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
    let (begun, mut time) = (Instant::now(), WallTime::default());
    let checkpoints = folder.map(Checkpoints::of);
    let resumed = match &checkpoints {
        Some(checkpoints) if resume => {
            let (newest, _) = checkpoints.newest_whole()?;
            let state = checkpoints.state(&newest)?;
            Some((newest, state))
        }
        _ => None,
    };
    let mut memory =
        Memory::new(device, recipe.train.precision_on(device)?)?.with_determinism(recipe.train.deterministic);
    // Units stay those of the run, whatever an earlier version measured.
    let known = resumed.as_ref().map(|(_, state)| &state.model);
    let loaded = timed(&mut time.reading, || TrainingData::load(recipe, set, &mut memory, known));
    let (model, data, fingerprint) = loaded?;
    let validation = timed(&mut time.reading, || Validation::new(&model, set))?;
    let (graph, _) = training_step(&model, &data)?;
    let mut best = None;
    if let (Some(checkpoints), Some((newest, state))) = (&checkpoints, resumed) {
        let earlier = !state.data_fingerprint.starts_with(FINGERPRINT);
        let found = if earlier { data.earlier_fingerprint(&model, set)? } else { fingerprint.clone() };
        check_resumable(&state, &model, &found)?;
        checkpoints.load(&newest, &state, &mut memory, true)?;
        best = state.best;
    }
    memory.initialize(&graph, recipe.train.seed)?;
    memory.insert_real("train.loss", cfo_engine::Shape::scalar(), &[0.0])?;
    timed(&mut time.reading, || data.upload(&model, &mut memory))?;
    let refuse = |error| CfoError::of_step(error, recipe.train.batch);
    let compiled = timed(&mut time.compiling, || Program::compile(&graph, &[], &memory));
    let program = compiled.map_err(refuse)?;
    let step = memory.read_index("train.step")?[0];
    let log = Log::open(folder, step)?;
    let started = Instant::now();
    let mut run = Run {
        model: &model,
        validation,
        fingerprint,
        checkpoints,
        program,
        log,
        best,
        interrupt,
        observer,
        time,
    };
    let loss = std::thread::scope(|scope| {
        let supply = match data.is_streamed() {
            true => Some(Supply::start(scope, (&model, &data, set), &memory, step)?),
            false => None,
        };
        run.steps(step, supply, &mut memory)
    })?;
    let mut time = run.time;
    drop(run);
    time.close(begun);
    Ok(Trained { model, memory, loss, seconds: started.elapsed().as_secs_f64(), time })
}

/// A training under way.
struct Run<'a> {
    model: &'a Model,
    validation: Validation<'a>,
    fingerprint: String,
    checkpoints: Option<Checkpoints>,
    program: Program,
    log: Log,
    best: Option<(f64, u32)>,
    interrupt: &'a AtomicBool,
    observer: &'a mut dyn Observer,
    time: WallTime,
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
            let chunk = chunk(step, recipe, memory.device());
            let begun = Instant::now();
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
                self.time.steps += begun.elapsed().as_secs_f64();
                continue;
            }
            // This waits for the steps under way on a device.
            let loss = memory.read_f64("train.loss")?[0] / f64::from(step - since.1);
            memory.write("train.loss", Data::F32(&[0.0]))?;
            self.time.steps += begun.elapsed().as_secs_f64();
            let bound = 1e6 * first_loss.get_or_insert(loss).max(1e-6);
            if !loss.is_finite() || loss > bound {
                let good = self.checkpoints.as_ref().filter(|checkpoints| checkpoints.exist());
                let last_good = good.map(|_| "checkpoints/latest".to_owned());
                return Err(CfoError::Diverged { step, loss, last_good });
            }
            last_loss = loss;
            let steps_per_second = f64::from(step - since.1) / since.0.elapsed().as_secs_f64();
            let validation = match validate {
                true => timed(&mut self.time.validation, || self.validation.error(memory))?,
                false => None,
            };
            let adam = recipe.train.adam()?;
            let learning_rate = adam.learning_rate * adam.schedule.factor(step - 1);
            let report = StepReport { step, steps, loss, learning_rate, steps_per_second, validation };
            self.log.write(&report)?;
            self.observer.report(&report);
            if checkpoint_due {
                let begun = Instant::now();
                self.save(step, validation, memory)?;
                self.time.checkpoints += begun.elapsed().as_secs_f64();
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
fn chunk(step: u32, recipe: &Recipe, device: Device) -> u32 {
    let most = if device == Device::Cpu { 1 } else { 20 };
    let train = &recipe.train;
    let dues = [train.report_every, train.validate_every, train.checkpoint_every];
    let until = dues.into_iter().filter(|&every| every > 0).map(|every| every - step % every);
    until.chain([most, train.steps - step]).min().unwrap_or(1)
}

/// A run goes on only with the same data and a recipe that differs in nothing but how long it trains and reports.
fn check_resumable(state: &State, model: &Model, fingerprint: &str) -> Result<()> {
    let comparable = |model: &Model| {
        let mut recipe = model.recipe.clone();
        let train = &mut recipe.train;
        (train.steps, train.report_every, train.validate_every, train.checkpoint_every) = (1, 1, 1, 1);
        train.validate_trajectories = None;
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
