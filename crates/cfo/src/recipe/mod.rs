//! Training configurations that can be stored as TOML. Every key has a default.

pub(crate) mod choice;
mod data;
mod evaluate;
mod finetune;
mod integration;
mod latent;
mod overrides;
mod path;
mod portions;
mod problem;
mod ranges;
mod read;
mod reference;
mod refine;
mod smoothing;
mod solver;
#[cfg(test)]
mod tests;
mod through_solver;
mod train;

use std::collections::BTreeMap;

use cfo_device::Device;
use cfo_engine::Precision;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::objective::{MotionKind, ObjectiveConfig};
use crate::operator::OperatorConfig;
use overrides::{apply, not_a_section, sets_kind};
use problem::bad_recipe;
use ranges::positive;
use read::read;

pub use data::{ControlKind, DataConfig, Normalize};
pub use evaluate::{EvaluateConfig, RolloutPrecision};
pub use finetune::FinetuneConfig;
pub use integration::Integration;
pub use latent::{LatentConfig, LatentWavelet};
pub use path::{NoiseConfig, OutputUnit, PathConfig};
pub use portions::Portions;
pub(crate) use ranges::{below_one, not_negative, require};
pub use refine::{RefineConfig, RefineMode, RefineSpacing};
pub use smoothing::Smoothing;
pub(crate) use solver::too_few;
pub use solver::{Budget, Solver, SolverOptions};
pub use through_solver::ThroughSolver;
pub use train::{LearningRateSchedule, TrainConfig};

/// A training configuration that can be stored as TOML: everything that a run depends on besides its data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// The source of the trajectories, and which snapshots are used.
    pub data: DataConfig,
    /// The spline through the snapshots, the noise around it, and how training points are sampled.
    pub path: PathConfig,
    /// The space in which the network works: the states themselves, or wavelet coefficients.
    pub latent: LatentConfig,
    /// The network.
    pub operator: OperatorConfig,
    /// The objective of training.
    pub objective: ObjectiveConfig,
    /// The training loop: steps, optimiser (Adam), validation, checkpoints.
    pub train: TrainConfig,
    /// States that the network computes between snapshots that are far apart.
    #[serde(skip_serializing_if = "RefineConfig::is_default")]
    pub refine: RefineConfig,
    /// Fine-tuning through the solver, after the steps of `[train]`.
    pub finetune: FinetuneConfig,
    /// How a trained network is integrated by default; options of commands and arguments of functions override these keys.
    pub evaluate: EvaluateConfig,
}

fn collect_keys(path: &str, value: &toml::Value, found: &mut BTreeMap<String, toml::Value>) {
    match value {
        toml::Value::Table(table) => {
            for (key, value) in table {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_keys(&path, value, found);
            }
        }
        value => {
            found.insert(path.to_owned(), value.clone());
        }
    }
}

impl Recipe {
    /// Returns the precision of rollouts on `device`: `evaluate.precision`, or `train.precision` if that is `same`.
    pub fn rollout_precision_on(&self, device: Device) -> Precision {
        match self.evaluate.precision {
            RolloutPrecision::Same => self.train.precision_on(device),
            RolloutPrecision::Own(precision) => train::on_device(precision, device),
        }
    }

