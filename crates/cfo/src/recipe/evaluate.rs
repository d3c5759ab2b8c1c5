//! The section `[evaluate]`: how a trained network is integrated.

use cfo_engine::Precision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Integration, choice, integration};

/// How a trained network is integrated by default; options of commands and arguments of functions override these keys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvaluateConfig {
    /// Solver. For a network that was fine-tuned or trained through a solver, `auto` is that solver with its steps. Otherwise it is
    /// `tsit5`, and `rk4` for conditional flow matching. Methods that do not estimate their error take one step per output interval.
    #[schemars(schema_with = "integration::schema")]
    pub solver: Integration,
    /// Largest number of network evaluations over the horizon of the training data; 0 sets no limit.
    pub nfe: usize,
    /// Precision of rollouts: `f32`, `tf32`, `bf16`, or `same` for that of training.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<RolloutPrecision>")]
    pub precision: RolloutPrecision,
    /// Seed of rollouts, for objectives whose rollouts draw random numbers.
    pub seed: u64,
}

impl Default for EvaluateConfig {
    fn default() -> Self {
        Self { solver: Integration::default(), nfe: 0, precision: RolloutPrecision::Same, seed: 0 }
    }
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
