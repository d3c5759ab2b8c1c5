//! `cfo devices`: what this machine can compute on.

use std::path::PathBuf;

use anyhow::Result;
use cfo::engine::DeviceReport;
use serde::Serialize;

use crate::args;
use crate::report::{self, Alignment, Table};

#[derive(Debug, Serialize)]
struct Report {
    devices: Vec<Device>,
    cuda: Cuda,
}

/// A device that `--device` accepts.
#[derive(Debug, Serialize)]
struct Device {
    device: String,
    model: Option<String>,
    cores: Option<usize>,
    simd: Option<String>,
    memory_bytes: Option<u64>,
}

/// Whether NVIDIA GPUs can be used, if not why, and which libraries were found.
#[derive(Debug, Serialize)]
struct Cuda {
    available: bool,
    reason: Option<String>,
    libraries: Vec<Library>,
}

#[derive(Debug, Serialize)]
struct Library {
    name: &'static str,
    version: Option<String>,
    file: Option<PathBuf>,
    install: &'static str,
}

pub fn run(arguments: &args::Devices) -> Result<()> {
    let report = gather();
    if arguments.json { report::print_json(&report) } else { Ok(report::print(&text(&report))?) }
}

/// What this machine can compute on, as `cfo devices --json` prints it.
///
/// # Errors
/// Never, since it consists of text and numbers.
pub fn devices() -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(gather())
}

fn gather() -> Report {
    let found = DeviceReport::gather();
    let gpus = found.cuda.devices.into_iter().map(|gpu| Device {
        device: gpu.name,
        model: Some(gpu.model),
        cores: None,
        simd: Some(format!("compute {}", gpu.capability)),
        memory_bytes: Some(gpu.memory_bytes),
    });
    let libraries = found.cuda.libraries.into_iter().map(|library| Library {
        name: library.name,
        version: library.version,
        file: library.file,
        install: library.install,
    });
    let cuda = Cuda {
        available: found.cuda.problem.is_none(),
        reason: found.cuda.problem,
        libraries: libraries.collect(),
    };
    Report { devices: [cpu(found.simd, found.threads)].into_iter().chain(gpus).collect(), cuda }
}

fn text(report: &Report) -> String {
    let unknown = || "unknown".to_owned();
    let mut table = Table::new([
        ("device", Alignment::Left),
        ("model", Alignment::Left),
        ("cores", Alignment::Right),
        ("SIMD", Alignment::Left),
        ("memory", Alignment::Right),
    ]);
    for device in &report.devices {
        table.push([
            device.device.clone(),
            device.model.clone().unwrap_or_else(unknown),
            device.cores.map_or_else(unknown, |cores| cores.to_string()),
            device.simd.clone().unwrap_or_else(unknown),
            device.memory_bytes.map_or_else(unknown, report::bytes),
        ]);
    }
    let mut text = table.text();
    if let Some(reason) = &report.cuda.reason {
        text.push_str(&format!("\nCUDA: {reason}\n"));
    }
    for library in &report.cuda.libraries {
        let state = match &library.version {
            Some(version) => version.clone(),
            None => format!("not found; {}", library.install),
        };
        text.push_str(&format!("  {}: {state}\n", library.name));
    }
    text
}

fn cpu(simd: &str, threads: usize) -> Device {
    Device {
        device: "cpu".into(),
        model: field_of("/proc/cpuinfo", "model name"),
        cores: Some(threads),
        simd: Some(simd.into()),
        memory_bytes: field_of("/proc/meminfo", "MemTotal").and_then(|text| kibibytes(&text)),
    }
}

/// The value after `name` in a file under `/proc`; only Linux has one.
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
