//! How a trained network is integrated.

use cfo_engine::Precision;
use cfo_numerics::ode::{RK4, Tableau};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice;
use crate::error::{CfoError, Result};
use crate::rollout::Solver;

/// How a trained network is integrated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// `euler`, `heun`, `rk4`, `dopri5` or `tsit5`.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<Tableau>")]
    pub solver: Tableau,
    /// Network evaluations for the whole horizon; 0 for one step per output interval.
    pub nfe: usize,
    /// Relative tolerance of adaptive solvers.
    pub rtol: f64,
    /// Absolute tolerance of adaptive solvers.
    pub atol: f64,
    /// Precision of rollouts: `f32`, `tf32`, `bf16`, or `same` for that of training.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<RolloutPrecision>")]
    pub precision: RolloutPrecision,
    /// Seed of the random numbers that rollouts draw, where the objective draws any.
    pub seed: u64,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self { solver: RK4, nfe: 0, rtol: 1e-4, atol: 1e-6, precision: RolloutPrecision::Same, seed: 0 }
    }
}

impl EvaluateConfig {
    pub(super) fn check(&self) -> Result<()> {
        for (key, value) in [("evaluate.rtol", self.rtol), ("evaluate.atol", self.atol)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(CfoError::invalid(key, format!("{value} must be 0 or a positive number")));
            }
        }
        Solver::from_config(self).map(|_| ())
    }
}

/// The precision of rollouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RolloutPrecision {
    /// That of training.
    #[default]
    Same,
    /// One of its own.
    Own(Precision),
}
