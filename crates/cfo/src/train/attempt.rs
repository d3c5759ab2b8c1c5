//! A training with one learning rate, from its first step or from a checkpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use cfo_data::Split;
use cfo_device::Device;
use cfo_engine::{Memory, Precision};

use super::compiled::CompiledStep;
use super::pace::Pace;
use super::prepared::Prepared;
use super::run::{Latest, Run};
use super::stage::Stage;
use super::supply::Supply;
use super::validation::Validation;
use super::weights::Kept;
use super::witness::Witness;
use super::{Observer, divergence, is_finished, weights};
use crate::error::{CfoError, Result};
use crate::model::Method;
use crate::model::Model;
use crate::predict::Trained;
use crate::ranks;
use crate::recipe::{EvaluateConfig, FinetuneConfig, Recipe};
use crate::run::checkpoint::{Course, State};
use crate::run::{Ending, Folder, Log, Outcome, WallTime, read_log, timed};
use crate::train::training_data::TrainingData;
use crate::trajectories::Trajectories;

/// A training with one learning rate.
pub(super) struct Attempt<'a> {
    /// The recipe as it was given.
    pub given: &'a Recipe,
    /// What is trained, with the learning rate of this attempt.
    pub method: &'a Method,
    pub set: &'a Trajectories,
    pub folder: Option<&'a Folder<'a>>,
    pub device: Device,
    pub interrupt: Option<&'a AtomicBool>,
    pub halvings: u32,
    /// Whether the weights after the last step are wanted, even where a validation found better ones.
    pub latest: bool,
}

/// A stage that is done.
struct Done {
    /// What it left.
    prepared: Prepared,
    /// What it came to.
    outcome: Outcome,
    /// The weights of the lowest validation error.
    kept: Option<Kept>,
}

/// What a stage goes on from.
enum Source<'a> {
    /// Nothing, or the weights of another run.
    Fresh,
    /// A checkpoint of its own.
    Checkpoint(&'a (String, State)),
    /// The stage before it.
    Stage(Box<Done>),
}

impl Source<'_> {
    /// The model of a checkpoint, whose units stay.
    fn known(&self) -> Option<&Model> {
        match self {
            Self::Checkpoint((_, state)) => Some(&state.model),
            Self::Fresh | Self::Stage(_) => None,
        }
    }
}

