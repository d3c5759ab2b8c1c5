//! Objectives: what a network is trained for, and how it then moves a state in time.
//!
//! An objective is one file. It says what it draws from the data ([`Draw`]), appends its loss to the graph, names the unit of its
//! network's output ([`Unit`]), refuses data that it cannot learn from, and says how the network moves a state ([`Motion`]).

mod autoregressive;
mod batch;
mod conditional_flow_matching;
mod flow_matching;
mod levels;
mod neural_ode;
mod noise;
mod pde_refiner;
mod uniform_grid;

use std::sync::Arc;

use cfo_engine::{Graph, Node, PathData, Precision};
use cfo_numerics::ode::{Controller, Tableau};
use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::model::{Model, StateSpace};
use crate::operator::Setting;
use crate::recipe::{PathConfig, Recipe};
use crate::trajectories::Trajectories;

pub use autoregressive::Autoregressive;
pub use batch::Batch;
pub use conditional_flow_matching::{ConditionalFlowKeys, ConditionalFlowMatching};
pub use flow_matching::FlowMatching;
pub(crate) use neural_ode::advanced;
pub use neural_ode::{NeuralOde, ThroughSolver};
pub use noise::Noise;
pub use pde_refiner::{PdeRefiner, RefinerForm};
pub(crate) use uniform_grid::EQUAL;

/// What a network is trained for. A user's own is one more implementor; `examples/own_objective.rs` trains one.
///
/// ```
/// use cfo::Model;
/// use cfo::engine::{Graph, Node};
/// use cfo::numerics::{DrawBy, NoiseSchedule, Path, Spline};
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
///         let path = Path { spline: Spline::Quintic, stencil: 3 };
///         Draw::PathPoint { by: DrawBy::Time, path, noise: NoiseSchedule::NONE }
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

    /// Appends the loss of a batch, a scalar: a mean over its samples, since ranks share a batch.
    ///
    /// # Errors
    /// If the network cannot take the batch.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node>;

    /// Appends the loss and its gradients with respect to all parameters, in their order. An objective that knows a better way than
    /// to go back through all that its loss appended says so here. Both are by what the batch counts ([`Batch::weigh`]).
    ///
    /// # Errors
    /// If the network cannot take the batch, or the loss is not differentiable.
    fn loss_and_gradients(
        &self,
        graph: &mut Graph,
        model: &Model,
        batch: &Batch,
    ) -> Result<(Node, Vec<Node>)> {
        let mean = self.loss(graph, model, batch)?;
        let loss = batch.weigh(graph, mean)?;
        let gradients = graph.parameter_gradients(loss)?;
        Ok((loss, gradients))
    }

    /// How windows are integrated in steps that are chosen while they run, where that is what training does: the loss is then the
    /// mean of [`Objective::mismatch`] over the snapshots of the window but the first, and [`Objective::loss`] is not asked for.
    fn integration(&self) -> Option<Integration> {
        None
    }

    /// Appends the mismatch of predicted and true snapshots, a scalar: by default the mean squared error in units of the change from one
    /// snapshot to the next, channel by channel, which is 1 over one interval where nothing is predicted to change. In a space of the
    /// network's own, errors count as in that of the data.
    ///
    /// # Errors
    /// If they have different shapes.
    fn mismatch(&self, graph: &mut Graph, model: &Model, [found, wanted]: [Node; 2]) -> Result<Node> {
        let unit = model.scaling.change.clone();
        let unit = graph.constant([unit.len()], unit)?;
        let [found, wanted] = [graph.divide(found, unit)?, graph.divide(wanted, unit)?];
        Ok(graph.mean_squared_error(found, wanted)?)
    }

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

    /// Network evaluations that [`Objective::moved`] appends.
    fn evaluations(&self) -> usize {
        1
    }

    /// Channels of its network's input and output, for states of so many channels.
    fn channels(&self, state: usize) -> [usize; 2] {
        [state, state]
    }

    /// The grid and the channels of its network, for states of a space: by default the states' grid with [`Objective::channels`].
    fn setting(&self, space: &StateSpace) -> Setting {
        let StateSpace { field: [height, width, channels], periodic, conditions } = *space;
        let [inputs, outputs] = self.channels(channels);
        Setting { grid: [height, width], inputs, outputs, periodic, conditions }
    }

    /// Whether its network may be told the time.
    fn sees_time(&self) -> bool {
        self.motion() == Motion::Velocity || self.has_own_time()
    }

    /// Whether the time that its network is told is not that of the data but its own, in [0, 1]: a step of refinement, the time of a flow
    /// from noise. The network must then be one that is told the time.
    fn has_own_time(&self) -> bool {
        false
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
    /// A point of a trajectory's path: the state is the path's value there plus noise, the target its velocity plus the noise's.
    PathPoint {
        /// Which points are drawn alike.
        by: DrawBy,
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
    /// A whole trajectory: the state is its first snapshot, the target `[batch, frames, points, channels]` its values at as many equally
    /// distant times from its first to its last, read off a path.
    Trajectory {
        /// The spline and its stencil.
        path: Path,
        /// How many.
        frames: usize,
    },
}

impl Draw {
    /// The same in the engine's words, for trajectories of so many snapshots at most.
    pub(crate) fn data(self, longest: usize) -> PathData {
        match self {
            Self::PathPoint { by, path, noise } => PathData::Flow { by, path, noise },
            Self::Neighbours => PathData::Pair,
            Self::Window { intervals } => PathData::Window { intervals },
            Self::Trajectory { path, frames } => PathData::Whole { path, frames, longest },
        }
    }

    /// The points at which a velocity is measured.
    pub(crate) fn by(self) -> DrawBy {
        match self {
            Self::PathPoint { by, .. } => by,
            Self::Neighbours | Self::Window { .. } | Self::Trajectory { .. } => DrawBy::Time,
        }
    }

    /// The path whose velocity is measured; without one, a line from snapshot to snapshot.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::PathPoint { path, .. } | Self::Trajectory { path, .. } => path,
            Self::Neighbours | Self::Window { .. } => Path { spline: Spline::Linear, stencil: 2 },
        }
    }
}

