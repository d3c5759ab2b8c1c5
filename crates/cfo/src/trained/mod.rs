//! A trained model: one value that owns its weights, its scaling and its split, and predicts with them.

mod field;
mod legs;
mod load;
mod shorter_steps;
mod solution;
mod weights;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cfo_data::FieldShape;
use cfo_device::Device;
use cfo_engine::{Memory, Precision};

use crate::checkpoint::{Checkpoints, Course, State};
use crate::error::{CfoError, Result};
use crate::evaluate::{Evaluator, Report, batch};
use crate::model::Model;
use crate::objective::Motion;
use crate::recipe::Recipe;
use crate::rollout::{Prediction, Request, Solver, SolverOptions, Watch};
use crate::train::{Ending, Outcome, StepReport, WallTime, write_log};
use crate::trajectories::Part;
use legs::Legs;
pub use load::Loader;
pub use shorter_steps::ShorterSteps;
pub use solution::Solution;
use weights::Weights;
pub(crate) use weights::{copy_weights, for_rollouts as weights_for_rollouts};

/// Numbers of true snapshots that an evaluation holds in memory at a time: enough trajectories to keep many cores and a GPU busy.
const HELD: usize = 1 << 26;

/// Weights that clones of a model share.
type Shared = Arc<Mutex<Weights>>;

/// Grids besides that of the training data that a model is kept ready for.
const MOST_GRIDS: usize = 4;

/// A trained model. It owns its weights, its scaling and the split of its data; clones share them.
///
/// ```
/// # use cfo::{Trajectories, Training, operator::Mlp, data::simulate::Lorenz};
/// # let lorenz = Lorenz { frames: 21, horizon: 0.2, ..Lorenz::default() };
/// # let data = Trajectories::simulate(&lorenz, 4, 1, &false.into())?;
/// let trained = Training::new(Mlp::default()).steps(2).batch(8).fit(&data)?;
/// let later = trained.predict(&[1.0, 2.0, 20.0], 0.0, &[0.01, 0.075, 0.2])?;
/// assert_eq!((later.states.len(), later.state(2).len()), (9, 3));
/// # Ok::<(), cfo::CfoError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Trained {
    model: Arc<Model>,
    solver: Solver,
    /// PDE parameters of predictions, for a model that is conditioned on them.
    parameters: Vec<f64>,
    weights: Shared,
    /// Number of steps behind the weights.
    weights_step: u32,
    outcome: Arc<Outcome>,
    /// Copies of the weights for other grids with what was compiled for them, the last used last.
    grids: Arc<Mutex<Vec<(FieldShape, Shared)>>>,
}

impl Trained {
    /// A model with the latest weights, or with the best ones, of an earlier step, where they are others.
    pub(crate) fn new(
        model: Arc<Model>,
        latest: Memory,
        best: Option<(u32, Memory)>,
        outcome: Outcome,
    ) -> Result<Self> {
        let solver = model.recipe.solver()?;
        let weights_step = best.as_ref().map_or(outcome.steps, |(step, _)| *step);
        let best = best.map(|(_, memory)| memory);
        let weights = Arc::new(Mutex::new(Weights::new(&model, latest, best)?));
        let (outcome, grids) = (Arc::new(outcome), Arc::default());
        Ok(Self { model, solver, parameters: Vec::new(), weights, weights_step, outcome, grids })
    }

    /// Loads a run, on the best device that there is: its best checkpoint, else its latest.
    ///
    /// # Errors
    /// If there is none or it is damaged, or the run was trained with an operator or an objective of its own.
    pub fn load(run: impl AsRef<Path>) -> Result<Self> {
        Self::loader(run).load()
    }

    /// Loads a run with more to say: which checkpoint, on which device, with which operator or objective of one's own.
    pub fn loader(run: impl AsRef<Path>) -> Loader {
        Loader::new(run.as_ref())
    }

    /// The same model rolled out by another solver than its recipe's.
    #[must_use]
    pub fn with_solver(&self, solver: Solver) -> Self {
        Self { solver, ..self.clone() }
    }

    /// This model rolled out as a caller asks; the recipe decides what is not given. A model that predicts snapshot after snapshot has no solver and ignores
    /// the options ([`Trained::ignores`]).
    ///
    /// # Errors
    /// If the options contradict each other or make no sense.
    pub fn with_options(&self, options: &SolverOptions) -> Result<Self> {
        match options.is_empty() || self.ignores(options).is_some() {
            true => Ok(self.clone()),
            false => Ok(self.with_solver(Solver::resolve(&self.model.recipe, options)?)),
        }
    }

    /// A warning where options of a solver change nothing.
    pub fn ignores(&self, options: &SolverOptions) -> Option<String> {
        let is_stepped = self.model.objective().motion() == Motion::Step && !options.is_empty();
        is_stepped.then(|| {
            "the model predicts snapshot after snapshot: a solver, its steps and tolerances change nothing".into()
        })
    }

