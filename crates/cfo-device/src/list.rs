//! The devices of a machine as a document, which `cfo devices --json` prints.

use serde::Serialize;

use crate::{CudaLibrary, DeviceReport};

/// The devices of a machine, and the libraries of CUDA.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceList {
    /// The CPU, then the GPUs.
    pub devices: Vec<ListedDevice>,
    /// Report on CUDA.
    pub cuda: CudaStatus,
}

/// A device of a [`DeviceList`]. Properties that cannot be found out are absent.
#[derive(Clone, Debug, Serialize)]
pub struct ListedDevice {
    /// Name of the device, such as `cpu` or `cuda:0`.
    pub device: String,
    /// The manufacturer's name.
    pub model: Option<String>,
    /// Number of cores of a CPU.
    pub cores: Option<usize>,
    /// Vector instructions of a CPU, or compute capability of a GPU.
    pub simd: Option<String>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
}

/// Whether programs can run on NVIDIA GPUs, and which libraries were found.
#[derive(Clone, Debug, Serialize)]
pub struct CudaStatus {
    /// Whether programs can run on a GPU.
    pub available: bool,
    /// Why they cannot.
    pub reason: Option<String>,
    /// NVIDIA's libraries, found or not.
    pub libraries: Vec<CudaLibrary>,
}

impl From<DeviceReport> for DeviceList {
    fn from(report: DeviceReport) -> Self {
        let cpu = ListedDevice {
            device: "cpu".into(),
            model: field_of("/proc/cpuinfo", "model name"),
            cores: Some(report.threads),
            simd: Some(report.simd.into()),
            memory_bytes: field_of("/proc/meminfo", "MemTotal").and_then(|text| kibibytes(&text)),
        };
        let gpus = report.cuda.devices.into_iter().map(|gpu| ListedDevice {
            device: gpu.name,
            model: Some(gpu.model),
            cores: None,
            simd: Some(format!("compute {}", gpu.capability)),
            memory_bytes: Some(gpu.memory_bytes),
        });
        Self {
            devices: [cpu].into_iter().chain(gpus).collect(),
            cuda: CudaStatus {
                available: report.cuda.problem.is_none(),
                reason: report.cuda.problem,
                libraries: report.cuda.libraries,
            },
        }
    }
}

/// The value after `name` in a file under `/proc`, which only Linux has.
fn field_of(path: &str, name: &str) -> Option<String> {
    let table = fs_err::read_to_string(path).ok()?;
    let value = table.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })?;
    (!value.is_empty()).then_some(value)
}

/// `24689124 kB` in bytes.
fn kibibytes(text: &str) -> Option<u64> {
    let count: u64 = text.strip_suffix(" kB")?.parse().ok()?;
    count.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_from_its_line() {
        assert_eq!(kibibytes("24689124 kB"), Some(24_689_124 * 1024));
        assert_eq!(kibibytes("many"), None);
        assert_eq!(field_of("/nowhere", "MemTotal"), None);
    }
}
