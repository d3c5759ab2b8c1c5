//! The training loop.

mod folder;
mod log;
mod observer;
mod run;
mod step;
mod supply;
mod wall_time;
mod weights;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use cfo_data::Split;
use cfo_device::Device;
use cfo_engine::{Data, Element, KeptTensor, Memory, Precision, Program, Role, Shape};

use crate::checkpoint::{Checkpoints, Course, State};
use crate::error::{CfoError, Result};
use crate::method::Method;
use crate::model::Model;
use crate::operator::parameter_count;
use crate::recipe::Recipe;
use crate::survey::FINGERPRINT;
use crate::training_data::TrainingData;
use crate::trajectories::Trajectories;
use folder::Folder;
use log::Log;
use run::Run;
pub(crate) use step::draw;
pub use step::{sampler, training_step};
use supply::Supply;
pub use wall_time::WallTime;
use wall_time::timed;

pub use observer::{Observer, Reply, StepReport};

/// Where a training runs, where it writes, and who watches it.
pub struct Session<'a> {
    /// The device.
    pub device: Device,
    /// The run's folder; nothing is written without one.
    pub folder: Option<&'a Path>,
    /// Whether to go on from the folder's newest checkpoint that is whole, if it has any.
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
    /// Steps made, those of earlier sessions included.
    pub steps: u32,
    /// Why there were no more.
    pub ending: Ending,
    /// Where the wall time went.
    pub time: WallTime,
}

/// Why a training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All steps were made.
    Complete,
    /// The validation error did not fall for as long as `train.patience` allows.
    Patience,
    /// The observer ended it.
    Observer,
    /// It had ended before: nothing was trained.
    Earlier,
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
        let state = Checkpoints::of(run).state(checkpoint)?;
        Self::load_in(run, checkpoint, device, state.model.recipe.rollout_precision_on(device))
    }

    /// The same to compute in a precision, whatever that of the training was.
    ///
    /// # Errors
    /// If it is missing or damaged, or the device does not compute so.
    pub fn load_in(run: &Path, checkpoint: &str, device: Device, precision: Precision) -> Result<Self> {
        let checkpoints = Checkpoints::of(run);
        let state = checkpoints.state(checkpoint)?;
        let mut memory = Memory::new(device, precision)?;
        checkpoints.load(checkpoint, &state, &mut memory, false)?;
        let (network, prefix) = (state.model.graph()?, prefix(&state.model));
        let named = network.parameters().iter().map(|one| (format!("{prefix}{}", one.name), &one.shape));
        let named: Vec<_> = named.collect();
        let needed = named.iter().map(|(name, shape)| KeptTensor { name, shape, role: Role::Weight });
        checkpoints.check_tensors(checkpoint, needed, &memory)?;
        Ok(Self::of(&state, memory))
    }
}

impl Trained {
    /// What a checkpoint holds.
    fn of(state: &State, memory: Memory) -> Self {
        let loss = state.course.loss.unwrap_or(f64::NAN);
        let (model, steps) = (state.model.clone(), state.step);
        Self { model, memory, loss, seconds: 0.0, steps, ending: Ending::Earlier, time: WallTime::default() }
    }
}

fn prefix(model: &Model) -> &'static str {
    if model.recipe.train.ema > 0.0 { "ema/" } else { "" }
}

/// How often a learning rate that makes the network diverge at once is halved before it is refused.
const MOST_HALVINGS: u32 = 4;
/// A loss that grows within so many reports did so at once.
const FIRST_REPORTS: u32 = 3;

/// Trains a model on a set by its recipe. A learning rate with which it diverges at once is halved a few times.
///
/// # Errors
/// If recipe and data do not fit, another process trains in the folder, the disk or the device refuses, the loss diverges,
/// or the run is interrupted (its latest step is then saved).
pub fn train(recipe: &Recipe, set: &Trajectories, session: Session<'_>) -> Result<Trained> {
    let Session { device, folder, resume, interrupt, observer } = session;
    let begun = Instant::now();
    let folder = folder.map(|path| Folder::claim(path, resume)).transpose()?;
    let mut start = match &folder {
        Some(folder) if resume => folder.newest()?,
        _ => None,
    };
    let mut halvings = start.as_ref().map_or(0, |(_, state)| state.course.halvings);
    loop {
        let mut halved = recipe.clone();
        halved.train.learning_rate *= (-f64::from(halvings)).exp2();
        let attempt = Attempt { recipe, set, folder: folder.as_ref(), device, interrupt, halvings };
        let (step, loss) = match attempt.run(&halved, start.take(), observer) {
            Err(CfoError::Diverged { step, loss, .. })
                if halvings < MOST_HALVINGS && is_early(step, recipe) =>
            {
                (step, loss)
            }
            outcome => {
                return outcome.map(|mut trained| {
                    trained.time.close(begun);
                    trained
                });
            }
        };
        halvings += 1;
        let rate = halved.train.learning_rate / 2.0;
        let notice = format!(
            "the loss became {loss:.3e} at step {step}: `train.learning_rate` is too high; starting again with {rate}"
        );
        if let Some(folder) = &folder {
            folder.checkpoints.clear()?;
        }
        Log::restart(folder.as_ref().map(|folder| folder.path), &notice, rate)?;
        observer.notice(&notice);
    }
}