    /// The same model with another seed of the random numbers that its rollouts draw, where its objective draws any: another member of an
    /// ensemble.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let mut model = Model::clone(&self.model);
        model.recipe.evaluate.seed = seed;
        Self { model: Arc::new(model), ..self.clone() }
    }

    /// The same model for predictions with these PDE parameters, in the order of the training data.
    #[must_use]
    pub fn with_parameters(&self, parameters: &[f64]) -> Self {
        Self { parameters: parameters.to_vec(), ..self.clone() }
    }

    /// This model for snapshots of another grid, if its weights do not depend on the grid. The last few grids are kept with what was compiled for them.
    ///
    /// # Errors
    /// If the network is bound to its grid, or the snapshots differ in more than that.
    pub fn on_grid(&self, shape: FieldShape) -> Result<Self> {
        if shape == self.model.shape() {
            return Ok(self.clone());
        }
        let model = Arc::new(self.model.on_grid(shape)?);
        let mut grids = self.grids.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match grids.iter().position(|(known, _)| *known == shape) {
            Some(place) => grids.remove(place),
            None => (shape, Arc::new(Mutex::new(self.lock().copied(&model)?))),
        };
        if grids.len() == MOST_GRIDS {
            grids.remove(0);
        }
        let weights = Arc::clone(&known.1);
        grids.push(known);
        Ok(Self { model, weights, ..self.clone() })
    }

    /// Predicts states at times of any order in time, forward and backward, from states at `start`: one, or several one after another.
    /// All are in the user's units and relative to [`Scaling::offset`](crate::scaling::Scaling::offset), as the values of
    /// [`Trajectories`](crate::Trajectories) are; most often that is nothing.
    ///
    /// # Errors
    /// If states or times do not fit the model, or a trajectory diverges.
    pub fn predict(&self, initial: &[f32], start: f64, times: &[f64]) -> Result<Solution> {
        let states = self.states(initial)?;
        let count = states.len();
        let request = Request {
            start: vec![start; count],
            states,
            times: vec![times.to_vec(); count],
            conditions: vec![self.parameters.clone(); count],
        };
        let found = self.predict_each(&request, &Watch::default())?;
        match found.diverged.first() {
            Some(&divergence) => Err(divergence.into()),
            None => Ok(Solution::new(self.model.shape().len(), times, found)),
        }
    }

    /// Predicts trajectories, each from its own state at its own time to its own times, with its own PDE parameters. One that diverges
    /// costs the others nothing: it is named, with the states that it reached. Times may come in any order, on both sides of the start.
    ///
    /// # Errors
    /// If the request contradicts itself or does not fit the model, or the watch ended it.
    pub fn predict_each(&self, request: &Request, watch: &Watch<'_>) -> Result<Prediction> {
        request.check()?;
        let legs = Legs::new(request, self.solver.budget);
        let mut weights = self.lock();
        let mut found = Vec::new();
        for (leg, budget) in legs.requests() {
            let count = batch(&self.model, weights.memory(), leg.start.len());
            let (rollout, memory) = weights.rollout(&self.model, self.solver.tableau, count)?;
            found.push(rollout.predict_each(memory, leg, budget, watch)?);
        }
        Ok(legs.join(self.model.shape().len(), found))
    }

    /// Rolls out the trajectories of a part over all their times, from their first snapshot, and compares.
    ///
    /// # Errors
    /// If a trajectory does not fit the model, cannot be read, or its rollout diverges.
    pub fn evaluate<'a>(&self, part: impl Into<Part<'a>>) -> Result<Report> {
        let report = self.evaluate_each(&part.into(), false, Watch::default())?;
        match report.diverged.first() {
            Some(&divergence) => Err(divergence.into()),
            None => Ok(report),
        }
    }

    /// The same where a trajectory that diverges costs the others nothing and is named in the report, with PDEBench's metrics and
    /// others if asked for.
    ///
    /// # Errors
    /// If a trajectory does not fit the model or cannot be read, or the watch ended it.
    pub fn evaluate_each(&self, part: &Part<'_>, metrics: bool, watch: Watch<'_>) -> Result<Report> {
        if part.description().shape != self.model.shape() {
            return self.on_grid(part.description().shape)?.evaluate_each(part, metrics, watch);
        }
        part.check()?;
        let evaluator = Evaluator { held: HELD, metrics, watch };
        let mut weights = self.lock();
        let portion = evaluator.portion(&self.model, part);
        let count = batch(&self.model, weights.memory(), part.own().len().min(portion));
        let pair = weights.rollout(&self.model, self.solver.tableau, count)?;
        evaluator.run(&self.model, pair, self.solver.budget, part)
    }

    /// Writes the model as the folder of a run: its recipe, a checkpoint, its log. After a training whose best weights are not the latest
    /// there are two checkpoints, `best` and `latest`. The run can be resumed if this process trained it; of a model that was loaded, what
    /// the optimiser remembers is not in memory.
    ///
    /// # Errors
    /// If the folder already holds a run, or the disk refuses.
    pub fn save(&self, run: impl AsRef<Path>) -> Result<()> {
        let (run, outcome) = (run.as_ref(), &self.outcome);
        let checkpoints = Checkpoints::of(run);
        if checkpoints.exist() {
            return Err(CfoError::RunExists { folder: run.into() });
        }
        let weights = self.lock();
        let Outcome { steps, fingerprint, best: lowest, course, .. } = &**outcome;
        let state = State::new(&self.model, *steps, fingerprint, *lowest, *course);
        write_log(run, &state.recipe(), &outcome.history)?;
        let (latest, best) = weights.both();
        if let Some((best, &(_, step))) = best.zip(lowest.as_ref()) {
            let report = outcome.history.iter().find(|report| report.step == step);
            let course = Course { loss: report.map(|report| report.loss), stale: 0, ..*course };
            checkpoints.save(best, State::new(&self.model, step, fingerprint, *lowest, course), true)?;
        }
        checkpoints.save(latest, state, false)
    }

    /// The model: recipe, scaling, shapes and names.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// The recipe that it was trained by.
    pub fn recipe(&self) -> &Recipe {
        &self.model.recipe
    }

    /// How it is integrated.
    pub fn solver(&self) -> Solver {
        self.solver
    }

    /// Mean loss of the last report; not a number in runs of earlier versions.
    pub fn loss(&self) -> f64 {
        self.outcome.course.loss.unwrap_or(f64::NAN)
    }

    /// What makes the model doubtful, from how its training ended: a loss above that of a network that predicts no change, a last
    /// validation that diverged or is no better than predicting 0. Empty where nothing does.
    pub fn doubts(&self) -> Vec<String> {
        self.outcome.doubts(self.model.has_relative_loss() && self.recipe().finetune.steps == 0)
    }

    /// Warnings about the training data, which the observer of the training was told, and the [`doubts`](Self::doubts).
    pub fn warnings(&self) -> Vec<String> {
        self.outcome.warnings.iter().cloned().chain(self.doubts()).collect()
    }

    /// Steps made, those of earlier sessions included.
    pub fn steps(&self) -> u32 {
        self.outcome.steps
    }

    /// Steps behind the weights: fewer than were made where an earlier validation was the best one.
    pub fn weights_step(&self) -> u32 {
        self.weights_step
    }

    /// Why there were no more.
    pub fn ending(&self) -> Ending {
        self.outcome.ending
    }

    /// Seconds of this session's training.
    pub fn seconds(&self) -> f64 {
        self.outcome.seconds
    }

    /// Where this session's wall time went.
    pub fn wall_time(&self) -> WallTime {
        self.outcome.time
    }

    /// The reports of the training, in order; of a loaded run those of its log.
    pub fn history(&self) -> &[StepReport] {
        &self.outcome.history
    }
    /// The precision of rollouts.
    pub fn precision(&self) -> Precision {
        self.lock().memory().precision()
    }

    /// The device that holds the weights.
    ///
    /// # Errors
    /// If it is unknown.
    pub fn device(&self) -> Result<Device> {
        Ok(Device::of(self.lock().memory())?)
    }

    /// Does something with the tensors that predictions read: for those who know the engine. Programs compiled before see the change.
    pub fn with_memory<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        // Copies for other grids would not.
        self.grids.lock().unwrap_or_else(PoisonError::into_inner).clear();
        work(self.lock().memory())
    }

    /// States one after another as states apart.
    fn states(&self, values: &[f32]) -> Result<Vec<Vec<f32>>> {
        let size = self.model.shape().len();
        if values.is_empty() || !values.len().is_multiple_of(size) {
            return Err(CfoError::BadData {
                problem: format!("{} values are no whole states of {size} values each", values.len()),
                hint: "a state is flattened `[height, width, channels]`, with the grid and the channels of the training data".into(),
            });
        }
        Ok(values.chunks_exact(size).map(<[f32]>::to_vec).collect())
    }

    /// The weights. A thread that panicked with them in hand left nothing half done that is read again.
    fn lock(&self) -> MutexGuard<'_, Weights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cfo_data::simulate::Burgers;

    use super::*;
    use crate::train::Training;
    use crate::trajectories::Trajectories;

    /// What was compiled for a grid is found again, and the grids that are kept are few.
    #[test]
    fn the_last_few_grids_are_kept() {
        let burgers = Burgers { grid: 16, frames: 3, viscosity: 0.05, ..Burgers::default() };
        let set = Trajectories::simulate(&burgers, 3, 0, &false.into()).unwrap();
        let text = "[operator]\nkind = \"fno\"\nwidth = 4\nmodes = 4\nblocks = 1\n[train]\nsteps = 1\nbatch = 2\nvalidate_every = 0\n";
        let recipe = Recipe::parse(text, &[]).unwrap();
        let trained = Training::from_recipe(&recipe).device(Device::Cpu).fit(&set).unwrap();
        let on = |points: usize| {
            trained.on_grid(FieldShape { width: points, ..set.description.shape }).unwrap().weights
        };
        let first = on(18);
        assert!(Arc::ptr_eq(&first, &on(18)));
        assert!(Arc::ptr_eq(&on(16), &trained.weights));
        for points in 20..20 + MOST_GRIDS {
            on(points);
        }
        assert!(!Arc::ptr_eq(&first, &on(18)));
        assert_eq!(trained.grids.lock().unwrap().len(), MOST_GRIDS);
    }
}
