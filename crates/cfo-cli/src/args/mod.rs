//! The command line as typed. The commands interpret it.

mod look;
mod run;
mod simulate;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use look::{Export, Serve, ViewPage};
pub use run::{
    Bench, BenchNetwork, BenchWork, Evaluate, Frame, Init, IntegrationOptions, Predict, SplitPart, Train,
};
pub use simulate::{Simulate, SimulatedSystem, SimulationLayout, SimulationOutput};

const AFTER_HELP: &str = "\
Results are printed to stdout, progress and messages to stderr.
Exit codes: 0 success, 1 the work failed, 2 wrong usage or bad input.";

/// Learn du/dt = f(u) from snapshots at irregular times, and integrate f to any time
#[derive(Debug, Parser)]
#[command(name = "cfo", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Verb,
}

/// The subcommands, one file each under `command/`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    Devices(Devices),
    Simulate(Simulate),
    Inspect(Inspect),
    Init(Init),
    Train(Train),
    Evaluate(Evaluate),
    Predict(Predict),
    View(ViewPage),
    Serve(Serve),
    Export(Export),
    Reproduce(cfo_paper::Reproduce),
    Bench(Bench),
}

/// List the CPU and the GPUs of this machine, and the libraries that were found
#[derive(Debug, Args)]
pub struct Devices {
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// Describe a trajectory file: contents, defects, noise, and whether its times are dense enough
#[derive(Debug, Args)]
pub struct Inspect {
    /// Trajectory file: HDF5 or `.npz`; the layout is recognised by the content
    pub file: PathBuf,
    /// Read every value of the file; otherwise at most 4 GiB are read
    #[arg(long)]
    pub full: bool,
    /// Show the first trajectory as a small plot, on a terminal with colours
    #[arg(long, conflicts_with = "json")]
    pub plot: bool,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
