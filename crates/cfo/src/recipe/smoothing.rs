//! The key `path.smoothing`: the measurement noise to remove.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::WordOrNumber;
use crate::error::{CfoError, Result};

/// Measurement noise that is removed from the training snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Smoothing {
    /// No removal: the spline passes through the snapshots.
    #[default]
    None,
    /// The noise that is estimated in each channel.
    Auto,
    /// Noise with this standard deviation, as a share of each channel's standard deviation.
    #[serde(untagged)]
    Noise(f64),
}

impl Smoothing {
    /// Returns an error for noise that is negative or not a number.
    pub(super) fn check(self) -> Result<()> {
        match self {
            Self::Noise(share) if !(share >= 0.0 && share.is_finite()) => {
                let problem = format!("{share} must be {}, 0 or positive", Self::EXPECTED);
                Err(CfoError::invalid("path.smoothing", problem))
            }
            _ => Ok(()),
        }
    }
}

impl WordOrNumber for Smoothing {
    const WORDS: &'static [&'static str] = &["none", "auto"];
    const EXPECTED: &'static str =
        "`none`, `auto` or the noise as a share of each channel's standard deviation";
}
