//! A trained model: the weights, the scaling and the split of the data, with methods that predict.

mod field;
mod legs;
mod load;
mod shorter_steps;
mod solution;
mod weights;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cfo_data::{FieldShape, TrajectoryInputs};
use cfo_device::Device;
use cfo_engine::{Memory, Precision};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::objective::MotionKind;
use crate::predict::evaluate::{Evaluator, Report, batch};
use crate::predict::rollout::{Prediction, Request, Watch};
use crate::recipe::{Recipe, Solver, SolverOptions};
use crate::run::checkpoint::{LoopState, State};
use crate::run::{Ending, Progress, Run, StepReport, WallTime};
use crate::trajectories::Part;
use legs::Legs;
pub use load::Loader;
pub use shorter_steps::ShorterSteps;
pub use solution::Solution;
use weights::{Weights, reused};
pub(crate) use weights::{copy_weights, for_rollouts as weights_for_rollouts};

/// Number of values of true snapshots that an evaluation holds in memory: enough trajectories to occupy many cores and a GPU.
const HELD: usize = 1 << 26;

/// Weights that the clones of a model share.
type Shared = Arc<Mutex<Weights>>;

/// Largest number of other grids for which a model keeps compiled programs.
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
    /// PDE parameters and controls of predictions, for a model that takes them.
    inputs: TrajectoryInputs,
    weights: Shared,
    /// Number of training steps of the weights.
    weights_step: u32,
    progress: Arc<Progress>,
    /// Copies of the weights for other grids, with their compiled programs; the last used one is last.
    grids: Arc<Mutex<Vec<(FieldShape, Shared)>>>,
}

impl Trained {
    /// Creates a model with the latest weights, or with the best ones if they are from an earlier step.
    pub(crate) fn new(
        model: Arc<Model>,
        latest: Memory,
        best: Option<(u32, Memory)>,
        progress: Progress,
    ) -> Result<Self> {
        let solver = model.recipe.solver()?;
        let weights_step = best.as_ref().map_or(progress.steps, |(step, _)| *step);
        let best = best.map(|(_, memory)| memory);
        let weights = Arc::new(Mutex::new(Weights::new(&model, latest, best)?));
        let (progress, grids) = (Arc::new(progress), Arc::default());
        Ok(Self {
            model,
            solver,
            inputs: TrajectoryInputs::default(),
            weights,
            weights_step,
            progress,
            grids,
        })
    }

    /// Loads the best checkpoint of a run, else its latest, on a GPU if there is one.
    ///
    /// # Errors
    /// If there is no checkpoint or it is damaged, or the run was trained with a user-defined operator or objective.
    pub fn load(run: impl AsRef<Path>) -> Result<Self> {
        Self::loader(run).load()
    }

    /// Returns a [`Loader`], which sets the checkpoint, the device, or your own operator or objective.
    pub fn loader(run: impl AsRef<Path>) -> Loader {
        Loader::new(run.as_ref())
    }

    /// Sets the solver, instead of that of the recipe.
    #[must_use]
    pub fn with_solver(&self, solver: Solver) -> Self {
        Self { solver, ..self.clone() }
    }

    /// Sets options of the solver; the recipe sets the rest. An autoregressive model has no solver and ignores the options
    /// ([`Trained::ignores`]).
    ///
    /// # Errors
    /// If the options contradict each other or are out of range.
    pub fn with_options(&self, options: &SolverOptions) -> Result<Self> {
        match options.is_empty() || self.ignores(options).is_some() {
            true => Ok(self.clone()),
            false => Ok(self.with_solver(Solver::resolve(&self.model.recipe, options)?)),
        }
    }

    /// Returns a warning if the options of the solver have no effect.
    pub fn ignores(&self, options: &SolverOptions) -> Option<String> {
        let is_stepped = self.model.motion().kind() == MotionKind::Step && !options.is_empty();
        is_stepped.then(|| {
            "the model predicts snapshot after snapshot: options of the solver have no effect".into()
        })
    }

