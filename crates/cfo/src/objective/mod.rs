//! Objectives: the loss of a network, and how the trained network predicts.
//!
//! An objective defines what is sampled from the data ([`Draw`]), the loss, and how the network predicts ([`Motion`]). There is one file
//! per objective.

mod autoregressive;
mod batch;
mod conditional_flow_matching;
mod flow_matching;
mod levels;
mod motion;
mod neural_ode;
mod noise;
mod pde_refiner;
mod uniform_grid;

use std::sync::Arc;

use cfo_engine::{Graph, Node, PathData, Precision};
use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Result;
pub use crate::measure::scaling::Unit;
use crate::model::Model;
use crate::operator::Context;
use crate::recipe::{PathConfig, Recipe};
use crate::trajectories::Trajectories;

pub use crate::recipe::ThroughSolver;
pub use autoregressive::Autoregressive;
pub use batch::Batch;
pub use conditional_flow_matching::{ConditionalFlowKeys, ConditionalFlowMatching};
pub use flow_matching::FlowMatching;
pub use motion::{Motion, MotionKind, NextState, TimeInput, Velocity};
pub use neural_ode::NeuralOde;
pub(crate) use neural_ode::{FixedStep, advanced};
pub use noise::Noise;
pub use pde_refiner::{PdeRefiner, RefinerForm};
pub(crate) use uniform_grid::EQUAL;

/// An objective of training. To use your own loss, implement this trait. `examples/own_objective.rs` trains with one.
///
/// ```
/// use cfo::Model;
/// use cfo::graph::{Graph, Node};
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
///         let found = model.network(graph, batch.state, &batch.context)?;
///         let wanted = model.in_units(graph, batch.context.time, batch.target)?;
///         Ok((graph.var(found) - wanted).abs().mean_all().node()?)
///     }
/// }
/// # let _ = AbsoluteFlow;
/// ```
pub trait Objective: Send + Sync {
    /// Returns the name in reports and checkpoints. A run is loaded only with an objective of the name that trained it.
    fn name(&self) -> &str;

    /// Returns what a sample of a batch consists of.
    fn draw(&self) -> Draw;

    /// Appends the loss of a batch, a scalar. It must be a mean over samples, because ranks share a batch.
    ///
    /// # Errors
    /// If the network cannot take the batch.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node>;

    /// Returns how the network predicts. The default is a velocity in units of its root mean square.
    fn motion(&self) -> Arc<dyn Motion> {
        Arc::new(Velocity::default())
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

/// The content of a sample of a batch. All trajectories have equal probability, whatever their lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Draw {
    /// A random point of a trajectory's path. The state is the path's value plus noise; the target is its velocity plus that of the noise.
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
    /// A random snapshot and the following ones, also at irregular times. The targets are all but the first; [`Batch::window`] has their
    /// times. Trajectories with fewer snapshots are refused.
    Window {
        /// Number of snapshots after the first, at least 1.
        intervals: usize,
        /// The path whose velocity is the unit of the network's output.
        path: Path,
    },
    /// A whole trajectory. The state is its first snapshot. The target `[batch, frames, points, channels]` has the path's values at equally
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
            Self::Window { intervals, .. } => PathData::Window { intervals },
            Self::Trajectory { path, frames } => PathData::Whole { path, frames, longest },
        }
    }

    /// Returns how the points are sampled at which a velocity is measured.
    pub(crate) fn by(self) -> DrawBy {
        match self {
            Self::PathPoint { by, .. } => by,
            Self::Neighbours | Self::Window { .. } | Self::Trajectory { .. } => DrawBy::Time,
        }
    }

    /// Returns the path whose velocity is measured; linear if the sample has none.
    pub(crate) fn path(self) -> Path {
        match self {
            Self::PathPoint { path, .. } | Self::Window { path, .. } | Self::Trajectory { path, .. } => path,
            Self::Neighbours => Path { spline: Spline::Linear, stencil: 2 },
        }
    }
}

/// The inputs of a prediction step, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Time and PDE parameters; for [`MotionKind::Trajectory`] the time of the flow from noise, in [0, 1].
    pub context: Context,
    /// `[batch, rows, width, channels]`: states. For [`MotionKind::Trajectory`], `[batch, frames, points, channels]`: trajectories during
    /// their generation.
    pub state: Node,
    /// `[batch, rows, width, channels]`: the initial snapshots, for [`MotionKind::Trajectory`].
    pub given: Option<Node>,
    /// Random numbers of this step and these trajectories.
    pub noise: Noise,
}

impl Point {
    /// Returns the point for another time `[batch]` and state.
    #[must_use]
    pub fn at(&self, time: Node, state: Node) -> Self {
        Self { context: Context { time, ..self.context }, state, ..*self }
    }
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

    /// Checks the values of the keys for training with a precision.
    pub(crate) fn check(self, precision: Precision) -> Result<()> {
        match self {
            Self::FlowMatching | Self::Autoregressive { .. } => Ok(()),
            Self::PdeRefiner(refiner) => refiner.check_keys(),
            Self::ConditionalFlowMatching(keys) => keys.check(),
            Self::NeuralOde(through) => through.check("objective", precision),
        }
    }

    /// Returns what a network trained by this objective predicts.
    pub(crate) fn predicts(self) -> MotionKind {
        self.objective(&PathConfig::default()).motion().kind()
    }
}
