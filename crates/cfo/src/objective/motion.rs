//! Motions: how a trained network predicts. A [`Motion`] appends one evaluation of itself to a graph.

use cfo_engine::{Graph, Node};

use super::{Batch, Point};
use crate::error::Result;
use crate::measure::scaling::Unit;
use crate::model::Model;
use crate::operator::{Setting, StateSpace};

/// How a trained network predicts: the meaning of its output, and how a prediction is appended to a graph.
pub trait Motion: Send + Sync {
    /// Returns what is appended: a velocity, the next snapshot, or the velocity of a flow from noise.
    fn kind(&self) -> MotionKind;

    /// Returns the unit of the network's output. Its scale is measured on the training data; [`Model::in_units`] divides by it and
    /// [`Model::of_units`] multiplies by it.
    fn unit(&self) -> Unit;

    /// Appends the prediction for a state in normalised units: its velocity or the state one step later, depending on [`Motion::kind`].
    ///
    /// # Errors
    /// If the network cannot take the state.
    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node>;

    /// Returns the number of network evaluations that [`Motion::append`] appends.
    fn evaluations(&self) -> usize {
        1
    }

    /// Returns the shapes that the network is built for. The default has the grid and the channels of the states.
    fn setting(&self, states: &StateSpace) -> Setting {
        Setting::of(states)
    }

    /// Returns the time that is an input of the network. The default is the time of the data for a velocity, and none for other kinds.
    fn time_input(&self) -> TimeInput {
        if self.kind() == MotionKind::Velocity { TimeInput::Data } else { TimeInput::None }
    }
}

/// The meaning of a [`Motion`]'s output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MotionKind {
    /// A velocity, which a solver integrates to any times, forward or backward.
    Velocity,
    /// The next snapshot on a uniform time grid. A step may take several evaluations ([`Motion::evaluations`]) and random numbers
    /// ([`Point::noise`]).
    Step,
    /// The velocity of a flow from noise to a whole trajectory, given its first snapshot. A solver integrates it over a separate time from
    /// 0 to 1.
    Trajectory {
        /// Number of equally spaced times of the trajectory.
        frames: usize,
    },
}

/// The time that is an input of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeInput {
    /// The time of the data, if the network has a time input.
    Data,
    /// A number in [0, 1] that the objective defines, such as the refinement or the time of a flow from noise. The network must have a time
    /// input.
    Own,
    /// None.
    None,
}

/// The network's output is the velocity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Velocity {
    /// The unit of the output.
    pub unit: Unit,
}

impl Default for Velocity {
    fn default() -> Self {
        Self { unit: Unit::Velocity }
    }
}

impl Motion for Velocity {
    fn kind(&self) -> MotionKind {
        MotionKind::Velocity
    }

    fn unit(&self) -> Unit {
        self.unit
    }

    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let output = model.network(graph, point.state, &point.context)?;
        model.of_units(graph, point.context.time, output)
    }
}

/// The network's output is the next snapshot, or the change to it (residual).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextState {
    /// Whether the output is the change.
    pub residual: bool,
}

impl NextState {
    /// Appends the target of a batch in the unit of the output: the next snapshots, or the changes to them.
    pub(super) fn target(self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        if !self.residual {
            return Ok(batch.target);
        }
        let change = graph.subtract(batch.target, batch.state)?;
        model.in_units(graph, batch.context.time, change)
    }

    /// Appends the next states that an output predicts: the inverse of [`NextState::target`].
    pub(super) fn next(self, graph: &mut Graph, model: &Model, point: &Point, output: Node) -> Result<Node> {
        if !self.residual {
            return Ok(output);
        }
        let change = model.of_units(graph, point.context.time, output)?;
        Ok(graph.add(point.state, change)?)
    }
}

impl Motion for NextState {
    fn kind(&self) -> MotionKind {
        MotionKind::Step
    }

    fn unit(&self) -> Unit {
        if self.residual { Unit::Change } else { Unit::State }
    }

    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let output = model.network(graph, point.state, &point.context)?;
        self.next(graph, model, point, output)
    }
}
