//! A training with one learning rate: its phases in order.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use cfo_data::Split;
use cfo_device::Device;
use cfo_engine::{Memory, Precision};

use super::compiled::CompiledStep;
use super::phase::Phase;
use super::refine::Rounds;
use super::signals::Exchange;
use super::supply::Supply;
use super::training_data::TrainingData;
use super::training_loop::{Recent, TrainingLoop};
use super::training_step::TrainingStep;
use super::validation::Validation;
use super::weights::Kept;
use super::witness::Witness;
use super::{Observer, divergence, is_finished, weights};
use crate::error::{CfoError, Result};
use crate::model::{Method, Model};
use crate::predict::Trained;
use crate::ranks;
use crate::recipe::{EvaluateConfig, FinetuneConfig, Recipe};
use crate::run::checkpoint::{Checkpoints, State};
use crate::run::{Claim, Ending, Log, Progress, timed};
use crate::trajectories::Trajectories;

/// A training with one learning rate.
pub(super) struct Trainer<'a> {
    /// The recipe as it was given.
    pub given: &'a Recipe,
    /// The method, with the learning rate of this training.
    pub method: &'a Method,
    pub set: &'a Trajectories,
    pub folder: Option<&'a Claim>,
    pub device: Device,
    pub interrupt: Option<&'a AtomicBool>,
    /// Number of times that the learning rate was halved.
    pub halvings: u32,
    /// Whether to return the weights after the last step instead of those with the lowest validation error.
    pub latest: bool,
}

enum Start<'a> {
    /// Random weights, or those of another run.
    Fresh,
    Checkpoint(&'a str, &'a State),
    /// The end of the previous phase.
    Phase(Box<PhaseEnd>),
}

struct PhaseEnd {
    step: TrainingStep,
    progress: Progress,
    kept: Option<Kept>,
}

