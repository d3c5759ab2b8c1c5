//! The autoregressive model, the paper's baseline: predicts each snapshot of a uniform time grid from the previous one.

use std::sync::Arc;

use cfo_engine::{Graph, Node};

use super::uniform_grid::check_uniform;
use super::{Batch, Draw, Motion, NextState, Objective, ObjectiveConfig};
use crate::error::Result;
use crate::model::Model;
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// The autoregressive model: the network learns the next snapshot on a uniform time grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Autoregressive {
    /// Whether the network predicts the change (residual autoregressive model) instead of the next state.
    pub residual: bool,
}

impl Autoregressive {
    pub(super) const NAME: &'static str = "autoregressive";
}

impl Objective for Autoregressive {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::Neighbours
    }

    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let output = model.network(graph, batch.state, &batch.context)?;
        let target = NextState { residual: self.residual }.target(graph, model, batch)?;
        batch.mean_squared_error(graph, output, target)
    }

    fn motion(&self) -> Arc<dyn Motion> {
        Arc::new(NextState { residual: self.residual })
    }

    /// Checks that all steps are equal. They may differ between trajectories if the step is a parameter.
    fn check(&self, data: &Trajectories, recipe: &Recipe) -> Result<()> {
        check_uniform(Self::NAME, data, recipe)
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        recipe.objective = ObjectiveConfig::Autoregressive { residual: self.residual };
        true
    }
}