/// Where a state is to be moved, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// `[batch]`; for [`Motion::Trajectory`] the time of the flow from noise, in [0, 1].
    pub time: Node,
    /// `[batch, height, width, channels]`; for [`Motion::Trajectory`] the trajectory under way, `[batch, frames, points, channels]`.
    pub state: Node,
    /// `[batch, conditions]`, if the network is conditioned on PDE parameters.
    pub conditions: Option<Node>,
    /// `[batch, height, width, channels]`: the snapshot that a trajectory starts from, for [`Motion::Trajectory`].
    pub given: Option<Node>,
    /// Random numbers of this step and these trajectories.
    pub noise: Noise,
}

/// How windows are integrated in training, in steps that are chosen while they run, for each sample on its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integration {
    /// The Runge-Kutta method, which must estimate its error.
    pub tableau: Tableau,
    /// Tolerances in normalised units, and how steps are chosen.
    pub controller: Controller,
    /// Intervals of a window.
    pub intervals: usize,
    /// Whether gradients go from one interval back into the one before.
    pub through_time: bool,
    /// States kept for the way back; others are computed again.
    pub checkpoints: usize,
}

/// Refuses a precision in which a solver that chooses its steps cannot judge them.
pub(crate) fn check_precision(objective: &dyn Objective, precision: Precision) -> Result<()> {
    if precision != Precision::Bf16 || objective.integration().is_none() {
        return Ok(());
    }
    Err(CfoError::BadData {
        problem: "`train.precision` is `bf16`, but a solver that chooses its steps by tolerances in training needs more digits than that for its estimates of the error"
            .into(),
        hint: "set `train.precision` to `tf32` or `f32`, or give the number of equal steps (`substeps`)".into(),
    })
}

/// How a network moves a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Motion {
    /// It is a velocity: a solver integrates it to any times, forward or backward.
    Velocity,
    /// It is a map over a fixed step, from one snapshot of a uniform grid to the next. It may take several evaluations
    /// ([`Objective::evaluations`]) and draw random numbers ([`Point::noise`]).
    Step,
    /// It is the velocity of a flow that makes a whole trajectory out of noise, given its first snapshot: a solver integrates it over a
    /// time of its own from 0 to 1.
    Trajectory {
        /// Equally distant times of the trajectory, from its first to its last.
        frames: usize,
    },
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ObjectiveConfig {
    /// Flow matching: the network learns the velocity of the spline.
    #[default]
    FlowMatching,
    /// The autoregressive model: the network learns the next snapshot on a uniform time grid.
    Autoregressive {
        /// Whether the network predicts the change (residual autoregressive model) instead of the next state.
        #[serde(default)]
        residual: bool,
    },
    /// PDE-Refiner: the network learns the next snapshot on a uniform time grid, and to refine the prediction by removing noise.
    PdeRefiner(PdeRefiner),
    /// Conditional flow matching: the network learns to generate a whole trajectory from noise, given its first snapshot.
    ConditionalFlowMatching(ConditionalFlowKeys),
    /// The neural ODE: the network is integrated by a solver, and the loss compares the result with the next snapshots.
    NeuralOde(ThroughSolver),
}

impl ObjectiveConfig {
    /// Its name in recipes and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FlowMatching => FlowMatching::NAME,
            Self::Autoregressive { .. } => Autoregressive::NAME,
            Self::PdeRefiner(_) => PdeRefiner::NAME,
            Self::ConditionalFlowMatching(_) => ConditionalFlowMatching::NAME,
            Self::NeuralOde(_) => NeuralOde::NAME,
        }
    }

    /// Whether it generates whole trajectories instead of a velocity to integrate.
    pub(crate) fn makes_trajectories(self) -> bool {
        matches!(self, Self::ConditionalFlowMatching(_))
    }

    /// Refuses keys out of range.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::FlowMatching | Self::Autoregressive { .. } => Ok(()),
            Self::PdeRefiner(refiner) => refiner.check_keys(),
            Self::ConditionalFlowMatching(keys) => keys.check(),
            Self::NeuralOde(through) => through.check("objective"),
        }
    }

    /// The objective that it describes, on the path of a recipe.
    pub fn objective(self, path: &PathConfig) -> Arc<dyn Objective> {
        match self {
            Self::FlowMatching => Arc::new(FlowMatching::new(path)),
            Self::Autoregressive { residual } => Arc::new(Autoregressive { residual }),
            Self::PdeRefiner(refiner) => Arc::new(refiner),
            Self::ConditionalFlowMatching(keys) => {
                Arc::new(ConditionalFlowMatching { path: path.path(), keys })
            }
            Self::NeuralOde(through) => Arc::new(NeuralOde { through, flow: FlowMatching::new(path) }),
        }
    }
}
