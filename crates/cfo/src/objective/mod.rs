//! Objectives: what a network is trained for, and how it then moves a state in time.
//!
//! An objective is one file. It says what it draws from the data ([`Draw`]), appends its loss to the graph, names the unit of its
//! network's output ([`Unit`]), refuses data that it cannot learn from, and says how the network moves a state ([`Motion`]).

mod autoregressive;
mod flow_matching;

use std::sync::Arc;

use cfo_engine::{Graph, Node, PathData, WindowTimes};
use cfo_numerics::{NoiseSchedule, Path, Spline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::model::Model;
use crate::recipe::{PathConfig, Recipe};
use crate::trajectories::Trajectories;

pub use autoregressive::Autoregressive;
pub use flow_matching::FlowMatching;

/// What a network is trained for. A user's own is one more implementor; `examples/own_objective.rs` trains one.
///
/// ```
/// use cfo::Model;
/// use cfo::engine::{Graph, Node};
/// use cfo::numerics::{NoiseSchedule, Path, Spline};
/// use cfo::objective::{Batch, Draw, Objective};
///
/// /// Flow matching with absolute instead of squared errors.
/// struct AbsoluteFlow;
///
/// impl Objective for AbsoluteFlow {
///     fn name(&self) -> &str {
///         "absolute-flow"
///     }
///
///     fn draw(&self) -> Draw {
///         Draw::PathPoint { path: Path { spline: Spline::Quintic, stencil: 3 }, noise: NoiseSchedule::NONE }
///     }
///
///     fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> cfo::Result<Node> {
///         let found = model.network(graph, batch.time, batch.state, batch.conditions)?;
///         let wanted = model.in_units(graph, batch.time, batch.target)?;
///         let error = graph.subtract(found, wanted)?;
///         let size = graph.abs(error)?;
///         Ok(graph.mean(size, &[0, 1, 2, 3])?)
///     }
/// }
/// # let _ = AbsoluteFlow;
/// ```
pub trait Objective: Send + Sync {
    /// Its name in reports and checkpoints. A run is loaded only with an objective of the name that trained it.
    fn name(&self) -> &str;

    /// What a sample of a batch is drawn from.
    fn draw(&self) -> Draw;

    /// Appends the loss of a batch, a scalar.
    ///
    /// # Errors
    /// If the network cannot take the batch.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node>;

    /// How its network moves a state.
    fn motion(&self) -> Motion {
        Motion::Velocity
    }

    /// The path whose velocity is measured on the training data, for the unit of the network's output: by default that of
    /// [`Objective::draw`], else lines from snapshot to snapshot.
    fn measured(&self) -> Path {
        self.draw().path()
    }

    /// What an output of 1 of its network stands for. The scale is measured on the training data; [`Model::in_units`] divides by it and
    /// [`Model::moved`] multiplies.
    fn unit(&self) -> Unit {
        Unit::Velocity
    }

    /// Appends what moves a state, in normalised units: its velocity or the state a step later, as [`Objective::motion`] says.
    ///
    /// # Errors
    /// If the network cannot take the state.
    fn moved(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        model.moved(graph, point)
    }

    /// Channels of its network's input and output, for states of so many channels.
    fn channels(&self, state: usize) -> [usize; 2] {
        [state, state]
    }

    /// Whether its network may be told the time.
    fn sees_time(&self) -> bool {
        self.motion() == Motion::Velocity
    }

    /// Refuses training data that it cannot learn from.
    ///
    /// # Errors
    /// What was found, what it takes and what to do.
    fn check(&self, _data: &Trajectories, _recipe: &Recipe) -> Result<()> {
        Ok(())
    }

    /// Writes itself into a recipe; `false` if recipes have no words for it.
    fn describe(&self, _recipe: &mut Recipe) -> bool {
        false
    }
}

/// What a sample of a batch is drawn from. Trajectories are drawn alike, whatever their lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Draw {
    /// A uniform time of a trajectory: the state is the path's value there plus noise, the target its velocity plus the noise's.
    PathPoint {
        /// The spline and its stencil.
        path: Path,
        /// The noise between snapshots.
        noise: NoiseSchedule,
    },
    /// A uniform snapshot but the last: the target is the next one.
    Neighbours,
    /// A uniform snapshot and those that follow it, irregular times included: the targets are all but the first, and
    /// [`Batch::window`] has their times. Trajectories that are shorter are refused.
    Window {
        /// Snapshots after the first; 1 at least.
        intervals: usize,
    },
}

