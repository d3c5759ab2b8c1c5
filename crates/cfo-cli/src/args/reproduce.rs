//! `cfo reproduce` as typed.

use std::path::PathBuf;

use cfo_paper::{Editions, Scale, Share, Target};
use clap::Args;

/// Repeat an experiment of the paper and write a report with the paper's numbers beside the measured ones
#[derive(Clone, Debug, Args)]
pub struct Reproduce {
    /// Experiment to run
    pub target: Target,
    /// Scale of the experiment
    #[arg(long, value_enum, default_value_t = Scale::Smoke)]
    pub scale: Scale,
    /// Folder for the report; an existing report is replaced [default: runs/TARGET]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Folder for the training runs, shared by all experiments: finished runs are reused, interrupted runs are continued
    #[arg(long, value_name = "DIR", default_value = "runs/trainings")]
    pub runs: PathBuf,
    /// Recipes to train with [default: both for table1, else paper]
    #[arg(long, value_enum)]
    pub recipe: Option<Editions>,
    /// Number of training runs on the same data, with consecutive seeds from `--seed`; the report has their mean and standard
    /// deviation [default: 3 for quickstart, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// List the networks that would be trained, with their recipes, without training
    #[arg(long)]
    pub dry_run: bool,
    /// Run only this system of the experiment; may be repeated
    #[arg(long, value_name = "SYSTEM")]
    pub system: Vec<String>,
    /// Override a key of every recipe, as in `train.steps=2000`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Do only the I-th of N equal shares of the training runs and write no report; for several processes with the same `--runs`
    #[arg(long, value_name = "I/N")]
    pub share: Option<Share>,
    /// Device: `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Seed of the data and of the first training run
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}
