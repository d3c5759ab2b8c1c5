//! The parts of a training: the objective's steps, then those of fine-tuning.

use crate::error::{CfoError, Result};
use crate::model::Method;
use crate::objective::{MotionKind, NeuralOde};
use crate::train::training_data::TrainingData;
use crate::trajectories::Trajectories;

/// Steps of a training that are made by one rule.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// The rule.
    pub method: Method,
    /// Steps before its first one.
    pub first: u32,
    /// Steps after its last one.
    pub end: u32,
}

impl Stage {
    /// Of a whole training, one or two, in order.
    pub fn all(method: &Method) -> Vec<Self> {
        let (first, total) = (method.recipe.train.steps, method.recipe.total_steps());
        let mut stages = vec![Self { method: method.clone(), first: 0, end: first }];
        if total > first {
            stages.push(Self { method: method.tuning(), first, end: total });
        }
        stages
    }

    /// Refuses a training whose parts do not all suit the data, before any of them begins.
    ///
    /// # Errors
    /// What does not suit.
    pub fn check_all(method: &Method, set: &Trajectories) -> Result<()> {
        let stages = Self::all(method);
        for stage in &stages {
            let (model, _) = TrainingData::plan(&stage.method, set)?;
            if let Some(NeuralOde { through, .. }) = model.neural_ode() {
                let section = if stage.method.tuning { "finetune" } else { "objective" };
                through.check_graph(section, model.graph()?.entries().len())?;
            }
            if stages.len() > 1 && model.motion().kind() != MotionKind::Velocity {
                let name = model.objective().name().to_owned();
                let problem = format!("`{name}` learns no velocity that a solver could integrate");
                return Err(CfoError::invalid("finetune.steps", problem));
            }
        }
        Ok(())
    }

    /// Whether it goes on from another stage.
    pub fn is_later(&self) -> bool {
        self.first > 0
    }
}
