//! The section `[latent]`: the space in which the network works.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};

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
        match self.levels {
            0 => Err(CfoError::invalid("latent.levels", "0 must be positive")),
            levels if levels >= usize::BITS as usize / 2 => {
                Err(CfoError::invalid("latent.levels", format!("{levels} halve any side to nothing")))
            }
            _ => Ok(()),
        }
    }
}
