//! How programs store and multiply real numbers.

use std::fmt;
use std::str::FromStr;

use crate::error::{EngineError, Result};

/// How real numbers are stored and multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Precision {
    /// Single precision throughout.
    #[default]
    F32,
    /// Double precision throughout; CPU only, for checks.
    F64,
    /// Single precision, products rounded to TF32; CUDA only.
    Tf32,
    /// bf16 activations and products; single-precision sums, statistics and weights; CUDA only.
    Bf16,
}

const NAMES: [(&str, Precision); 4] =
    [("f32", Precision::F32), ("f64", Precision::F64), ("tf32", Precision::Tf32), ("bf16", Precision::Bf16)];

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        NAMES.iter().filter(|(_, precision)| precision == self).try_for_each(|(name, _)| f.write_str(name))
    }
}

impl FromStr for Precision {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, precision)| precision).ok_or_else(|| {
            let problem = format!("unknown precision `{name}`; known are `f32`, `f64`, `tf32`, `bf16`");
            EngineError::bad_attribute("precision", problem)
        })
    }
}
