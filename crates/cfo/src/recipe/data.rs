//! The section `[data]`: the source of the trajectories and what is used of them.

use std::path::PathBuf;

use cfo_numerics::Interpolation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Portions;

/// The source of the trajectories, and which snapshots are used.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// Trajectory file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// System to simulate instead of reading a file: `lorenz`, `burgers`, ... `data.split` sets the numbers of trajectories.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulate: Option<String>,
    /// Share of the snapshots of each training trajectory that is kept, drawn at random. The first and the last snapshot are always kept.
    pub keep_rate: f64,
    /// Whether to drop the first snapshot of each trajectory.
    pub drop_first: bool,
    /// Snapshots of a training trajectory that are closer in time than this are merged into their mean; 0 merges none. The unit is that of
    /// the times. Default: a millionth of the trajectory's median interval, or the rounding error of times that are float32 numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_below: Option<f64>,
    /// Trajectories for training, validation and test, as counts (`[900, 50, 50]`) or shares (`[0.8, 0.1, 0.1]`). Default: the split of
    /// the file, else 80, 10 and 10 %. With one or two trajectories the last fifth of their times is held out instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Portions>,
    /// Whether to shuffle the trajectories before they are split.
    pub shuffle: bool,
    /// Seed for simulation, thinning and shuffling. Default: `train.seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How each channel is normalised: `standard` to mean 0 and standard deviation 1 over the training data, `center` to mean 0 without
    /// scaling, `range` to [0, 1], `none` not at all.
    pub normalize: Normalize,
    /// Whether the PDE parameters of a trajectory are an input of the network.
    pub condition: bool,
    /// How the controls of a trajectory, which are inputs of the network, are defined between their times: `linear` interpolation, `hold`
    /// for values that are kept until the next time, or a cubic `spline`. With `none` the network does not get them. No effect on data
    /// without controls.
    pub controls: ControlKind,
    /// Whether the static fields are inputs of the network. No effect on data without static fields.
    pub statics: bool,
    /// Whether to load the snapshots of each batch ahead of its step, from the file if there is one, instead of keeping all snapshots on
    /// the device. Default: only if they do not fit. The batches do not depend on this key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            path: None,
            simulate: None,
            keep_rate: 1.0,
            drop_first: false,
            merge_below: None,
            split: None,
            shuffle: false,
            seed: None,
            normalize: Normalize::Standard,
            condition: false,
            controls: ControlKind::Linear,
            statics: true,
            stream: None,
        }
    }
}

/// How controls are defined between their times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ControlKind {
    /// Straight lines from time to time.
    #[default]
    Linear,
    /// Each value is kept until the next time. The steps of solvers end at the jumps.
    Hold,
    /// A cubic spline.
    Spline,
    /// Controls are not inputs of the network.
    None,
}

impl ControlKind {
    /// Returns the interpolation; `None` if controls are not used.
    pub fn interpolation(self) -> Option<Interpolation> {
        match self {
            Self::Linear => Some(Interpolation::Linear),
            Self::Hold => Some(Interpolation::Hold),
            Self::Spline => Some(Interpolation::Spline),
            Self::None => None,
        }
    }
}

/// How the values of each channel are normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Normalize {
    /// To mean 0 and deviation 1.
    #[default]
    Standard,
    /// To mean 0, in the data's own unit.
    Center,
    /// To the range from 0 to 1.
    Range,
    /// Not at all.
    None,
}
