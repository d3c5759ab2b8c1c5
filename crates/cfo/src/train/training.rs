//! The builder of a training.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_device::Device;

use super::observer::Lent;
use super::{Observer, Reply, train};
use crate::error::Result;
use crate::model::Method;
use crate::objective::Objective;
use crate::operator::Operator;
use crate::predict::Trained;
use crate::recipe::Recipe;
use crate::run::StepReport;
use crate::trajectories::Trajectories;

/// A builder for training. Keys that are not set have the defaults of a [`Recipe`]: flow matching with quintic splines, for example.
///
/// ```
/// # use cfo::{Trajectories, Training, objective::FlowMatching, operator::Mlp, data::simulate::Lorenz};
/// # let lorenz = Lorenz { frames: 21, horizon: 0.2, ..Lorenz::default() };
/// # let data = Trajectories::simulate(&lorenz, 4, 1, &false.into())?;
/// let trained = Training::new(Mlp { hidden: vec![16, 16], ..Mlp::default() })
///     .objective(FlowMatching::quintic().stencil(5))
///     .steps(20)
///     .batch(32)
///     .observe(|report| println!("{} {:.2e}", report.step, report.loss))
///     .fit(&data)?;
/// assert_eq!(trained.steps(), 20);
/// # Ok::<(), cfo::CfoError>(())
/// ```
pub struct Training<'a> {
    pub(super) method: Method,
    pub(super) device: Option<Device>,
    pub(super) folder: Option<PathBuf>,
    pub(super) resume: bool,
    pub(super) latest: bool,
    pub(super) interrupt: Option<&'a AtomicBool>,
    pub(super) observer: Box<dyn Observer + 'a>,
}

impl<'a> Training<'a> {
    /// Creates a training run for `operator`: one of this crate's networks or your own.
    pub fn new(operator: impl Operator + 'static) -> Self {
        let mut training = Self::from_recipe(&Recipe::default());
        match operator.config() {
            Some(config) => training.method.recipe.operator = config,
            None => training.method.foreign.set_operator(Some(Arc::new(operator))),
        }
        training
    }

    /// Creates a training run with the keys of a recipe.
    pub fn from_recipe(recipe: &Recipe) -> Self {
        let method = Method::of(recipe);
        Self {
            method,
            device: None,
            folder: None,
            resume: false,
            latest: false,
            interrupt: None,
            observer: Box::new(|_: &StepReport| {}),
        }
    }

    /// Sets the objective: one of this crate's or your own.
    #[must_use]
    pub fn objective(mut self, objective: impl Objective + 'static) -> Self {
        let known = objective.describe(&mut self.method.recipe);
        self.method.foreign.set_objective((!known).then(|| Arc::new(objective) as Arc<dyn Objective>));
        self
    }

    /// Sets the number of optimiser steps.
    #[must_use]
    pub fn steps(mut self, steps: u32) -> Self {
        self.method.recipe.train.steps = steps;
        self
    }

    /// Sets the number of samples per step.
    #[must_use]
    pub fn batch(mut self, batch: usize) -> Self {
        self.method.recipe.train.batch = batch;
        self
    }

    /// Sets the highest learning rate.
    #[must_use]
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.method.recipe.train.learning_rate = rate;
        self
    }

    /// Sets the seed of the weights and of the batches.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.method.recipe.train.seed = seed;
        self
    }

    /// Changes any other key of the recipe.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Recipe)) -> Self {
        change(&mut self.method.recipe);
        self
    }

    /// Sets the device. Default: a GPU if there is one, else the CPU.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Sets the folder of the run, to which checkpoints and the log are written. Default: nothing is written.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Sets whether to continue from the newest intact checkpoint in the folder, if there is one.
    #[must_use]
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Sets whether [`Training::fit`] returns the weights after the last step instead of those with the lowest validation error.
    #[must_use]
    pub fn latest(mut self, latest: bool) -> Self {
        self.latest = latest;
        self
    }

    /// Sets a flag that, once `true`, ends training after the current step.
    #[must_use]
    pub fn interrupt(mut self, flag: &'a AtomicBool) -> Self {
        self.interrupt = Some(flag);
        self
    }

    /// Sets a closure that is called at each report. It returns nothing, or `ControlFlow::Break(())` to end training.
    #[must_use]
    pub fn observe<R: Reply>(mut self, observer: impl FnMut(&StepReport) -> R + 'a) -> Self {
        self.observer = Box::new(observer);
        self
    }

    /// Sets an [`Observer`], for observers with state that is read after training, or that receive notices.
    #[must_use]
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Box::new(Lent(observer));
        self
    }

    /// Trains the network. If it diverges at once, the learning rate is halved and training restarts, a few times at most.
    ///
    /// The model has the weights with the lowest validation error, or without validation those after the last step. [`Trained::load`] makes
    /// the same choice.
    ///
    /// # Errors
    /// If recipe and data do not fit, another process trains in the folder, the disk or the device has an error, the loss diverges,
    /// or the run is interrupted (its latest step is then saved).
    pub fn fit(self, data: &Trajectories) -> Result<Trained> {
        self.method.recipe.check()?;
        train(self, data)
    }
}