impl Attempt<'_> {
    /// Trains, from a checkpoint if there is one, in a session that began earlier.
    pub(super) fn run(
        &self,
        start: Option<(String, State)>,
        observer: &mut dyn Observer,
        begun: Instant,
    ) -> Result<Trained> {
        let stages = Stage::all(self.method);
        let made = start.as_ref().map_or(0, |(_, state)| state.step);
        let mut source = start.as_ref().map_or(Source::Fresh, Source::Checkpoint);
        let last = stages.len() - 1;
        for (number, stage) in stages.iter().enumerate() {
            if made >= stage.end && number < last {
                continue;
            }
            let mut done = self.stage(stage, source, &mut *observer)?;
            if number == last || done.outcome.ending != Ending::Complete {
                if done.outcome.ending != Ending::Earlier {
                    done.outcome.time.close(begun);
                }
                return self.trained(done);
            }
            source = Source::Stage(Box::new(done));
        }
        unreachable!("the last stage returns")
    }

    /// The model with the weights of the lowest validation error, if there was one and they are wanted, else with the latest.
    fn trained(&self, done: Done) -> Result<Trained> {
        let Done { prepared, outcome, kept } = done;
        let model = Arc::new(prepared.model.by(self.method));
        let best = kept.filter(|kept| !self.latest && kept.step != outcome.steps);
        let best =
            best.map(|kept| Ok::<_, CfoError>((kept.step, kept.beside(&prepared.memory)?))).transpose()?;
        Trained::new(model, prepared.into_weights()?, best, outcome)
    }

    /// Makes the steps of a stage that are left.
    fn stage(&self, stage: &Stage, mut source: Source<'_>, observer: &mut dyn Observer) -> Result<Done> {
        let mut time = match &source {
            Source::Stage(done) => done.outcome.time,
            _ => WallTime::default(),
        };
        let prepare = || match &mut source {
            Source::Stage(done) => done.prepared.followed(&stage.method, self.set),
            source => Prepared::by(&stage.method, self.set, self.device, source.known()),
        };
        let mut prepared = ranks::agree(timed(&mut time.reading, prepare))?;
        ranks::require_same("training data", &prepared.fingerprint)?;
        // CPUs cut their sums into other messages than GPUs, and all would wait for them.
        ranks::require_same("device", if prepared.memory.is_asynchronous() { "a GPU" } else { "a CPU" })?;
        // Restarts with a lower learning rate and later stages do not repeat them.
        if self.halvings == 0 && !matches!(source, Source::Stage(_)) && ranks::is_first() {
            prepared.data.warnings.iter().for_each(|warning| observer.notice(warning));
        }
        let model = Arc::new(prepared.model.by(self.method));
        ranks::agree(self.take_weights(stage, &source, &model, &mut prepared))?;
        if ranks::job().is_some() {
            ranks::agree(prepared.initialize())?;
            ranks::share_weights(&prepared.graph, &mut prepared.memory)?;
        }
        let kept = match &mut source {
            Source::Fresh => None,
            Source::Stage(done) => done.kept.take(),
            Source::Checkpoint((_, State { best: None, .. })) => None,
            Source::Checkpoint((_, State { best: Some((_, step)), .. })) => {
                let checkpoints = self.folder.map(|folder| &folder.checkpoints);
                let seed = self.method.recipe.train.seed;
                Kept::best(checkpoints, *step, (&prepared.graph, &prepared.memory), seed)?
            }
        };
        if let Source::Checkpoint((_, state)) = source
            && is_finished(state.step, &state.course, &self.method.recipe)
        {
            let history = self.folder.map_or_else(Vec::new, |folder| read_log(folder.path, state.step));
            return Ok(Done { prepared, outcome: Outcome::of(state, history), kept });
        }
        prepared.initialize()?;
        let program = ranks::agree(timed(&mut time.compiling, || prepared.compile(&[])))?;
        // Nothing is written of a training that the device refuses.
        ranks::agree(self.folder.map_or(Ok(()), |folder| folder.write_recipe(self.given)))?;
        let start = Start { source, observer, time, kept };
        let (outcome, kept) = self.steps((stage, &model), program, &mut prepared, start)?;
        Ok(Done { prepared, outcome, kept })
    }

    /// Puts the first weights into memory where they are not drawn: those of a checkpoint, of another run or of the stage before.
    fn take_weights(
        &self,
        stage: &Stage,
        source: &Source<'_>,
        model: &Model,
        prepared: &mut Prepared,
    ) -> Result<()> {
        if !ranks::is_first() && !matches!(source, Source::Stage(_)) {
            // Rank 0 shares its own.
            return Ok(());
        }
        let Prepared { graph, memory, fingerprint, .. } = prepared;
        match (source, self.folder) {
            (Source::Stage(done), _) => {
                weights::carry(&done.prepared.memory, model, graph, (memory, stage.first))
            }
            (Source::Checkpoint((name, state)), Some(folder)) => {
                check_resumable(state, model, fingerprint)?;
                if !(stage.is_later() && state.step == stage.first) {
                    return weights::restore(&folder.checkpoints, (name, state), graph, memory);
                }
                let mut before = Memory::new(Device::Cpu, Precision::F32)?;
                folder.checkpoints.load(name, state, &mut before, false)?;
                weights::carry(&before, model, graph, (memory, stage.first))
            }
            _ => match &self.method.recipe.train.from {
                Some(run) => weights::inherit(run, graph, memory),
                None => Ok(()),
            },
        }
    }

    /// Makes the steps that are left.
    fn steps(
        &self,
        (stage, model): (&Stage, &Arc<Model>),
        program: CompiledStep,
        prepared: &mut Prepared,
        start: Start<'_, '_>,
    ) -> Result<(Outcome, Option<Kept>)> {
        let Start { source, observer, time, kept } = start;
        let Prepared { model: own, data, memory, fingerprint, .. } = prepared;
        let step = memory.read_index("train.step")?[0];
        let (path, started) = (self.folder.map(|folder| folder.path), Instant::now());
        let (history, best, mut course, earlier) = match source {
            Source::Fresh => {
                (Vec::new(), None, Course { halvings: self.halvings, ..Course::default() }, None)
            }
            Source::Checkpoint((_, state)) => {
                let history = path.map_or_else(Vec::new, |path| read_log(path, step));
                (history, state.best, state.course, Some(0.0))
            }
            Source::Stage(done) => {
                let Outcome { history, best, course, seconds, .. } = done.outcome;
                (history, best, course, Some(seconds))
            }
        };
        if stage.is_later() && step == stage.first {
            // Its loss is another one.
            course.first_loss = None;
        }
        let mut run = Run {
            model,
            stage,
            fingerprint: fingerprint.clone(),
            checkpoints: self.folder.map(|folder| &folder.checkpoints),
            program,
            validation: Validation::new(model, self.set.split(Split::Validation), self.interrupt)?,
            log: Log::open(path, step)?,
            history,
            warnings: data.warnings.clone(),
            best,
            kept,
            course,
            latest: Latest { step, ..Latest::default() },
            saved: earlier.is_some(),
            started,
            since: (started, step),
            pace: Pace::new(),
            interrupt: self.interrupt,
            observer,
            time,
        };
        let made = std::thread::scope(|scope| {
            let witness = Witness::new(&own.recipe, self.set, fingerprint);
            let supply = data.is_streamed().then(|| Supply::start(scope, (own, data), witness, memory, step));
            run.steps(step, supply.transpose()?, memory)
        });
        let (steps, ending) = made.map_err(|error| with_batch(error, (own, data), memory))?;
        let (mut outcome, kept) = run.outcome(steps, ending);
        outcome.seconds += earlier.unwrap_or(0.0);
        Ok((outcome, kept))
    }
}

