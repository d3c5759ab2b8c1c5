//! Where trajectories come from and what is kept of them.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::partition::Portions;
use crate::scaling::Normalize;

/// Where trajectories come from and what is kept of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataConfig {
    /// A trajectory file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// A system to simulate instead: `lorenz`, `burgers`, ...
    #[serde(skip_serializing_if = "Option::is_none")]
    pub simulate: Option<String>,
    /// Trajectories to simulate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Share of each training trajectory's snapshots that is kept, drawn at random; the first and the last are always kept.
    pub keep_rate: f64,
    /// Whether each trajectory's first snapshot is dropped.
    pub drop_first: bool,
    /// Snapshots of a training trajectory nearer in time than this, in the data's unit, are merged into their mean; 0 merges none. By
    /// default a millionth of the trajectory's median interval, or the rounding of times that are float32 numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merge_below: Option<f64>,
    /// Trajectories for training, validation and test: counts as `[900, 50, 50]` or shares as `[0.8, 0.1, 0.1]`; by default what
    /// the file says, else 80, 10 and 10 %. With one or two trajectories the last fifth of their times is held out instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<Portions>,
    /// Whether trajectories are shuffled before they are split, rather than taken in the order of the file.
    pub shuffle: bool,
    /// Seed of the data: of a simulation, of thinning and of the shuffle; by default `train.seed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How each channel is shifted and scaled: `standard` to mean 0 and deviation 1 of the training data, `center` to
    /// mean 0 in its own unit, `range` to [0, 1], `none` not at all.
    pub normalize: Normalize,
    /// Whether the network is given each trajectory's PDE parameters.
    pub condition: bool,
    /// Whether the snapshots of a batch are gathered ahead of the step that needs them, from the file if there is one,
    /// instead of keeping all on the device; by default only if they do not fit. The batches are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
}

impl Default for DataConfig {
    fn default() -> Self {
        Self {
            path: None,
            simulate: None,
            samples: None,
            keep_rate: 1.0,
            drop_first: false,
            merge_below: None,
            split: None,
            shuffle: false,
            seed: None,
            normalize: Normalize::Standard,
            condition: false,
            stream: None,
        }
    }
}