impl Trainer<'_> {
    /// Trains, from a checkpoint if there is one. `begun` is the start of the measured wall time.
    pub fn run(
        &self,
        phases: &[Phase],
        checkpoint: Option<(String, State)>,
        observer: &mut dyn Observer,
        begun: Instant,
    ) -> Result<Trained> {
        let made = checkpoint.as_ref().map_or(0, |(_, state)| state.step);
        let mut start = match &checkpoint {
            Some((name, state)) => Start::Checkpoint(name, state),
            None => Start::Fresh,
        };
        let last = phases.len() - 1;
        for (number, phase) in phases.iter().enumerate() {
            if made >= phase.end && number < last {
                continue;
            }
            let mut end = self.phase(phase, start, observer)?;
            if number == last || end.progress.ending != Ending::Complete {
                if end.progress.ending != Ending::Earlier {
                    end.progress.time.close(begun);
                }
                return self.trained(end);
            }
            start = Start::Phase(Box::new(end));
        }
        unreachable!("the last phase returns")
    }

    /// Returns the model with its latest weights, and with those of the lowest validation error unless only the latest are wanted.
    fn trained(&self, end: PhaseEnd) -> Result<Trained> {
        let PhaseEnd { step, progress, kept } = end;
        let model = Arc::new(step.model.by(self.method));
        let best = match kept.filter(|kept| !self.latest && kept.step != progress.steps) {
            Some(kept) => Some((kept.step, kept.beside(&step.memory)?)),
            None => None,
        };
        Trained::new(model, step.into_weights()?, best, progress)
    }

    fn phase(&self, phase: &Phase, mut start: Start<'_>, observer: &mut dyn Observer) -> Result<PhaseEnd> {
        let mut progress = self.progress(&mut start)?;
        let step = timed(&mut progress.time.reading, || match &mut start {
            Start::Fresh => TrainingStep::of(phase, self.set, self.device, None),
            Start::Checkpoint(_, state) => TrainingStep::of(phase, self.set, self.device, Some(&state.model)),
            Start::Phase(end) => end.step.followed_by(phase, self.set),
        });
        let mut step = ranks::agree(step)?;
        ranks::require_same("training data", &step.fingerprint)?;
        // CPUs and GPUs divide their sums into different messages: ranks on both would wait forever.
        ranks::require_same("device", if step.memory.is_asynchronous() { "a GPU" } else { "a CPU" })?;
        if !matches!(start, Start::Phase(_)) {
            progress.warnings.clone_from(&step.data.warnings);
            // Restarts with a lower learning rate do not repeat them.
            if self.halvings == 0 && ranks::is_first() {
                progress.warnings.iter().for_each(|warning| observer.notice(warning));
            }
        }
        progress.fingerprint.clone_from(&step.fingerprint);
        let model = Arc::new(step.model.by(self.method));
        ranks::agree(self.first_weights(phase, &start, &model, &mut step))?;
        if ranks::job().is_some() {
            ranks::agree(step.initialize())?;
            ranks::share_weights(&step.graph, &mut step.memory)?;
        }
        let kept = match &mut start {
            Start::Fresh => None,
            Start::Phase(end) => end.kept.take(),
            Start::Checkpoint(_, state) => self.best_weights(state, &step)?,
        };
        if let Start::Checkpoint(_, state) = start
            && is_finished(&progress, &self.method.recipe)
        {
            return Ok(PhaseEnd { step, progress: Progress::of(state, progress.history), kept });
        }
        step.initialize()?;
        let program = ranks::agree(timed(&mut progress.time.compiling, || step.compile(&[])))?;
        // The recipe is written only after the step has been compiled.
        ranks::agree(self.folder.map_or(Ok(()), |folder| folder.run.write_recipe(self.given)))?;
        progress.steps = step.memory.read_index("train.step")?[0];
        if phase.is_later() && progress.steps == phase.first {
            // This phase has a different loss.
            progress.loop_state.first_loss = None;
        }
        let saved = !matches!(start, Start::Fresh);
        drop(start);
        self.steps((phase, &model), program, step, (progress, kept, saved), observer)
    }

    fn progress(&self, start: &mut Start<'_>) -> Result<Progress> {
        Ok(match start {
            Start::Fresh => Progress::start(self.halvings),
            Start::Checkpoint(_, state) => {
                let mut history =
                    self.folder.map_or_else(|| Ok(Vec::new()), |folder| folder.run.reports())?;
                history.retain(|report| report.step <= state.step);
                Progress::of(state, history)
            }
            Start::Phase(end) => std::mem::replace(&mut end.progress, Progress::start(0)),
        })
    }

    /// Copies the first weights into memory unless they are random: those of a checkpoint, of another run or of the previous phase.
    fn first_weights(
        &self,
        phase: &Phase,
        start: &Start<'_>,
        model: &Model,
        step: &mut TrainingStep,
    ) -> Result<()> {
        if !ranks::is_first() && !matches!(start, Start::Phase(_)) {
            // Rank 0 sends its weights.
            return Ok(());
        }
        let TrainingStep { graph, memory, fingerprint, .. } = step;
        match (start, self.checkpoints()) {
            (Start::Phase(end), _) => weights::carry(&end.step.memory, model, graph, (memory, phase.first)),
            (Start::Checkpoint(name, state), Some(checkpoints)) => {
                check_resumable(state, model, fingerprint)?;
                if !(phase.is_later() && state.step == phase.first) {
                    checkpoints.load(name, state, memory, true)?;
                    // A missing tensor must not be replaced by random numbers.
                    return checkpoints.check_tensors(name, graph.kept(), memory);
                }
                let mut before = Memory::new(Device::Cpu, Precision::F32)?;
                checkpoints.load(name, state, &mut before, false)?;
                weights::carry(&before, model, graph, (memory, phase.first))
            }
            _ => match &self.method.recipe.train.from {
                Some(run) => weights::inherit(run, graph, memory),
                None => Ok(()),
            },
        }
    }

    /// Returns the weights of the run's best checkpoint, if the state names one.
    fn best_weights(&self, state: &State, step: &TrainingStep) -> Result<Option<Kept>> {
        let Some((_, best)) = state.best else { return Ok(None) };
        let seed = self.method.recipe.train.seed;
        Kept::best(self.checkpoints(), best, (&step.graph, &step.memory), seed)
    }

    fn checkpoints(&self) -> Option<&Checkpoints> {
        self.folder.map(|folder| &folder.checkpoints)
    }

    fn steps(
        &self,
        (phase, model): (&Phase, &Arc<Model>),
        program: CompiledStep,
        mut step: TrainingStep,
        (progress, kept, saved): (Progress, Option<Kept>, bool),
        observer: &mut dyn Observer,
    ) -> Result<PhaseEnd> {
        let (first, started, earlier) = (progress.steps, Instant::now(), progress.seconds);
        let mut training = TrainingLoop {
            model,
            phase,
            checkpoints: self.checkpoints(),
            program,
            validation: Validation::new(model, self.set.split(Split::Validation), self.interrupt)?,
            log: Log::open(self.folder.map(|folder| folder.run.folder()), first)?,
            progress,
            kept,
            recent: Recent { step: first, ..Recent::default() },
            saved,
            missed: None,
            started,
            reported: (started, first),
            exchange: Exchange::new(),
            interrupt: self.interrupt,
            observer,
        };
        let mut rounds = Rounds::new(&step, self.set, phase, self.interrupt)?;
        loop {
            let until = training.refine(&mut rounds, &mut step)?;
            let TrainingStep { model: own, data, memory, fingerprint, .. } = &mut step;
            let (from, streams) = (training.progress.steps, data.is_streamed());
            let ending = std::thread::scope(|scope| {
                let witness = Witness::new(&own.recipe, self.set, fingerprint);
                let supply = streams.then(|| Supply::start(scope, (own, data), witness, memory, from));
                training.run(until, supply.transpose()?, memory)
            });
            training.progress.ending = ending.map_err(|error| with_batch(error, (own, data), memory))?;
            if until == phase.end || training.progress.ending != Ending::Complete {
                break;
            }
        }
        training.progress.seconds = earlier + started.elapsed().as_secs_f64();
        let TrainingLoop { progress, kept, .. } = training;
        Ok(PhaseEnd { step, progress, kept })
    }
}

