//! A training with one learning rate, from its first step or from a checkpoint.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use cfo_data::Split;
use cfo_device::Device;

use super::compiled::CompiledStep;
use super::folder::Folder;
use super::log::{Log, read_log};
use super::prepared::Prepared;
use super::run::Run;
use super::supply::Supply;
use super::validation::Validation;
use super::wall_time::timed;
use super::{Observer, Outcome, WallTime, is_finished, weights};
use crate::checkpoint::{Course, State};
use crate::error::{CfoError, Result};
use crate::fingerprint::Hash;
use crate::method::Method;
use crate::model::Model;
use crate::recipe::{EvaluateConfig, Recipe};
use crate::trained::Trained;
use crate::training_data::TrainingData;
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
}

impl Attempt<'_> {
    /// Trains, from a checkpoint if there is one, in a session that began earlier.
    pub(super) fn run(
        &self,
        start: Option<(String, State)>,
        observer: &mut dyn Observer,
        begun: Instant,
    ) -> Result<Trained> {
        let mut time = WallTime::default();
        // Units stay those of the run, whatever an earlier version measured.
        let known = start.as_ref().map(|(_, state)| &state.model);
        let prepared = timed(&mut time.reading, || Prepared::by(self.method, self.set, self.device, known));
        let mut prepared = prepared?;
        let state = start.as_ref().map(|(_, state)| state);
        self.take_weights(start.as_ref(), &mut prepared)?;
        if let Some(state) = state.filter(|state| self.is_finished(state)) {
            let history = self.folder.map_or_else(Vec::new, |folder| read_log(folder.path, state.step));
            return Trained::new(
                Arc::clone(&prepared.model),
                prepared.into_weights()?,
                Outcome::of(state, history),
            );
        }
        prepared.initialize()?;
        if let Some(folder) = self.folder {
            folder.write_recipe(self.given)?;
        }
        let program = timed(&mut time.compiling, || prepared.compile(&[]))?;
        let mut outcome = self.steps(program, &mut prepared, state, (observer, time))?;
        outcome.time.close(begun);
        Trained::new(Arc::clone(&prepared.model), prepared.into_weights()?, outcome)
    }

    fn is_finished(&self, state: &State) -> bool {
        is_finished(state.step, &state.course, &self.method.recipe)
    }

    /// Puts the first weights into memory where they are not drawn: those of a checkpoint or of another run.
    fn take_weights(&self, start: Option<&(String, State)>, prepared: &mut Prepared) -> Result<()> {
        let Prepared { model, data, graph, memory, fingerprint, .. } = prepared;
        match (self.folder, start) {
            (Some(folder), Some((name, state))) => {
                let found = match Hash::of(&state.data_fingerprint) {
                    Some(Hash::NEW) => fingerprint.clone(),
                    Some(hash) => TrainingData::fingerprint_by(hash, &self.method.recipe, self.set)?,
                    None => data.earlier_fingerprint(model, self.set)?,
                };
                check_resumable(state, model, &found)?;
                weights::restore(&folder.checkpoints, (name, state), graph, memory)
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
        program: CompiledStep,
        prepared: &mut Prepared,
        state: Option<&State>,
        (observer, time): (&mut dyn Observer, WallTime),
    ) -> Result<Outcome> {
        let Prepared { model, data, memory, fingerprint, .. } = prepared;
        let step = memory.read_index("train.step")?[0];
        let path = self.folder.map(|folder| folder.path);
        let history = state.and(path).map_or_else(Vec::new, |path| read_log(path, step));
        let started = Instant::now();
        let fresh = Course { halvings: self.halvings, ..Course::default() };
        let mut run = Run {
            model,
            fingerprint: fingerprint.clone(),
            checkpoints: self.folder.map(|folder| &folder.checkpoints),
            program,
            validation: Validation::new(model, self.set.split(Split::Validation), self.interrupt)?,
            log: Log::open(path, step)?,
            history,
            best: state.and_then(|state| state.best),
            course: state.map_or(fresh, |state| state.course),
            saved: state.is_some(),
            started,
            since: (started, step),
            interrupt: self.interrupt,
            observer,
            time,
        };
        let (steps, ending) = std::thread::scope(|scope| {
            let supply = match data.is_streamed() {
                true => Some(Supply::start(scope, (model, data, self.set), memory, step)?),
                false => None,
            };
            run.steps(step, supply, memory)
        })?;
        Ok(run.outcome(steps, ending))
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
        recipe.evaluate = EvaluateConfig::default();
        (recipe.data.path, recipe.data.simulate, recipe.data.stream) = (None, None, None);
        recipe
    };
    // The names of an operator and an objective that recipes have no words for.
    state.model.clone().with(model.foreign())?;
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
