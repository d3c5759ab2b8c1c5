//! Report on CUDA on this machine: devices, libraries and missing parts.

use std::fmt;
use std::path::PathBuf;

use cfo_engine::EngineError;
use serde::Serialize;

use crate::runtime::driver::{CudaContext, count, properties};
use crate::runtime::library::Library;
use crate::runtime::nccl::Nccl;

/// Report on CUDA on this machine.
#[derive(Clone, Debug)]
pub struct CudaReport {
    /// Why programs cannot run on a GPU; `None` if they can.
    pub problem: Option<String>,
    /// The GPUs that the driver reports.
    pub devices: Vec<CudaDevice>,
    /// NVIDIA's libraries, found or not.
    pub libraries: Vec<CudaLibrary>,
    /// File and version of NCCL, which sums over GPUs of several ranks and is not needed for one rank.
    pub nccl: Option<(PathBuf, String)>,
}

/// A GPU.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    /// Name of the device, such as `cuda:0`.
    pub name: String,
    /// The manufacturer's name.
    pub model: String,
    /// Compute capability, such as `9.0`.
    pub capability: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Globally unique identifier.
    pub uuid: String,
}

/// A library that CUDA programs use.
#[derive(Clone, Debug, Serialize)]
pub struct CudaLibrary {
    /// Name of the library.
    pub name: &'static str,
    /// Its version; `None` if it was not found.
    pub version: Option<String>,
    /// The loaded file, if the system reports it.
    pub file: Option<PathBuf>,
    /// Command that installs it.
    pub install: &'static str,
}

/// Number of GPUs that the driver reports, 0 without a driver. Does not use any GPU.
pub fn gpu_count() -> usize {
    count().unwrap_or(0)
}

impl CudaReport {
    /// Collects the report for this machine.
    pub fn gather() -> Self {
        let problem = CudaContext::open(0).err().map(|error| match error {
            EngineError::DeviceUnavailable { reason, .. } => reason,
            other => other.to_string(),
        });
        let devices = (0..count().unwrap_or(0))
            .filter_map(|number| {
                let found = properties(number).ok()?;
                Some(CudaDevice {
                    name: format!("cuda:{number}"),
                    model: found.name,
                    capability: format!("{}.{}", found.architecture / 10, found.architecture % 10),
                    memory_bytes: found.bytes,
                    uuid: found.uuid,
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
        let nccl = Nccl::find().map(|nccl| (nccl.file.clone(), nccl.version().to_string()));
        Self { problem, devices, libraries, nccl }
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
