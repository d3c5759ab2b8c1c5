//! The builder of a training: what is trained, for how long, where, and who watches.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use cfo_device::Device;

use super::observer::Lent;
use super::{Observer, Reply, Session, StepReport, train};
use crate::error::Result;
use crate::method::Method;
use crate::objective::Objective;
use crate::operator::Operator;
use crate::recipe::Recipe;
use crate::trained::Trained;
use crate::trajectories::Trajectories;

/// A training to be made. What is not set has the recipe's default, which is the paper's: flow matching on quintic splines.
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
    method: Method,
    device: Option<Device>,
    folder: Option<PathBuf>,
    resume: bool,
    latest: bool,
    interrupt: Option<&'a AtomicBool>,
    observer: Option<Box<dyn Observer + 'a>>,
}

impl<'a> Training<'a> {
    /// Of an operator: one of this crate's or one's own.
    pub fn new(operator: impl Operator + 'static) -> Self {
        let mut training = Self::from_recipe(&Recipe::default());
        match operator.config() {
            Some(config) => training.method.recipe.operator = config,
            None => training.method.foreign.set_operator(Some(Arc::new(operator))),
        }
        training
    }

    /// By a recipe.
    pub fn from_recipe(recipe: &Recipe) -> Self {
        let method = Method::of(recipe);
        Self {
            method,
            device: None,
            folder: None,
            resume: false,
            latest: false,
            interrupt: None,
            observer: None,
        }
    }

    /// What the network is trained for: one of this crate's objectives or one's own.
    #[must_use]
    pub fn objective(mut self, objective: impl Objective + 'static) -> Self {
        let known = objective.describe(&mut self.method.recipe);
        self.method.foreign.set_objective((!known).then(|| Arc::new(objective) as Arc<dyn Objective>));
        self
    }

    /// Optimiser steps.
    #[must_use]
    pub fn steps(mut self, steps: u32) -> Self {
        self.method.recipe.train.steps = steps;
        self
    }

    /// Samples a step.
    #[must_use]
    pub fn batch(mut self, batch: usize) -> Self {
        self.method.recipe.train.batch = batch;
        self
    }

    /// The highest learning rate.
    #[must_use]
    pub fn learning_rate(mut self, rate: f64) -> Self {
        self.method.recipe.train.learning_rate = rate;
        self
    }

    /// Seed of the weights and of the batches.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.method.recipe.train.seed = seed;
        self
    }

    /// Any other key of the recipe.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Recipe)) -> Self {
        change(&mut self.method.recipe);
        self
    }

    /// The device; by default the best that there is.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// The folder of the run, into which checkpoints and the log go while it trains; by default nothing is written.
    #[must_use]
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Goes on from the folder's newest checkpoint that is whole, if it has any.
    #[must_use]
    pub fn resume(mut self, resume: bool) -> Self {
        self.resume = resume;
        self
    }

    /// Returns the weights after the last step, even where a validation found better ones.
    #[must_use]
    pub fn latest(mut self, latest: bool) -> Self {
        self.latest = latest;
        self
    }

    /// A flag that, once set from outside, stops the training after the step under way.
    #[must_use]
    pub fn interrupt(mut self, flag: &'a AtomicBool) -> Self {
        self.interrupt = Some(flag);
        self
    }

    /// Who is told at each report: a closure that returns nothing, or `ControlFlow::Break(())` to end the training there.
    #[must_use]
    pub fn observe<R: Reply>(mut self, observer: impl FnMut(&StepReport) -> R + 'a) -> Self {
        self.observer = Some(Box::new(observer));
        self
    }

    /// The same for an observer that is looked at again afterwards, or that also takes notices.
    #[must_use]
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Some(Box::new(Lent(observer)));
        self
    }

    /// Trains. A learning rate with which the network diverges at once is halved a few times.
    ///
    /// The model has the weights with the lowest validation error where the training validates, else those after the last step: the
    /// same that [`Trained::load`] takes from the run's folder.
    ///
    /// # Errors
    /// If recipe and data do not fit, another process trains in the folder, the disk or the device refuses, the loss diverges,
    /// or the run is interrupted (its latest step is then saved).
    pub fn fit(self, data: &Trajectories) -> Result<Trained> {
        self.method.recipe.check()?;
        let mut nobody = |_: &StepReport| {};
        let mut observer = self.observer;
        let session = Session {
            device: self.device.unwrap_or_else(Device::best),
            folder: self.folder.as_deref(),
            resume: self.resume,
            latest: self.latest,
            interrupt: self.interrupt,
            observer: observer.as_deref_mut().unwrap_or(&mut nobody),
        };
        train(&self.method, data, session)
    }
}
