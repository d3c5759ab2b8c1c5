//! Loading of trained models from the folders of runs.

use std::path::Path;
use std::sync::Arc;

use cfo_device::Device;
use cfo_engine::{KeptTensor, Memory, Precision, Role};

use super::Trained;
use crate::error::{CfoError, Result};
use crate::model::Foreign;
use crate::objective::Objective;
use crate::operator::Operator;
use crate::run::{Progress, Run};

/// A builder for loading a run. By default it loads the best checkpoint, or else the latest, on a GPU if there is one.
#[derive(Clone, Debug)]
pub struct Loader {
    run: Run,
    checkpoint: Option<String>,
    device: Option<Device>,
    precision: Option<Precision>,
    foreign: Foreign,
}

impl Loader {
    pub(super) fn new(run: &Path) -> Self {
        let (checkpoint, device, precision) = (None, None, None);
        Self { run: Run::at(run), checkpoint, device, precision, foreign: Foreign::default() }
    }

    /// Sets the checkpoint: `latest`, `best` or `step-N`.
    #[must_use]
    pub fn checkpoint(mut self, name: impl Into<String>) -> Self {
        self.checkpoint = Some(name.into());
        self
    }

    /// Sets the device.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// Sets the precision of rollouts, instead of that of the recipe.
    #[must_use]
    pub fn precision(mut self, precision: Precision) -> Self {
        self.precision = Some(precision);
        self
    }

    /// Sets the operator that the run was trained with, if it is your own.
    #[must_use]
    pub fn operator(mut self, operator: impl Operator + 'static) -> Self {
        let known = operator.config().is_some();
        self.foreign.set_operator((!known).then(|| Arc::new(operator) as Arc<dyn Operator>));
        self
    }

    /// Sets the objective that the run was trained with, if it is your own.
    #[must_use]
    pub fn objective(mut self, objective: impl Objective + 'static) -> Self {
        let known = objective.describe(&mut crate::recipe::Recipe::default());
        self.foreign.set_objective((!known).then(|| Arc::new(objective) as Arc<dyn Objective>));
        self
    }

    /// Returns the name of the checkpoint to load.
    ///
    /// # Errors
    /// If the folder has no checkpoint, or its best one is missing.
    pub fn checkpoint_name(&self) -> Result<String> {
        let checkpoints = self.run.checkpoints();
        if !checkpoints.exist() {
            return Err(CfoError::NoRun { folder: self.run.folder().into() });
        }
        match &self.checkpoint {
            Some(name) => Ok(name.clone()),
            None => Ok(checkpoints.preferred()?.into()),
        }
    }

    /// Returns a warning if `recipe.toml` of the run differs from the recipe that the checkpoint was trained with.
    pub fn warning(&self) -> Option<String> {
        self.run.recipe_warning()
    }

    /// Loads the run.
    ///
    /// # Errors
    /// If the checkpoint is missing or damaged, or was trained with another operator or objective.
    pub fn load(&self) -> Result<Trained> {
        let name = self.checkpoint_name()?;
        let checkpoints = self.run.checkpoints();
        let state = checkpoints.state(&name)?;
        let model = Arc::new(state.model.clone().with(&self.foreign)?);
        let device = self.device.unwrap_or_else(Device::best);
        let precision = self.precision.unwrap_or_else(|| model.recipe.rollout_precision_on(device));
        let mut memory = Memory::new(device, precision)?;
        checkpoints.load(&name, &state, &mut memory, false)?;
        let (network, prefix) = (model.graph()?, model.weight_prefix());
        let named = network.parameters().iter().map(|one| (format!("{prefix}{}", one.name), &one.shape));
        let named: Vec<_> = named.collect();
        let needed = named.iter().map(|(name, shape)| KeptTensor { name, shape, role: Role::Weight });
        checkpoints.check_tensors(&name, needed, &memory)?;
        // The best checkpoint has the log of the whole run; a named checkpoint has the log up to its step.
        let last = if self.checkpoint.is_none() { u32::MAX } else { state.step };
        let mut history = self.run.reports()?;
        history.retain(|report| report.step <= last);
        Trained::new(model, memory, None, Progress::of(&state, history))
    }
}
