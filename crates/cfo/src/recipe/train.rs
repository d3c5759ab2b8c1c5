//! The section `[train]`: steps, optimiser, reports.

use std::path::PathBuf;

use cfo_device::Device;
use cfo_engine::{AdamConfig, Precision, Schedule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice;
use super::ranges::{at_least_one, below_one, not_negative, positive, require};
use crate::error::{CfoError, Result};

/// The training loop: steps, optimiser (Adam), validation, checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainConfig {
    /// Number of optimiser steps.
    pub steps: u32,
    /// Samples per step.
    pub batch: usize,
    /// Highest learning rate.
    pub learning_rate: f64,
    /// Schedule of the learning rate: `constant`; `warmup`, a rise and then constant; `cosine`, a rise and then a fall to 0.
    pub schedule: LearningRateSchedule,
    /// Number of steps over which the learning rate rises, for `cosine` and `warmup`.
    pub warmup: u32,
    /// Adam's decay rates.
    pub betas: [f64; 2],
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// Decay of the exponential moving average (EMA) of the weights, which is then used for evaluation; 0 for none.
    pub ema: f64,
    /// Largest global norm of the gradient, to which larger ones are clipped; 0 for no clipping.
    pub clip: f64,
    /// Precision on a GPU: `f32`, `tf32` or `bf16`. The CPU always computes in `f32`.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<Precision>")]
    pub precision: Precision,
    /// Whether results are bit-identical in every run on a GPU and for any number of ranks on CPUs, at some cost in speed.
    pub deterministic: bool,
    /// Seed of the weights and of the batches, and of the data unless `data.seed` is set.
    pub seed: u64,
    /// Steps between reports.
    pub report_every: u32,
    /// Steps between validation rollouts; there is always one after the last step. 0 disables validation completely: there is then no
    /// `best` checkpoint.
    pub validate_every: u32,
    /// Largest number of validation trajectories to roll out. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validate_trajectories: Option<usize>,
    /// Steps between checkpoints. The first is always written within seconds.
    pub checkpoint_every: u32,
    /// Number of validations in a row without a new lowest error after which training ends; 0 to train for all steps.
    pub patience: u32,
    /// Folder of a run whose weights initialise the network. Its network must have the same shapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<PathBuf>,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            steps: 60_000,
            batch: 256,
            learning_rate: 1e-4,
            schedule: LearningRateSchedule::Constant,
            warmup: 0,
            betas: [0.9, 0.99],
            weight_decay: 0.0,
            ema: 0.0,
            clip: 0.0,
            precision: Precision::F32,
            deterministic: false,
            seed: 0,
            report_every: 100,
            validate_every: 5_000,
            validate_trajectories: None,
            checkpoint_every: 1_000,
            patience: 0,
            from: None,
        }
    }
}

impl TrainConfig {
    /// Returns the settings of the optimiser.
    ///
    /// # Errors
    /// If a number is out of range.
    pub fn adam(&self) -> Result<AdamConfig> {
        let schedule = match self.schedule {
            LearningRateSchedule::Constant => Schedule::Constant,
            LearningRateSchedule::Warmup => Schedule::WarmUp(self.warmup),
            LearningRateSchedule::Cosine => {
                Schedule::Cosine { warmup: self.warmup, total: self.steps, floor: 0.0 }
            }
        };
        positive("train.learning_rate", self.learning_rate)?;
        let decays = self.betas.iter().all(|beta| (0.0..1.0).contains(beta));
        require(decays, "train.betas", format!("{:?}", self.betas), "must lie in [0, 1)")?;
        below_one("train.ema", self.ema)?;
        not_negative("train.weight_decay", self.weight_decay)?;
        not_negative("train.clip", self.clip)?;
        let when = |value: f64| (value > 0.0).then_some(value);
        Ok(AdamConfig {
            learning_rate: self.learning_rate,
            schedule,
            betas: self.betas,
            weight_decay: self.weight_decay,
            clip: when(self.clip),
            ema: when(self.ema),
            ..AdamConfig::default()
        })
    }

    /// Returns the precision on a device: `f32` on the CPU if the recipe names one that only GPUs have.
    pub fn precision_on(&self, device: Device) -> Precision {
        on_device(self.precision, device)
    }

    pub(super) fn check(&self) -> Result<()> {
        at_least_one("train.steps", self.steps as usize)?;
        at_least_one("train.batch", self.batch)?;
        if self.patience > 0 && self.validate_every == 0 {
            let problem = "nothing is validated: `train.validate_every` is 0";
            return Err(CfoError::invalid("train.patience", problem));
        }
        self.adam().map(|_| ())
    }
}

pub(super) fn on_device(precision: Precision, device: Device) -> Precision {
    match (device, precision) {
        (Device::Cpu, Precision::Tf32 | Precision::Bf16) => Precision::F32,
        _ => precision,
    }
}

/// How the learning rate changes over the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LearningRateSchedule {
    /// Constant.
    #[default]
    Constant,
    /// Rises over the first steps, then falls like half a cosine to 0 at the last one.
    Cosine,
    /// Rises over the first steps, then stays.
    Warmup,
}
