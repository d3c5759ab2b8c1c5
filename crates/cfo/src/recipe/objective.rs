//! The section `[objective]`: the objective of training with its keys.

use cfo_engine::Precision;
use cfo_numerics::ode::{TSIT5, Tableau};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ranges::{at_least_one, below_one, not_negative, require};
use super::{Integration, integration};
use crate::error::{CfoError, Result};

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
            Self::FlowMatching => "flow-matching",
            Self::Autoregressive { .. } => "autoregressive",
            Self::PdeRefiner(_) => "pde-refiner",
            Self::ConditionalFlowMatching(_) => "conditional-flow-matching",
            Self::NeuralOde(_) => "neural-ode",
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

    /// Returns an error if the precision is too low for the error estimates of adaptive steps.
    pub(super) fn check_precision(self, precision: Precision) -> Result<()> {
        let adaptive = matches!(self, Self::NeuralOde(through) if through.is_adaptive());
        if precision != Precision::Bf16 || !adaptive {
            return Ok(());
        }
        Err(CfoError::BadData {
        problem: "`train.precision` is `bf16`, but a solver that chooses its steps by tolerances in training needs more digits than that for its estimates of the error"
            .into(),
        hint: "set `train.precision` to `tf32` or `f32`, or give the number of equal steps (`solver.steps`)".into(),
    })
    }
}

/// PDE-Refiner: one network predicts the next snapshot on a uniform time grid and removes noise from the prediction.
///
/// Its inputs are the snapshot, the prediction to refine, and the number of the refinement in place of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PdeRefiner {
    /// Number of refinements of a prediction. Each is one more network evaluation.
    pub refinements: usize,
    /// Standard deviation of the noise in the last refinement, in units of the predicted quantity. Refinement k of K has this number to the
    /// power k / K.
    pub deviation: f64,
    /// Whether the network predicts the change (residual), in units of its root mean square, instead of the next state.
    pub residual: bool,
    /// Quantity that the network predicts in a refinement: the `noise`, as in the paper's pseudo-code, or the `velocity` of a diffusion, as
    /// in the authors' program.
    pub form: RefinerForm,
}

/// The quantity that the network of PDE-Refiner predicts in a refinement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefinerForm {
    /// The noise, as in the paper's pseudo-code: the first step predicts from nothing, each refinement draws new noise around the estimate.
    #[default]
    Noise,
    /// The velocity of a diffusion, as in the authors' program: the first step starts from noise, each refinement mixes the estimate with
    /// what it came from.
    Velocity,
}

impl Default for PdeRefiner {
    fn default() -> Self {
        Self { refinements: 3, deviation: 1e-3, residual: true, form: RefinerForm::Noise }
    }
}

impl PdeRefiner {
    /// Checks the values of the keys.
    fn check_keys(self) -> Result<()> {
        if self.refinements == 0 {
            let problem =
                "0 must be positive; `objective.kind = \"autoregressive\"` predicts without refinement";
            return Err(CfoError::invalid("objective.refinements", problem));
        }
        let deviation = self.deviation;
        require(deviation > 0.0 && deviation < 1.0, "objective.deviation", deviation, "must lie in (0, 1)")
    }
}

/// The keys of conditional flow matching.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConditionalFlowKeys {
    /// Number of equally spaced times, from the first to the last of a trajectory, at which states are generated.
    pub frames: usize,
    /// Share of the training samples without the first snapshot as an input, for classifier-free guidance.
    pub drop_rate: f64,
    /// Weight w of classifier-free guidance: v = v(without first snapshot) + w (v(with) - v(without)). With 1 only the velocity with the
    /// snapshot is evaluated, which halves the number of network evaluations.
    pub guidance: f64,
}

impl Default for ConditionalFlowKeys {
    fn default() -> Self {
        Self { frames: 32, drop_rate: 0.1, guidance: 1.5 }
    }
}

impl ConditionalFlowKeys {
    /// Checks the values of the keys.
    fn check(self) -> Result<()> {
        let Self { frames, drop_rate, guidance } = self;
        require(frames > 1, "objective.frames", frames, "must be 2 or more")?;
        below_one("objective.drop_rate", drop_rate)?;
        not_negative("objective.guidance", guidance)?;
        let trained = drop_rate > 0.0 || guidance == 1.0;
        require(trained, "objective.guidance", guidance, "needs `objective.drop_rate` above 0")
    }
}

/// The solver through which a network is trained.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ThroughSolver {
    /// Solver; `auto` is `tsit5`.
    #[schemars(schema_with = "integration::schema")]
    pub solver: Integration,
    /// Number of intervals between snapshots in a window, which starts from a true snapshot. The loss compares the prediction with every
    /// later snapshot of the window.
    pub window: usize,
    /// Whether gradients go back through the whole window. Otherwise they stop at the start of each interval.
    pub through_time: bool,
}

impl Default for ThroughSolver {
    /// The paper's baseline.
    fn default() -> Self {
        Self { solver: Integration::default(), window: 1, through_time: true }
    }
}

/// Largest number of operations in the graph of a training step. Planning them takes seconds; the time grows with the square.
const MOST_OPERATIONS: usize = 1 << 17;
/// Operations in the graph per operation of the network and evaluation: forward, recomputed, and derivatives.
const APPEARANCES: usize = 4;

impl ThroughSolver {
    /// Returns whether steps are chosen by tolerances.
    pub fn is_adaptive(&self) -> bool {
        self.solver.is_adaptive(TSIT5)
    }

    /// Returns the Runge-Kutta method.
    pub fn tableau(&self) -> Tableau {
        self.solver.method.unwrap_or(TSIT5)
    }

    /// Returns the number of equal steps per interval, at least one.
    pub fn steps(&self) -> usize {
        self.solver.steps.max(1)
    }

    /// Checks the values of the keys in `section`.
    pub(crate) fn check(&self, section: &str) -> Result<()> {
        at_least_one(&format!("{section}.window"), self.window)?;
        self.solver.check(&format!("{section}.solver"))
    }

    /// Returns an error if equal steps make the graph too large, for a network with this number of operations.
    pub(crate) fn check_graph(&self, section: &str, operations: usize) -> Result<()> {
        if self.is_adaptive() {
            return Ok(());
        }
        let (window, steps) = (self.window, self.steps());
        let most = MOST_OPERATIONS / (APPEARANCES * self.tableau().stages() * operations.max(1));
        if window.saturating_mul(steps) <= most.max(1) {
            return Ok(());
        }
        let (key, value, each, other) = match window > steps {
            true => ("window", window, steps, "solver.steps"),
            false => ("solver.steps", steps, window, "window"),
        };
        let largest = most / each;
        Err(CfoError::invalid(
            &format!("{section}.{key}"),
            match largest {
                0 => format!(
                    "{value} solver steps are too many for one graph; lower `{section}.{other}` = {each} too"
                ),
                _ => format!(
                    "{value} makes a graph of more than {MOST_OPERATIONS} operations for this network; the largest value is {largest}"
                ),
            },
        ))
    }
}