    /// Parses TOML text, and applies `key=value` overrides by their path.
    ///
    /// # Errors
    /// If the text is not TOML, or a key is unknown or has a value of the wrong kind.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Self> {
        let mut table: toml::Table = text
            .parse()
            .map_err(|error: toml::de::Error| CfoError::BadRecipe { problem: error.to_string() })?;
        // Another kind first: what is set for it must not be taken for the old one's.
        let (kinds, rest): (Vec<_>, Vec<_>) = overrides.iter().partition(|assignment| sets_kind(assignment));
        for assignment in kinds.into_iter().chain(rest) {
            apply(&mut table, assignment)?;
        }
        if let Some((section, value)) =
            table.iter().find(|(name, value)| Self::is_section(name) && !value.is_table())
        {
            return Err(not_a_section(section, value));
        }
        let recipe: Self = read(table.clone()).map_err(|error| bad_recipe(error, &table))?;
        recipe.check()?;
        Ok(recipe)
    }

    fn is_section(name: &str) -> bool {
        let known = toml::Table::try_from(Self::default());
        known.is_ok_and(|known| known.get(name).is_some_and(toml::Value::is_table))
    }

    /// Returns the paths of the keys whose values differ between two recipes.
    pub fn differing_keys(&self, other: &Self) -> Vec<String> {
        let keys = |recipe: &Self| {
            let mut keys = BTreeMap::new();
            if let Ok(table) = toml::Table::try_from(recipe) {
                collect_keys("", &toml::Value::Table(table), &mut keys);
            }
            keys
        };
        let (own, others) = (keys(self), keys(other));
        let differs = |key: &&String| own.get(*key) != others.get(*key);
        let mut found: Vec<String> = own.keys().chain(others.keys()).filter(differs).cloned().collect();
        found.sort();
        found.dedup();
        found
    }

    /// Applies `key=value` overrides by their path.
    ///
    /// # Errors
    /// If a key is unknown or has a value of the wrong kind.
    pub fn with(&self, overrides: &[String]) -> Result<Self> {
        if overrides.is_empty() { Ok(self.clone()) } else { Self::parse(&self.to_toml()?, overrides) }
    }

    /// Returns the seed of the data: `data.seed`, or `train.seed` if it is not set.
    pub fn data_seed(&self) -> u64 {
        self.data.seed.unwrap_or(self.train.seed)
    }

    /// Returns the resolved recipe as TOML: every key, those that are not set as comments.
    ///
    /// # Errors
    /// Never for a recipe that was parsed.
    pub fn to_toml(&self) -> Result<String> {
        let text =
            toml::to_string(self).map_err(|error| CfoError::BadRecipe { problem: error.to_string() })?;
        Ok(self.with_unset_keys(&text))
    }

    /// Returns whether the network learns a velocity without time as an input.
    fn is_autonomous(&self) -> bool {
        self.objective.predicts() == MotionKind::Velocity && !self.operator.operator().sees_time()
    }

    fn check_balance(&self, balance: f64) -> Result<()> {
        require((0.0..=1.0).contains(&balance), "path.unit", balance, "must lie in [0, 1]")?;
        if self.is_autonomous() {
            return Err(CfoError::invalid("path.unit", "it needs `operator.time = true`"));
        }
        Ok(())
    }

    fn check_clock(&self, half: f64) -> Result<()> {
        positive("path.clock", half)?;
        if self.is_autonomous() {
            let problem =
                "it needs `operator.time = true`: the velocity in transformed time depends on the time";
            return Err(CfoError::invalid("path.clock", problem));
        }
        if self.path.smoothing != Smoothing::None {
            let problem =
                "it cannot be combined with `path.smoothing`, which measures noise by the time of the data";
            return Err(CfoError::invalid("path.clock", problem));
        }
        Ok(())
    }

    /// Checks the values of all keys.
    ///
    /// # Errors
    /// If a number is out of range or a choice unknown.
    pub fn check(&self) -> Result<()> {
        let keep_rate = self.data.keep_rate;
        require(keep_rate > 0.0 && keep_rate <= 1.0, "data.keep_rate", keep_rate, "must lie in (0, 1]")?;
        self.data.merge_below.map_or(Ok(()), |distance| not_negative("data.merge_below", distance))?;
        self.data.split.map_or(Ok(()), |split| split.check())?;
        self.path.unit.balance().map_or(Ok(()), |balance| self.check_balance(balance))?;
        self.path.clock.map_or(Ok(()), |half| self.check_clock(half))?;
        self.path.trust.map_or(Ok(()), |tolerance| positive("path.trust", tolerance))?;
        if self.data.path.is_some() && self.data.simulate.is_some() {
            return Err(CfoError::invalid("data.simulate", "`data.path` names the data already"));
        }
        self.path.check()?;
        self.objective.check(self.train.precision)?;
        self.latent.check()?;
        self.train.check()?;
        self.refine.check(self)?;
        self.finetune.check(self)?;
        self.evaluate.solver.check("evaluate.solver")?;
        self.solver().map(|_| ())
    }
}
