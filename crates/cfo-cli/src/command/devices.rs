//! `cfo devices`: what this machine can compute on.

use std::thread;

use anyhow::Result;
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
    device: &'static str,
    model: Option<String>,
    cores: Option<usize>,
    simd: Option<&'static str>,
    memory_bytes: Option<u64>,
}

/// Whether NVIDIA GPUs can be used, and if not, why.
#[derive(Debug, Serialize)]
struct Cuda {
    available: bool,
    reason: &'static str,
}

pub fn run(arguments: &args::Devices) -> Result<()> {
    let report = Report {
        devices: vec![cpu()],
        cuda: Cuda { available: false, reason: "not built into this version" },
    };
    if arguments.json { report::print_json(&report) } else { Ok(report::print(&text(&report))?) }
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
            device.device.to_owned(),
            device.model.clone().unwrap_or_else(unknown),
            device.cores.map_or_else(unknown, |cores| cores.to_string()),
            device.simd.map_or_else(unknown, str::to_owned),
            device.memory_bytes.map_or_else(unknown, report::bytes),
        ]);
    }
    let mut text = table.text();
    if !report.cuda.available {
        text.push_str(&format!("\nCUDA: {}\n", report.cuda.reason));
    }
    text
}

fn cpu() -> Device {
    Device {
        device: "cpu",
        model: field_of("/proc/cpuinfo", "model name"),
        cores: thread::available_parallelism().ok().map(usize::from),
        simd: simd(),
        memory_bytes: field_of("/proc/meminfo", "MemTotal").and_then(|text| kibibytes(&text)),
    }
}

/// The value after `name` in one of Linux's tables; elsewhere there is no such file.
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

/// The widest vector instructions that the processor and the operating system offer.
#[cfg(target_arch = "x86_64")]
fn simd() -> Option<&'static str> {
    if is_x86_feature_detected!("avx512f") {
        Some("AVX-512")
    } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        Some("AVX2")
    } else if is_x86_feature_detected!("avx") {
        Some("AVX")
    } else {
        Some("SSE2")
    }
}

#[cfg(target_arch = "aarch64")]
fn simd() -> Option<&'static str> {
    Some("NEON")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn simd() -> Option<&'static str> {
    None
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
