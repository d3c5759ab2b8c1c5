//! Where programs run and with what precision.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::cuda;
use crate::cuda::runtime::library::Library;
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
        match Self::Cuda(0).check() {
            Ok(()) => Self::Cuda(0),
            Err(_) => Self::Cpu,
        }
    }

    /// Whether the device can be used now, and if not, why.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn check(self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(number) => cuda::Context::open(number).map(|_| ()),
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
    /// What was found of CUDA, and what is missing.
    pub cuda: CudaReport,
}

/// What was found of CUDA on this machine.
#[derive(Clone, Debug)]
pub struct CudaReport {
    /// Why programs cannot run on a GPU; `None` if they can.
    pub problem: Option<String>,
    /// The GPUs that the driver shows.
    pub devices: Vec<CudaDevice>,
    /// NVIDIA's libraries, found or not.
    pub libraries: Vec<CudaLibrary>,
}

/// A GPU.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    /// Its name here, as `cuda:0`.
    pub name: String,
    /// The maker's name for it.
    pub model: String,
    /// Compute capability, as `9.0`.
    pub capability: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
}

/// A library that programs on CUDA use.
#[derive(Clone, Debug)]
pub struct CudaLibrary {
    /// Its name.
    pub name: &'static str,
    /// Its version; `None` if it was not found.
    pub version: Option<String>,
    /// The file that was loaded, where the system tells.
    pub file: Option<PathBuf>,
    /// How to install it.
    pub install: &'static str,
}

impl DeviceReport {
    /// Looks at this machine.
    pub fn gather() -> Self {
        Self {
            simd: crate::cpu::simd_name(),
            threads: rayon::current_num_threads(),
            cuda: CudaReport::gather(),
        }
    }
}

impl CudaReport {
    fn gather() -> Self {
        let problem = Device::Cuda(0).check().err().map(|error| match error {
            EngineError::DeviceUnavailable { reason, .. } => reason,
            other => other.to_string(),
        });
        let devices = (0..cuda::count().unwrap_or(0))
            .filter_map(|number| {
                let found = cuda::properties(number).ok()?;
                Some(CudaDevice {
                    name: Device::Cuda(number).to_string(),
                    model: found.name,
                    capability: format!("{}.{}", found.architecture / 10, found.architecture % 10),
                    memory_bytes: found.bytes,
                })
            })
            .collect();
        let libraries = Library::ALL
            .map(|library| CudaLibrary {
                name: library.name(),
                version: library.version().map(|version| version.to_string()),
                file: library.version().and_then(|_| library.file()),
                install: library.install(),
            })
            .to_vec();
        Self { problem, devices, libraries }
    }
}

impl fmt::Display for CudaReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Some(problem) => write!(f, "not usable: {problem}")?,
            None => f.write_str("usable")?,
        }
        for device in &self.devices {
            let gibibytes = device.memory_bytes as f64 / (1u64 << 30) as f64;
            write!(f, "\n{} {}, ", device.name, device.model)?;
            write!(f, "compute capability {}, {gibibytes:.1} GiB", device.capability)?;
        }
        for library in &self.libraries {
            match &library.version {
                Some(version) => write!(f, "\n{} {version}", library.name)?,
                None => write!(f, "\n{} missing: {}", library.name, library.install)?,
            }
            if let Some(file) = &library.file {
                write!(f, " ({})", file.display())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_how_to_get_it() {
        let report = CudaReport::gather();
        let text = report.to_string();
        for library in &report.libraries {
            assert!(text.contains(library.name), "{text}");
            assert!(library.version.is_some() || text.contains(library.install), "{text}");
        }
        assert_eq!(report.problem.is_some(), Device::best() == Device::Cpu);
        assert_eq!("auto".parse::<Device>().unwrap(), Device::best());
        let refused = "cuda:4711".parse::<Device>().unwrap_err();
        assert!(refused.to_string().contains("cuda:4711") && refused.hint().is_some(), "{refused}");
    }
}
