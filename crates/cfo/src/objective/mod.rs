//! Objectives: the loss of a network, and how the trained network predicts.
//!
//! An objective defines what is sampled from the data ([`Draw`]), its loss, the unit of the network's output ([`Unit`]), checks on the
//! data, and how the network predicts ([`Motion`]). Each objective is one file.

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

/// An objective of training. To use your own loss, implement this trait; `examples/own_objective.rs` trains one.
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
///         Ok((graph.var(found) - wanted).abs().mean_all().node()?)
///     }
/// }
/// # let _ = AbsoluteFlow;
/// ```
pub trait Objective: Send + Sync {
    /// Returns the name in reports and checkpoints. A run is loaded only with an objective of the name that trained it.
    fn name(&self) -> &str;

    /// Returns what a sample of a batch is drawn from.
    fn draw(&self) -> Draw;

    /// Appends the loss of a batch, a scalar: a mean over its samples, since ranks share a batch.
    ///
    /// # Errors
    /// If the network cannot take the batch.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node>;

    /// Appends the loss and its gradients with respect to all parameters, in their order. The default differentiates [`Objective::loss`];
    /// override it for a cheaper way. Both are weighted by [`Batch::weigh`].
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

    /// Returns how windows are integrated with adaptive steps, if the objective does so. The loss is then the mean of
    /// [`Objective::mismatch`] over all snapshots of the window but the first, and [`Objective::loss`] is not called.
    fn integration(&self) -> Option<Integration> {
        None
    }

    /// Appends the mismatch of predicted and true snapshots, a scalar. The default is the mean squared error in units of the change from one
    /// snapshot to the next, channel by channel; a prediction of no change has 1 over one interval. In a latent space, errors are weighted
    /// as in the space of the data.
    ///
    /// # Errors
    /// If they have different shapes.
    fn mismatch(&self, graph: &mut Graph, model: &Model, [found, wanted]: [Node; 2]) -> Result<Node> {
        let unit = model.scaling.change.clone();
        let unit = graph.constant([unit.len()], unit)?;
        let [found, wanted] = [graph.divide(found, unit)?, graph.divide(wanted, unit)?];
        Ok(graph.mean_squared_error(found, wanted)?)
    }

    /// Returns how the network predicts.
    fn motion(&self) -> Motion {
        Motion::Velocity
    }

    /// Returns the path whose velocity is measured on the training data, for the unit of the network's output. The default is the path of
    /// [`Objective::draw`], else lines from snapshot to snapshot.
    fn measured(&self) -> Path {
        self.draw().path()
    }

    /// Returns the unit of the network's output. Its scale is measured on the training data; [`Model::in_units`] divides by it and
    /// [`Model::moved`] multiplies by it.
    fn unit(&self) -> Unit {
        Unit::Velocity
    }

    /// Appends the prediction for a state in normalised units: its velocity or the state one step later, depending on
    /// [`Objective::motion`].
    ///
    /// # Errors
    /// If the network cannot take the state.
    fn moved(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        model.moved(graph, point)
    }

    /// Returns the number of network evaluations that [`Objective::moved`] appends.
    fn evaluations(&self) -> usize {
        1
    }

    /// Returns the numbers of channels of the network's input and output, for states with `channels` channels.
    fn channels(&self, state: usize) -> [usize; 2] {
        [state, state]
    }

    /// Returns the shapes that the network is built for. The default is the grid of the states with [`Objective::channels`].
    fn setting(&self, space: &StateSpace) -> Setting {
        let StateSpace { field: [height, width, channels], periodic, conditions } = *space;
        let [inputs, outputs] = self.channels(channels);
        Setting { grid: [height, width], inputs, outputs, periodic, conditions }
    }

    /// Returns whether time may be an input of the network.
    fn sees_time(&self) -> bool {
        self.motion() == Motion::Velocity || self.has_own_time()
    }

    /// Returns whether the time input of the network is not the time of the data but a number in [0, 1], such as the refinement or the
    /// time of a flow from noise. The network must then have a time input.
    fn has_own_time(&self) -> bool {
        false
    }

    /// Checks the training data. The default accepts everything.
    ///
    /// # Errors
    /// If the network cannot be trained on the data.
    fn check(&self, _data: &Trajectories, _recipe: &Recipe) -> Result<()> {
        Ok(())
    }

    /// Writes the objective to a recipe; returns `false` if recipes cannot describe it.
    fn describe(&self, _recipe: &mut Recipe) -> bool {
        false
    }
}