/// Whether a step is among those of the first reports.
fn is_early(step: u32, recipe: &Recipe) -> bool {
    let every = if recipe.train.report_every > 0 { recipe.train.report_every } else { 100 };
    step <= FIRST_REPORTS.saturating_mul(every)
}

/// Whether a run has nothing left to do by its recipe.
fn is_finished(step: u32, course: &Course, recipe: &Recipe) -> bool {
    let patience = recipe.train.patience;
    step >= recipe.train.steps || (patience > 0 && course.stale >= patience)
}

/// Patience needs something to watch.
fn check_patience(recipe: &Recipe, set: &Trajectories) -> Result<()> {
    if recipe.train.patience > 0 && set.part(Split::Validation).next().is_none() {
        return Err(CfoError::InvalidKey {
            key: "train.patience".into(),
            problem: "the data have no validation trajectories to watch".into(),
        });
    }
    Ok(())
}

/// A training with one learning rate, from its first step or from a checkpoint.
struct Attempt<'a> {
    /// As it was given.
    recipe: &'a Recipe,
    set: &'a Trajectories,
    folder: Option<&'a Folder<'a>>,
    device: Device,
    interrupt: &'a AtomicBool,
    halvings: u32,
}

impl Attempt<'_> {
    fn run(
        &self,
        recipe: &Recipe,
        start: Option<(String, State)>,
        observer: &mut dyn Observer,
    ) -> Result<Trained> {
        let (set, mut time) = (self.set, WallTime::default());
        check_patience(recipe, set)?;
        let mut memory = Memory::new(self.device, recipe.train.precision_on(self.device))?
            .with_determinism(recipe.train.deterministic);
        // Units stay those of the run, whatever an earlier version measured.
        let known = start.as_ref().map(|(_, state)| &state.model);
        let loaded =
            timed(&mut time.reading, || TrainingData::load_by(&Method::of(recipe), set, &mut memory, known));
        let (model, data, fingerprint) = loaded?;
        let (graph, _) = training_step(&model, &data)?;
        let checkpoints = self.folder.map(|folder| &folder.checkpoints);
        if let (Some(checkpoints), Some((name, state))) = (checkpoints, &start) {
            let earlier = !state.data_fingerprint.starts_with(FINGERPRINT);
            let found = if earlier { data.earlier_fingerprint(&model, set)? } else { fingerprint.clone() };
            check_resumable(state, &model, &found)?;
            weights::restore(checkpoints, (name, state), &graph, &mut memory)?;
            if is_finished(state.step, &state.course, recipe) {
                return Ok(Trained::of(state, memory));
            }
        } else if let Some(run) = &recipe.train.from {
            weights::inherit(run, &graph, &mut memory)?;
        }
        let refuse = |error| CfoError::of_network(error, parameter_count(&graph));
        memory.initialize(&graph, recipe.train.seed).map_err(refuse)?;
        if let Some(folder) = self.folder {
            folder.write_recipe(self.recipe)?;
        }
        let zero = Data::F32(&[0.0]);
        memory.insert_as(Role::Optimizer, "train.loss", Element::Real, Shape::scalar(), zero)?;
        timed(&mut time.reading, || data.upload(&model, &mut memory))?;
        let refuse = |error| CfoError::of_step(error, recipe.train.batch);
        let compiled = timed(&mut time.compiling, || Program::compile(&graph, &[], &memory));
        let program = compiled.map_err(refuse)?;
        let step = memory.read_index("train.step")?[0];
        let log = Log::open(self.folder.map(|folder| folder.path), step)?;
        let started = Instant::now();
        let fresh = Course { halvings: self.halvings, ..Course::default() };
        let mut run = Run {
            model: &model,
            set,
            fingerprint,
            checkpoints,
            program,
            log,
            best: start.as_ref().and_then(|(_, state)| state.best),
            course: start.as_ref().map_or(fresh, |(_, state)| state.course),
            saved: start.is_some(),
            started,
            since: (started, step),
            interrupt: self.interrupt,
            observer,
            time,
        };
        let (steps, ending) = std::thread::scope(|scope| {
            let supply = match data.is_streamed() {
                true => Some(Supply::start(scope, (&model, &data, set), &memory, step)?),
                false => None,
            };
            run.steps(step, supply, &mut memory)
        })?;
        let loss = run.course.loss.unwrap_or(f64::NAN);
        let time = run.time;
        drop(run);
        Ok(Trained { model, memory, loss, seconds: started.elapsed().as_secs_f64(), steps, ending, time })
    }
}

/// A run goes on only with the same data and a recipe that differs in nothing but how long it trains and reports.
fn check_resumable(state: &State, model: &Model, fingerprint: &str) -> Result<()> {
    let comparable = |model: &Model| {
        let mut recipe = model.recipe.clone();
        let train = &mut recipe.train;
        (train.steps, train.report_every, train.validate_every, train.checkpoint_every) = (1, 1, 1, 1);
        // Where the first weights came from, when to stop and what to watch do not change what a step does.
        (train.patience, train.from, train.validate_trajectories) = (0, None, None);
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
