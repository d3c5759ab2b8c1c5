//! Training through a solver: the keys of the neural ODE and of `[finetune]`.

use cfo_engine::Precision;
use cfo_numerics::ode::{TSIT5, Tableau};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ranges::at_least_one;
use super::{Integration, integration};
use crate::error::{CfoError, Result};

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

    /// Checks the values of the keys in `section`, and that the precision suffices for the error estimates of adaptive steps.
    pub(crate) fn check(&self, section: &str, precision: Precision) -> Result<()> {
        at_least_one(&format!("{section}.window"), self.window)?;
        self.solver.check(&format!("{section}.solver"))?;
        if precision != Precision::Bf16 || !self.is_adaptive() {
            return Ok(());
        }
        Err(CfoError::bad_data(
            "`train.precision` is `bf16`, but a solver that chooses its steps by tolerances in training needs more digits than that for its estimates of the error",
            "set `train.precision` to `tf32` or `f32`, or give the number of equal steps (`solver.steps`)",
        ))
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
            format!("{section}.{key}"),
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
