//! Devices by name: the CPU and CUDA, with a report of what is available and what is missing.
//!
//! Only this crate depends on the backends. A new backend is a variant of [`Device`] and a line in [`Device::open`].

mod list;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cfo_cpu::Cpu;
use cfo_cuda::Cuda;
use cfo_engine::backend::{Backend, Open};
use cfo_engine::{EngineError, Memory, Result};

pub use cfo_cpu::{available_memory, roomy};
pub use cfo_cuda::{CudaDevice, CudaLibrary, CudaReport, gpu_count};
pub use list::{CudaStatus, DeviceList, ListedDevice};

/// A device that runs programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Device {
    /// All cores of this machine.
    Cpu,
    /// The NVIDIA GPU with this index.
    Cuda(usize),
}

impl Device {
    /// The best available device: the first GPU, otherwise the CPU.
    pub fn best() -> Self {
        match Self::Cuda(0).check() {
            Ok(()) => Self::Cuda(0),
            Err(_) => Self::Cpu,
        }
    }

    /// The device that holds a memory's tensors.
    ///
    /// # Errors
    /// If it is not a device of this crate.
    pub fn of(memory: &Memory) -> Result<Self> {
        Self::named(&memory.device_name())
    }

    /// Parses `auto`, `cpu`, `cuda` or `cuda:N`, without checking that the device can be used.
    fn named(name: &str) -> Result<Self> {
        let unknown = || EngineError::DeviceUnavailable {
            name: name.into(),
            reason: "a device is `auto`, `cpu` or `cuda:N`".into(),
        };
        match name.split_once(':') {
            None if name == "auto" => Ok(Self::best()),
            None if name == "cpu" => Ok(Self::Cpu),
            None if name == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", number)) => number.parse().map(Self::Cuda).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }

    /// Checks that the device can be used.
    ///
    /// # Errors
    /// If it cannot be used, with the reason.
    pub fn check(self) -> Result<()> {
        self.open().map(|_| ())
    }
}

impl Open for Device {
    fn open(&self) -> Result<Arc<dyn Backend>> {
        match *self {
            Self::Cpu => Cpu.open(),
            Self::Cuda(number) => Cuda(number).open(),
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

    /// Parses `auto`, `cpu`, `cuda` or `cuda:N`; the device must be usable.
    fn from_str(name: &str) -> Result<Self> {
        let device = Self::named(name)?;
        device.check().map(|()| device)
    }
}

/// Report on the devices of this machine.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Name of the vector instructions in use.
    pub simd: &'static str,
    /// Number of threads that programs use.
    pub threads: usize,
    /// Report on CUDA: devices, libraries and missing parts.
    pub cuda: CudaReport,
}

impl DeviceReport {
    /// Collects the report for this machine.
    pub fn gather() -> Self {
        Self { simd: cfo_cpu::simd_name(), threads: cfo_cpu::threads(), cuda: CudaReport::gather() }
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
