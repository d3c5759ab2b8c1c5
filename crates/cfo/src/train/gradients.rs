//! How a training step computes the loss of a batch and its gradients.

use cfo_engine::{Graph, Node};
use cfo_numerics::ode::{Controller, Tableau};

use super::solve::equal_steps;
use crate::error::Result;
use crate::model::Model;
use crate::objective::{Batch, NeuralOde};
use crate::recipe::MOST_ATTEMPTS;

/// States that are stored for the backward pass of adaptive steps. The others are recomputed.
const CHECKPOINTS: usize = 64;

/// The way in which the gradients of a model's loss are computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Gradients {
    /// The loss is differentiated as a whole.
    Whole,
    /// Through equal steps of a solver, one after another, in the same graph.
    EqualSteps(NeuralOde),
    /// Through adaptive steps of a solver, in several programs.
    AdaptiveSteps(AdaptiveWindows),
}

/// The adaptive integration of windows, separately for each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AdaptiveWindows {
    /// The Runge-Kutta method, which estimates its error.
    pub tableau: Tableau,
    /// Tolerances in normalised units, and the step-size controller.
    pub controller: Controller,
    /// Number of intervals of a window.
    pub intervals: usize,
    /// Whether gradients go back from one interval into the previous one.
    pub through_time: bool,
    /// Number of states stored for the backward pass; the others are recomputed.
    pub checkpoints: usize,
}

impl Gradients {
    /// Returns the way that suits a model's objective.
    pub fn of(model: &Model) -> Self {
        let Some(neural_ode) = model.neural_ode() else { return Self::Whole };
        let through = neural_ode.through;
        if !through.is_adaptive() {
            return Self::EqualSteps(neural_ode);
        }
        let controller = Controller { max_steps: MOST_ATTEMPTS, ..through.solver.controller() };
        Self::AdaptiveSteps(AdaptiveWindows {
            tableau: through.tableau(),
            controller,
            intervals: through.window,
            through_time: through.through_time,
            checkpoints: CHECKPOINTS,
        })
    }

    /// Returns whether parts of a batch can be computed separately.
    pub fn are_divisible(&self) -> bool {
        !matches!(self, Self::AdaptiveSteps(_))
    }

    /// Appends the loss and its gradients with respect to all parameters, in their order, weighted by [`Batch::weigh`]. Adaptive steps
    /// have programs of their own.
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
