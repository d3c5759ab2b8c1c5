//! The key `path.smoothing`: the measurement noise to remove.

use schemars::JsonSchema;

use super::choice::WordOrNumber;
use crate::error::{CfoError, Result};

/// Measurement noise that is removed from the training snapshots.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema)]
#[schemars(rename_all = "kebab-case")]
pub enum Smoothing {
    /// No removal: the spline passes through the snapshots.
    #[default]
    None,
    /// The noise that is estimated in each channel.
    Auto,
    /// Noise with this standard deviation, as a share of each channel's standard deviation.
    #[schemars(untagged)]
    Noise(f64),
}

impl Smoothing {
    /// Refuses noise that is negative or not a number.
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

    fn of_word(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::None),
            "auto" => Some(Self::Auto),
            _ => None,
        }
    }

    fn of_number(number: f64) -> Self {
        Self::Noise(number)
    }

    fn written(&self) -> std::result::Result<&'static str, f64> {
        match self {
            Self::None => Ok("none"),
            Self::Auto => Ok("auto"),
            Self::Noise(share) => Err(*share),
        }
    }
}
