//! The command line as typed. What it means is up to the commands.

mod run;
mod simulate;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

pub use run::{Bench, Evaluate, Integration, Network, Part, Predict, Train, Work};
pub use simulate::{Layout, Output, Simulate, SplitCounts, System};

const AFTER_HELP: &str = "\
Numbers and tables go to stdout, progress and talk to stderr.
Exit codes: 0 done, 1 the work failed, 2 wrong usage or bad input.";

/// Learn the continuous-time dynamics of PDEs and ODEs from trajectories sampled at irregular times
#[derive(Debug, Parser)]
#[command(name = "cfo", version, after_help = AFTER_HELP)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The verbs, one file each under `command/`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Devices(Devices),
    Simulate(Simulate),
    Inspect(Inspect),
    Train(Train),
    Evaluate(Evaluate),
    Predict(Predict),
    Reproduce(Reproduce),
    Bench(Bench),
}

/// Say what this machine can compute on
#[derive(Debug, Args)]
pub struct Devices {
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// Say what a trajectory file holds, what is wrong with it, and whether it is sampled densely enough
#[derive(Debug, Args)]
pub struct Inspect {
    /// HDF5 or `.npz`; the layout is recognised by the content
    pub file: PathBuf,
    /// Read every value, however large the file; without it at most 4 GiB
    #[arg(long)]
    pub full: bool,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// Repeat one of the paper's experiments: its table with the paper's figures beside ours
#[derive(Debug, Args)]
pub struct Reproduce {
    /// Which experiment
    pub target: Target,
    /// How much of the paper's budget to spend
    #[arg(long, value_enum, default_value_t = Scale::Smoke)]
    pub scale: Scale,
    /// Folder for the report; one that is there already is replaced [default: runs/TARGET]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Seed of everything that is drawn at random
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// Experiments of the paper.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Target {
    /// Velocity error of linear and quintic splines on Lorenz, with its order
    SplineOrder,
    /// The paper's claim in minutes: CFO on a quarter of the times of Lorenz against next-step prediction on all
    Quickstart,
}

impl Target {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::SplineOrder => "spline-order",
            Self::Quickstart => "quickstart",
        }
    }
}

/// How much of the paper's budget to spend.
#[derive(Clone, Copy, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Minutes on two CPU cores
    Smoke,
    /// All of it
    Paper,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Arguments::command().debug_assert();
    }
}