    /// Sets the seed of rollouts, for objectives whose rollouts draw random numbers. Each seed gives another member of an ensemble.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let mut model = Model::clone(&self.model);
        model.recipe.evaluate.seed = seed;
        Self { model: Arc::new(model), ..self.clone() }
    }

    /// Sets the PDE parameters of predictions, in the order of the training data.
    #[must_use]
    pub fn with_parameters(&self, parameters: &[f64]) -> Self {
        self.with_inputs(&TrajectoryInputs { parameters: parameters.to_vec(), ..self.inputs.clone() })
    }

    /// Sets the inputs of predictions beside the state: PDE parameters and controls, in the order of the training data.
    #[must_use]
    pub fn with_inputs(&self, inputs: &TrajectoryInputs) -> Self {
        Self { inputs: inputs.clone(), ..self.clone() }
    }

    /// Returns the model for states on another grid, if its weights do not depend on the grid. Programs for the last few grids are cached.
    ///
    /// # Errors
    /// If the network works on one grid only, or the states differ in channels or axes.
    pub fn on_grid(&self, shape: FieldShape) -> Result<Self> {
        if shape == self.model.shape() {
            return Ok(self.clone());
        }
        let model = Arc::new(self.model.on_grid(shape)?);
        let mut grids = self.grids.lock().unwrap_or_else(PoisonError::into_inner);
        let create = || Ok((shape, Arc::new(Mutex::new(self.lock().copied(&model)?))));
        let (_, weights) = reused(&mut grids, MOST_GRIDS, |(known, _)| *known == shape, create)?;
        let weights = Arc::clone(weights);
        Ok(Self { model, weights, ..self.clone() })
    }

    /// Predicts states at any times, forward and backward, from one or several states at `start`.
    ///
    /// States are in the user's units and relative to [`Scaling::offset`](crate::measure::scaling::Scaling::offset), as the values of
    /// [`Trajectories`](crate::Trajectories) are; for most data there is no offset.
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
            inputs: vec![self.inputs.clone(); count],
        };
        let found = self.predict_each(&request, &Watch::default())?;
        match found.diverged.first() {
            Some(&divergence) => Err(divergence.into()),
            None => Ok(Solution::new(self.model.shape().len(), times, found)),
        }
    }

    /// Predicts trajectories from states, start times and PDE parameters. Times may be in any order, on both sides of the start. A
    /// trajectory that diverges is listed with the states that it reached and does not affect the others.
    ///
    /// # Errors
    /// If the request contradicts itself or does not fit the model, or it was interrupted.
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

    /// Compares rollouts from the first snapshot of each trajectory with all its snapshots.
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

    /// Compares rollouts with trajectories. A trajectory that diverges is listed in the report and does not affect the others. With
    /// `metrics` the report has the metrics of PDEBench and others.
    ///
    /// # Errors
    /// If a trajectory does not fit the model or cannot be read, or it was interrupted.
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

    /// Writes the model as the folder of a run: recipe, checkpoints and log. There are two checkpoints, `best` and `latest`, if the best
    /// weights are not the latest. The run can be resumed if this process trained it; a loaded model has no optimiser state.
    ///
    /// # Errors
    /// If the folder already holds a run, or cannot be written.
    pub fn save(&self, run: impl AsRef<Path>) -> Result<()> {
        let (run, progress) = (run.as_ref(), &self.progress);
        let (run, checkpoints) = (Run::at(run), Run::at(run).checkpoints());
        if checkpoints.exist() {
            return Err(CfoError::RunExists { folder: run.folder().into() });
        }
        let weights = self.lock();
        let state = State::new(&self.model, progress);
        run.write_history(&state.recipe(), &progress.history)?;
        let (latest, best) = weights.both();
        if let Some((best, (_, step))) = best.zip(progress.best) {
            let report = progress.history.iter().find(|report| report.step == step);
            let loop_state =
                LoopState { loss: report.map(|report| report.loss), stale: 0, ..progress.loop_state };
            let then = Progress { steps: step, loop_state, ..Progress::clone(progress) };
            checkpoints.save(best, State::new(&self.model, &then), true)?;
        }
        checkpoints.save(latest, state, false)
    }

    /// Returns the model without its weights: recipe, scaling, shapes and names.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Returns the recipe that the model was trained with.
    pub fn recipe(&self) -> &Recipe {
        &self.model.recipe
    }

    /// Returns the solver.
    pub fn solver(&self) -> Solver {
        self.solver
    }

    /// Returns the mean loss of the last report.
    pub fn loss(&self) -> f64 {
        self.progress.loop_state.loss.unwrap_or(f64::NAN)
    }

    /// Returns warnings about the quality of the model: a loss above that of a network that predicts no change, or a last validation that
    /// diverged or is not better than predicting 0.
    pub fn doubts(&self) -> Vec<String> {
        self.progress.doubts(self.model.has_relative_loss() && self.recipe().finetune.steps == 0)
    }

    /// Returns warnings about the training data, and the [`doubts`](Self::doubts).
    pub fn warnings(&self) -> Vec<String> {
        self.progress.warnings.iter().cloned().chain(self.doubts()).collect()
    }

    /// Returns the number of steps made, including those before the run was resumed.
    pub fn steps(&self) -> u32 {
        self.progress.steps
    }

    /// Returns the step of the weights, which is not the last one if an earlier validation was better.
    pub fn weights_step(&self) -> u32 {
        self.weights_step
    }

    /// Returns why training ended.
    pub fn ending(&self) -> Ending {
        self.progress.ending
    }

    /// Returns the duration of training in seconds, since the start or since it was resumed.
    pub fn seconds(&self) -> f64 {
        self.progress.seconds
    }

    /// Returns the wall time by kind of work, since the start or since training was resumed.
    pub fn wall_time(&self) -> WallTime {
        self.progress.time
    }

    /// Returns the reports of training in order; for a loaded run those of its log.
    pub fn history(&self) -> &[StepReport] {
        &self.progress.history
    }

    /// Returns the precision of rollouts.
    pub fn precision(&self) -> Precision {
        self.lock().memory().precision()
    }

    /// Returns the device that holds the weights.
    ///
    /// # Errors
    /// If the device is unknown.
    pub fn device(&self) -> Result<Device> {
        Ok(Device::of(self.lock().memory())?)
    }

    /// Gives access to the tensors that predictions use. Programs that are already compiled use the changed values.
    pub fn with_memory<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        // Copies for other grids would not use them.
        self.grids.lock().unwrap_or_else(PoisonError::into_inner).clear();
        work(self.lock().memory())
    }

    fn states(&self, values: &[f32]) -> Result<Vec<Vec<f32>>> {
        let size = self.model.shape().len();
        if values.is_empty() || !values.len().is_multiple_of(size) {
            return Err(CfoError::BadData {
                problem: format!("{} values are not a positive multiple of the state size {size}", values.len()),
                hint: "a state is flattened `[points, channels]`, with the grid and the channels of the training data".into(),
            });
        }
        Ok(values.chunks_exact(size).map(<[f32]>::to_vec).collect())
    }

    /// Locks the weights. A lock poisoned by a panic is usable, because no later call reads unfinished values.
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

    /// Checks that programs compiled for a grid are reused and that few grids are kept.
    #[test]
    fn the_last_few_grids_are_kept() {
        let burgers = Burgers { grid: 16, frames: 3, viscosity: 0.05, ..Burgers::default() };
        let set = Trajectories::simulate(&burgers, 3, 0, &false.into()).unwrap();
        let text = "[operator]\nkind = \"fno\"\nwidth = 4\nmodes = 4\nblocks = 1\n[train]\nsteps = 1\nbatch = 2\nvalidate_every = 0\n";
        let recipe = Recipe::parse(text, &[]).unwrap();
        let trained = Training::from_recipe(&recipe).device(Device::Cpu).fit(&set).unwrap();
        let on = |points: usize| {
            trained.on_grid(FieldShape::line(points, set.description.shape.channels)).unwrap().weights
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
