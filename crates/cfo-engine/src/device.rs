//! Where programs run and with what precision.

use std::fmt;
use std::str::FromStr;

use crate::error::{EngineError, Result};

/// A device that runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// All cores of this machine.
    Cpu,
    /// The NVIDIA GPU of the given number.
    Cuda(usize),
}

impl Device {
    /// The best device there is: the first GPU, else the CPU.
    pub fn best() -> Self {
        Self::Cpu
    }

    /// Whether the device can be used now, and if not, why.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(_) => Err(EngineError::DeviceUnavailable {
                name: self.to_string(),
                reason: "this build runs on the CPU only".into(),
            }),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(number) => write!(f, "cuda:{number}"),
        }
    }
}

impl FromStr for Device {
    type Err = EngineError;

    /// `auto`, `cpu`, `cuda` or `cuda:N`; the device must be usable.
    fn from_str(name: &str) -> Result<Self> {
        let device = match name.split_once(':') {
            None if name == "auto" => Self::best(),
            None if name == "cpu" => Self::Cpu,
            None if name == "cuda" => Self::Cuda(0),
            Some(("cuda", number)) if number.parse::<usize>().is_ok() => {
                Self::Cuda(number.parse().unwrap_or(0))
            }
            _ => {
                return Err(EngineError::DeviceUnavailable {
                    name: name.into(),
                    reason: "a device is `auto`, `cpu` or `cuda:N`".into(),
                });
            }
        };
        device.check().map(|()| device)
    }
}

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
            _ => Err(EngineError::BadAttribute {
                operation: "precision",
                problem: format!("`{name}` is none of `f32`, `f64`, `tf32`, `bf16`"),
            }),
        }
    }
}

/// What is known of the devices of this machine.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// The processor's name for the vector instructions in use.
    pub simd: &'static str,
    /// Threads that programs use.
    pub threads: usize,
    /// What was found of CUDA, or what is missing.
    pub cuda: String,
}

impl DeviceReport {
    /// Looks at this machine.
    pub fn gather() -> Self {
        Self {
            simd: crate::cpu::simd_name(),
            threads: rayon::current_num_threads(),
            cuda: "this build runs on the CPU only".into(),
        }
    }
}