/// Adds measurements of the batch to the error of a loss that diverged, if the batch can be drawn again.
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

/// Returns an error if the data or keys that affect a step differ from those of the checkpoint.
fn check_resumable(state: &State, model: &Model, fingerprint: &str) -> Result<()> {
    // Fine-tuning may be added to a run, or changed before it begins.
    let tuned = state.step > state.model.recipe.train.steps;
    let comparable = |model: &Model| {
        let mut recipe = model.recipe.clone();
        let train = &mut recipe.train;
        (train.steps, train.report_every, train.validate_every, train.checkpoint_every) = (1, 1, 1, 1);
        // The first weights, patience and validation do not affect a step.
        (train.patience, train.from, train.validate_trajectories) = (0, None, None);
        recipe.evaluate = EvaluateConfig::default();
        recipe.finetune.steps = 0;
        if !tuned {
            recipe.finetune = FinetuneConfig::default();
        }
        (recipe.data.path, recipe.data.simulate, recipe.data.stream) = (None, None, None);
        recipe
    };
    // User-defined operators and objectives are compared by name.
    state.model.clone().with(model.foreign())?;
    let moved = tuned && state.model.recipe.train.steps != model.recipe.train.steps;
    if moved || comparable(&state.model) != comparable(model) {
        let mut keys = comparable(&state.model).differing_keys(&comparable(model));
        if moved {
            keys.push("train.steps".into());
        }
        return Err(CfoError::bad_data(
            format!("the checkpoint was made with other values of `{}`", keys.join("`, `")),
            "resume with the values in the run's checkpoint, or train into a new folder",
        ));
    }
    if state.data_fingerprint != fingerprint {
        return Err(CfoError::bad_data(
            "the checkpoint was made from other training data",
            "resume with the data of the first run, or train into a new folder",
        ));
    }
    Ok(())
}
