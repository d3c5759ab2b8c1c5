//! `cfo devices`: the devices of this machine.

use std::path::PathBuf;

use anyhow::Result;
use cfo::device::DeviceReport;
use cfo::ranks::{from_all, world};
use cfo_device::DeviceList;
use serde::{Deserialize, Serialize};

use crate::args;
use crate::job;
use crate::report::CellAlignment::{Left, Right};
use crate::report::{self, TextTable};

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    list: DeviceList,
    #[serde(flatten)]
    job: Option<Job>,
}

/// The processes that a launcher started.
#[derive(Debug, Serialize)]
struct Job {
    ranks: Vec<Rank>,
    mpi: Found,
    /// The library that sums between GPUs; without it gradients go through the host.
    nccl: Option<Found>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Rank {
    rank: usize,
    host: String,
    /// The device that `auto` selects.
    device: String,
    threads: usize,
    /// Unique identifier of its GPU.
    gpu: Option<String>,
    shares_with: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Found {
    library: PathBuf,
    version: String,
}

impl Job {
    /// Collects the devices of all ranks; every rank calls it.
    fn gather(found: &DeviceReport) -> Result<Option<Self>> {
        let Some(ranks) = world() else { return Ok(None) };
        let device = job::device("auto")?.to_string();
        let gpu = found.cuda.devices.iter().find(|gpu| gpu.name == device).map(|gpu| gpu.uuid.clone());
        let own = Rank {
            rank: ranks.rank(),
            host: ranks.host(ranks.rank()).into(),
            device,
            threads: found.threads,
            gpu,
            shares_with: Vec::new(),
        };
        let mut all: Vec<Rank> = from_all(&own)?;
        let gpus: Vec<Option<String>> = all.iter().map(|rank| rank.gpu.clone()).collect();
        for rank in &mut all {
            let same =
                |&other: &usize| other != rank.rank && gpus[other].is_some() && gpus[other] == rank.gpu;
            rank.shares_with = (0..gpus.len()).filter(same).collect();
        }
        let mpi = Found { library: ranks.library().into(), version: ranks.library_version().into() };
        let nccl = found.cuda.nccl.clone().map(|(library, version)| Found { library, version });
        Ok(Some(Self { ranks: all, mpi, nccl }))
    }

    fn text(&self) -> String {
        let mut table =
            TextTable::new([("rank", Right), ("host", Left), ("device", Left), ("threads", Right)]);
        for rank in &self.ranks {
            let [number, threads] = [rank.rank, rank.threads].map(|number| number.to_string());
            table.push([number, rank.host.clone(), rank.device.clone(), threads]);
        }
        let mut text =
            format!("\n{}\nMPI: {} ({})\n", table.text(), self.mpi.version, self.mpi.library.display());
        text += &match &self.nccl {
            Some(nccl) => format!("NCCL: {} ({})\n", nccl.version, nccl.library.display()),
            None => {
                "NCCL: not found, so gradients of GPUs are summed on the host; install it with `pip install nvidia-nccl-cu13`\n"
                    .into()
            }
        };
        for rank in self.ranks.iter().filter(|rank| rank.shares_with.iter().any(|&other| other > rank.rank)) {
            let others: Vec<String> = rank.shares_with.iter().map(ToString::to_string).collect();
            text += &format!(
                "warning: rank {} shares `{}` of {} with rank {}: their gradients are summed on the host; start one rank per GPU\n",
                rank.rank,
                rank.device,
                rank.host,
                others.join(", ")
            );
        }
        text
    }
}

pub fn run(arguments: &args::Devices) -> Result<()> {
    let found = DeviceReport::gather();
    let job = Job::gather(&found)?;
    let report = Report { list: found.into(), job };
    report::print_result(arguments.json, &report, || text(&report))
}

fn text(report: &Report) -> String {
    let unknown = || "unknown".to_owned();
    let mut table = TextTable::new([
        ("device", Left),
        ("model", Left),
        ("cores", Right),
        ("SIMD", Left),
        ("memory", Right),
    ]);
    for device in &report.list.devices {
        table.push([
            device.device.clone(),
            device.model.clone().unwrap_or_else(unknown),
            device.cores.map_or_else(unknown, |cores| cores.to_string()),
            device.simd.clone().unwrap_or_else(unknown),
            device.memory_bytes.map_or_else(unknown, report::bytes),
        ]);
    }
    let mut text = table.text();
    if let Some(reason) = &report.list.cuda.reason {
        text.push_str(&format!("\nCUDA: {reason}\n"));
    }
    for library in &report.list.cuda.libraries {
        let state = match &library.version {
            Some(version) => version.clone(),
            None => format!("not found; {}", library.install),
        };
        text.push_str(&format!("  {}: {state}\n", library.name));
    }
    text + &report.job.as_ref().map_or(String::new(), Job::text)
}
