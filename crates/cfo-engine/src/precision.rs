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

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
        })
    }
}

impl FromStr for Precision {
    type Err = EngineError;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "f32" => Ok(Self::F32),
            "f64" => Ok(Self::F64),
            "tf32" => Ok(Self::Tf32),
            "bf16" => Ok(Self::Bf16),
            _ => Err(EngineError::bad_attribute(
                "precision",
                format!("unknown precision `{name}`; known are `f32`, `f64`, `tf32`, `bf16`"),
            )),
        }
    }
}
