//! The section `[evaluate]`: how a trained network is integrated.

use cfo_engine::Precision;
use cfo_numerics::ode::Tableau;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice;
use crate::error::{CfoError, Result};

/// How a trained network is integrated by default; options of commands and arguments of functions override these keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// Solver: `auto`, `euler`, `heun`, `rk4`, `dopri5` or `tsit5`. For a network that was fine-tuned or trained through a solver, `auto` is that
    /// solver with its steps. Otherwise it is `tsit5`, and `rk4` for conditional flow matching.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<RolloutSolver>")]
    pub solver: RolloutSolver,
    /// Largest number of network evaluations over the horizon of the training data. With 0, solvers that estimate their error choose steps by
    /// the tolerances, and the others take one step per output interval.
    pub nfe: usize,
    /// Relative tolerance of adaptive steps.
    pub rtol: f64,
    /// Absolute tolerance of adaptive steps, in normalised units.
    pub atol: f64,
    /// Precision of rollouts: `f32`, `tf32`, `bf16`, or `same` for that of training.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<RolloutPrecision>")]
    pub precision: RolloutPrecision,
    /// Seed of rollouts, for objectives whose rollouts draw random numbers.
    pub seed: u64,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        let (solver, precision) = (RolloutSolver::Auto, RolloutPrecision::Same);
        Self { solver, nfe: 0, rtol: 1e-4, atol: 1e-6, precision, seed: 0 }
    }
}

impl EvaluateConfig {
    pub(super) fn check(&self) -> Result<()> {
        for (key, value) in [("evaluate.rtol", self.rtol), ("evaluate.atol", self.atol)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(CfoError::invalid(key, format!("{value} must be 0 or a positive number")));
            }
        }
        Ok(())
    }
}

/// The Runge-Kutta method of rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RolloutSolver {
    /// The solver that the network was fine-tuned or trained through, with its steps; else `tsit5`, or `rk4` for conditional flow matching.
    #[default]
    Auto,
    /// This method.
    Method(Tableau),
}

/// The precision of rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutPrecision {
    /// The precision of training.
    #[default]
    Same,
    /// The given precision.
    Own(Precision),
}