/// What the steps of a stage begin with.
struct Start<'a, 'o> {
    source: Source<'a>,
    observer: &'o mut dyn Observer,
    time: WallTime,
    kept: Option<Kept>,
}

/// Adds to a loss that diverged what its batch was, where the step that failed is known. A failure to draw it again changes nothing.
fn with_batch(error: CfoError, (model, data): (&Model, &TrainingData), memory: &mut Memory) -> CfoError {
    match error {
        // Ranks draw different parts of a batch, but report one error.
        CfoError::Diverged { step, loss, mut seen, last_good }
            if seen.after + 1 == step && !seen.no_step && ranks::job().is_none() =>
        {
            seen.batch = divergence::batch_size(model, data, memory, step).ok();
            CfoError::Diverged { step, loss, seen, last_good }
        }
        other => other,
    }
}

/// A run goes on only with the same data and a recipe that differs in nothing but how long it trains and reports.
fn check_resumable(state: &State, model: &Model, fingerprint: &str) -> Result<()> {
    // Fine-tuning may be added to a run, or changed before it begins.
    let tuned = state.step > state.model.recipe.train.steps;
    let comparable = |model: &Model| {
        let mut recipe = model.recipe.clone();
        let train = &mut recipe.train;
        (train.steps, train.report_every, train.validate_every, train.checkpoint_every) = (1, 1, 1, 1);
        // Where the first weights came from, when to stop and what to watch do not change what a step does.
        (train.patience, train.from, train.validate_trajectories) = (0, None, None);
        recipe.evaluate = EvaluateConfig::default();
        recipe.finetune.steps = 0;
        if !tuned {
            recipe.finetune = FinetuneConfig::default();
        }
        (recipe.data.path, recipe.data.simulate, recipe.data.stream) = (None, None, None);
        recipe
    };
    // The names of an operator and an objective that recipes have no words for.
    state.model.clone().with(model.foreign())?;
    let moved = tuned && state.model.recipe.train.steps != model.recipe.train.steps;
    if moved || comparable(&state.model) != comparable(model) {
        let mut keys = comparable(&state.model).differing_keys(&comparable(model));
        if moved {
            keys.push("train.steps".into());
        }
        return Err(CfoError::BadData {
            problem: format!("the checkpoint was made with other values of `{}`", keys.join("`, `")),
            hint: "resume with the values in the run's checkpoint, or train into a new folder".into(),
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