impl Draw {
    /// The same in the engine's words.
    pub(crate) fn data(self) -> PathData {
        match self {
            Self::PathPoint { path, noise } => PathData::Flow { path, noise },
            Self::Neighbours => PathData::Pair,
            Self::Window { intervals } => PathData::Window { intervals },
        }
    }

    /// The path whose velocity is measured; without one, a line from snapshot to snapshot.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::PathPoint { path, .. } => path,
            Self::Neighbours | Self::Window { .. } => Path { spline: Spline::Linear, stencil: 2 },
        }
    }
}

/// A drawn batch, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// `[batch]`: times, 0 at the first that training sees.
    pub time: Node,
    /// `[batch, height, width, channels]`.
    pub state: Node,
    /// Shaped like the state: a velocity or the next snapshot, as [`Draw`] says. Of a window all snapshots after the first,
    /// `[intervals * batch, height, width, channels]`; [`Batch::snapshot`] yields one.
    pub target: Node,
    /// `[batch, conditions]`, if the network is conditioned on PDE parameters.
    pub conditions: Option<Node>,
    /// `[batch, 1, 1, channels]`: what an error counts where noise was taken off the snapshots; the less is known of the velocity, the less.
    pub trust: Option<Node>,
    /// The times of a window: `times [intervals + 1, batch]` of the snapshots and `lengths [intervals, batch]` between them.
    pub window: Option<WindowTimes>,
}

impl Batch {
    /// Appends a snapshot of a window, counted from 0: `[batch, height, width, channels]`.
    ///
    /// # Errors
    /// If the window has no such snapshot.
    pub fn snapshot(&self, graph: &mut Graph, number: usize) -> Result<Node> {
        let batch = graph.shape(self.state).axes()[0];
        match number {
            0 => Ok(self.state),
            _ => Ok(graph.slice(self.target, 0, (number - 1) * batch, batch)?),
        }
    }

    /// Appends the mean squared difference of output and target, each error weighted by what it counts.
    ///
    /// # Errors
    /// If they have different shapes.
    pub fn mean_squared_error(&self, graph: &mut Graph, output: Node, target: Node) -> Result<Node> {
        let [output, target] = match self.trust {
            Some(trust) => [graph.multiply(output, trust)?, graph.multiply(target, trust)?],
            None => [output, target],
        };
        Ok(graph.mean_squared_error(output, target)?)
    }
}

/// Where a state is to be moved, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// `[batch]`.
    pub time: Node,
    /// `[batch, height, width, channels]`.
    pub state: Node,
    /// `[batch, conditions]`, if the network is conditioned on PDE parameters.
    pub conditions: Option<Node>,
}

/// How a network moves a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Motion {
    /// It is a velocity: a solver integrates it to any times, forward or backward.
    Velocity,
    /// It is a map over a fixed step, from one snapshot of a uniform grid to the next.
    Step,
}

/// What an output of 1 of a network stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The unit of the normalised state, over the unit of time where it is a velocity.
    State,
    /// The root mean square of the change from one snapshot to the next, channel by channel.
    Change,
    /// The root mean square of the path's velocity, channel by channel.
    Velocity,
    /// The same at each time of its own.
    VelocityAtTime,
}

/// What the network is trained for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ObjectiveConfig {
    /// To match the velocity of the spline.
    #[default]
    FlowMatching,
    /// To predict the next snapshot of a uniform grid.
    Autoregressive {
        /// Whether the change is predicted rather than the next state.
        #[serde(default)]
        residual: bool,
    },
}

impl ObjectiveConfig {
    /// Its name in recipes and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FlowMatching => FlowMatching::NAME,
            Self::Autoregressive { .. } => Autoregressive::NAME,
        }
    }

    /// The objective that it describes, on the path of a recipe.
    pub fn objective(self, path: &PathConfig) -> Arc<dyn Objective> {
        match self {
            Self::FlowMatching => Arc::new(FlowMatching::new(path)),
            Self::Autoregressive { residual } => Arc::new(Autoregressive { residual }),
        }
    }
}
