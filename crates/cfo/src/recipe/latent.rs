//! The section `[latent]`: the space in which the network works.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ranges::{at_least_one, require};
use crate::error::Result;

/// Whether the network works on wavelet coefficients of the states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LatentConfig {
    /// Wavelet whose coefficients the network works on: `haar` or `daubechies4`. If not set, it works on the states themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wavelet: Option<LatentWavelet>,
    /// Number of levels of the wavelet transform; each halves the sides of the grid.
    pub levels: usize,
}

/// A wavelet by its name in a recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LatentWavelet {
    /// Averages and differences of neighbours.
    Haar,
    /// Daubechies' wavelet of four taps.
    Daubechies4,
}

impl Default for LatentConfig {
    fn default() -> Self {
        Self { wavelet: None, levels: 1 }
    }
}

impl LatentConfig {
    pub(crate) fn check(self) -> Result<()> {
        at_least_one("latent.levels", self.levels)?;
        let most = usize::BITS as usize / 2;
        require(self.levels < most, "latent.levels", self.levels, "halve any side to nothing")
    }
}
