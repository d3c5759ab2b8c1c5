//! How a training step computes the loss of a batch and its gradients.

use cfo_engine::{Graph, Node};

use super::solve::equal_steps;
use crate::error::Result;
use crate::model::Model;
use crate::objective::{Batch, NeuralOde};
use crate::recipe::ThroughSolver;

/// How the gradients of a model's loss are computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gradients {
    /// The loss is differentiated as a whole.
    Whole,
    /// Through equal steps of a solver, one after another in one graph.
    EqualSteps(NeuralOde),
    /// Through adaptive steps of a solver, separately for each sample, in several programs.
    AdaptiveSteps(ThroughSolver),
}

impl Gradients {
    /// Returns how the gradients of a model's objective are computed.
    pub fn of(model: &Model) -> Self {
        let Some(neural_ode) = model.neural_ode() else { return Self::Whole };
        match neural_ode.through.is_adaptive() {
            true => Self::AdaptiveSteps(neural_ode.through),
            false => Self::EqualSteps(neural_ode),
        }
    }

    /// Returns whether parts of a batch can be computed separately.
    pub fn are_divisible(&self) -> bool {
        !matches!(self, Self::AdaptiveSteps(_))
    }

    /// Appends the loss and its gradients for all parameters, weighted by [`Batch::weigh`], for equal steps.
    pub fn append(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<(Node, Vec<Node>)> {
        if let Self::EqualSteps(neural_ode) = self {
            return equal_steps::loss_and_gradients(neural_ode, graph, model, batch);
        }
        let mean = model.objective().loss(graph, model, batch)?;
        let loss = batch.weigh(graph, mean)?;
        let gradients = graph.parameter_gradients(loss)?;
        Ok((loss, gradients))
    }
}