/// What a sample of a batch is drawn from. All trajectories have the same probability, whatever their lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Draw {
    /// A point of a trajectory's path. The state is the path's value plus noise, the target its velocity plus that of the noise.
    PathPoint {
        /// How points are sampled.
        by: DrawBy,
        /// The spline and its stencil.
        path: Path,
        /// The noise between snapshots.
        noise: NoiseSchedule,
    },
    /// A random snapshot except the last; the target is the next one.
    Neighbours,
    /// A random snapshot and those that follow it, also at irregular times. The targets are all but the first, and [`Batch::window`] has
    /// their times. Shorter trajectories are refused.
    Window {
        /// Number of snapshots after the first, at least 1.
        intervals: usize,
    },
    /// A whole trajectory. The state is its first snapshot, the target `[batch, frames, points, channels]` its values on a path at equally
    /// spaced times from the first to the last.
    Trajectory {
        /// The spline and its stencil.
        path: Path,
        /// Number of times.
        frames: usize,
    },
}

impl Draw {
    /// Converts to the engine's type, for trajectories of at most `longest` snapshots.
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

/// The inputs of a prediction step, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// `[batch]`: times; for [`Motion::Trajectory`] the time of the flow from noise, in [0, 1].
    pub time: Node,
    /// `[batch, height, width, channels]`: states; for [`Motion::Trajectory`] the trajectories in progress, `[batch, frames, points, channels]`.
    pub state: Node,
    /// `[batch, conditions]`, if the network is conditioned on PDE parameters.
    pub conditions: Option<Node>,
    /// `[batch, height, width, channels]`: the initial snapshots, for [`Motion::Trajectory`].
    pub given: Option<Node>,
    /// Random numbers of this step and these trajectories.
    pub noise: Noise,
}

/// Adaptive integration of windows in training, separately for each sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Integration {
    /// The Runge-Kutta method, which must estimate its error.
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

/// How a network predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Motion {
    /// The output is a velocity, which a solver integrates to any times, forward or backward.
    Velocity,
    /// The output is the next snapshot on a uniform time grid. A step may take several evaluations ([`Objective::evaluations`]) and random
    /// numbers ([`Point::noise`]).
    Step,
    /// The output is the velocity of a flow from noise to a whole trajectory, given its first snapshot. A solver integrates it over a
    /// separate time from 0 to 1.
    Trajectory {
        /// Number of equally spaced times of the trajectory.
        frames: usize,
    },
}

/// The unit of a network's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The unit of the normalised state, divided by the unit of time for a velocity.
    State,
    /// The root mean square of the change from one snapshot to the next, channel by channel.
    Change,
    /// The root mean square of the path's velocity, channel by channel.
    Velocity,
    /// The root mean square of the path's velocity at each time, channel by channel.
    VelocityAtTime,
}

/// The objective of training, as in the section `[objective]` of a recipe.
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
    /// PDE-Refiner: the network learns the next snapshot on a uniform time grid, and to refine it by removing noise.
    PdeRefiner(PdeRefiner),
    /// Conditional flow matching: the network learns to generate a whole trajectory from noise, given its first snapshot.
    ConditionalFlowMatching(ConditionalFlowKeys),
    /// The neural ODE: the network is integrated by a solver, and the loss compares the result with the next snapshots.
    NeuralOde(ThroughSolver),
}

impl ObjectiveConfig {
    /// Returns the name in recipes and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::FlowMatching => FlowMatching::NAME,
            Self::Autoregressive { .. } => Autoregressive::NAME,
            Self::PdeRefiner(_) => PdeRefiner::NAME,
            Self::ConditionalFlowMatching(_) => ConditionalFlowMatching::NAME,
            Self::NeuralOde(_) => NeuralOde::NAME,
        }
    }

    /// Returns whether the network generates whole trajectories instead of a velocity.
    pub(crate) fn makes_trajectories(self) -> bool {
        matches!(self, Self::ConditionalFlowMatching(_))
    }

    /// Checks the values of the keys.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            Self::FlowMatching | Self::Autoregressive { .. } => Ok(()),
            Self::PdeRefiner(refiner) => refiner.check_keys(),
            Self::ConditionalFlowMatching(keys) => keys.check(),
            Self::NeuralOde(through) => through.check("objective"),
        }
    }

    /// Returns the objective that these keys describe, with the path of a recipe.
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
