//! `cfo reproduce` as typed.

use std::path::PathBuf;
use std::str::FromStr;

use cfo::paper::Edition;
use clap::{Args, ValueEnum};
use serde::Serialize;

/// Repeat one of the paper's experiments: its table with the paper's figures beside ours
#[derive(Clone, Debug, Args)]
pub struct Reproduce {
    /// Which experiment
    pub target: Target,
    /// How much of the paper's budget to spend
    #[arg(long, value_enum, default_value_t = Scale::Smoke)]
    pub scale: Scale,
    /// Folder for the report; an existing report is replaced [default: runs/TARGET]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Folder for the training runs, shared by all experiments: finished runs are reused, interrupted ones continue
    #[arg(long, value_name = "DIR", default_value = "runs/trainings")]
    pub runs: PathBuf,
    /// The paper's recipe, ours, or both [default: both for table1, else the paper's]
    #[arg(long, value_enum)]
    pub recipe: Option<Editions>,
    /// Number of training runs on the same data, with consecutive seeds from `--seed`; the report gives mean and deviation
    /// over the runs [default: 3 for quickstart, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub seeds: Option<u64>,
    /// Only list the networks that would be trained, with their recipes
    #[arg(long)]
    pub dry_run: bool,
    /// Only this system of the experiment; may be repeated
    #[arg(long, value_name = "SYSTEM")]
    pub system: Vec<String>,
    /// Override a key of every recipe by its path, as in `train.steps=2000`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Only do the I-th of N equal shares of the training runs, and write no report; for several processes with the same `--runs`
    #[arg(long, value_name = "I/N")]
    pub share: Option<Share>,
    /// `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Seed of the data and of the first training run
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
    /// Whether `all` makes this report: `all` then prints its contents, and systems that it does not have are not an error.
    #[arg(skip)]
    pub part_of_all: bool,
}

impl Reproduce {
    /// The recipes to train with.
    pub fn editions(&self) -> Editions {
        let usual = if matches!(self.target, Target::Table1) { Editions::Both } else { Editions::Paper };
        self.recipe.unwrap_or(usual)
    }

    /// Seeds of the training runs.
    pub fn training_seeds(&self) -> Vec<u64> {
        let usual = if matches!(self.target, Target::Quickstart) { 3 } else { 1 };
        (0..self.seeds.unwrap_or(usual)).map(|k| self.seed.wrapping_add(k)).collect()
    }
}

/// Experiments of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Velocity error of linear and quintic splines on Lorenz, with its order
    SplineOrder,
    /// Errors of splines and stencils at keep rates 100, 50 and 25 %, and which to choose
    SplineChoice,
    /// The paper's main claim in minutes, on Lorenz: CFO trained on a quarter of the times against next-step prediction trained on all
    Quickstart,
    /// Rollout errors on four systems at keep rates 100, 50 and 25 %, beside the autoregressive baseline
    Table1,
    /// Error against network evaluations, for Euler, Heun and RK4
    Nfe,
    /// Error against the amplitude of the path's noise
    Noise,
    /// Burgers' equation backward in time, with noise in the last snapshot
    Reverse,
    /// Train on the first half of the horizon, roll out over all of it
    Extrapolation,
    /// CFO with each of the networks that the paper compares
    Backbones,
    /// Time of training steps and of rollouts
    Runtime,
    /// Other methods beside CFO, with seconds a batch: neural ODE, PDE-Refiner, conditional flow matching
    Baselines,
    /// CFO in the coefficients of wavelets, beside CFO on the states
    Latent,
    /// Errors and training times on the Kuramoto-Sivashinsky equation
    Ks,
    /// CFO and other methods side by side on single trajectories, and their training losses
    Figures,
    /// Every table and figure of the paper on one page; an interrupted run continues
    All,
}

impl Target {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::SplineOrder => "spline-order",
            Self::SplineChoice => "spline-choice",
            Self::Quickstart => "quickstart",
            Self::Table1 => "table1",
            Self::Nfe => "nfe",
            Self::Noise => "noise",
            Self::Reverse => "reverse",
            Self::Extrapolation => "extrapolation",
            Self::Backbones => "backbones",
            Self::Runtime => "runtime",
            Self::Baselines => "baselines",
            Self::Latent => "latent",
            Self::Ks => "ks",
            Self::Figures => "figures",
            Self::All => "all",
        }
    }
}

/// Which recipes to train with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Editions {
    /// The paper's
    Paper,
    /// Ours: the paper's data and network, at most its steps and batch; all else is our choice
    Ours,
    /// Both, side by side
    Both,
}

impl Editions {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Ours => "ours",
            Self::Both => "both",
        }
    }

    /// The editions that it stands for.
    pub fn list(self) -> &'static [Edition] {
        match self {
            Self::Paper => &[Edition::Paper],
            Self::Ours => &[Edition::Ours],
            Self::Both => &[Edition::Paper, Edition::Ours],
        }
    }
}

/// How much of the paper's budget to spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Minutes on two CPU cores
    Smoke,
    /// All of it
    Paper,
}

impl Scale {
    /// As typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Smoke => "smoke",
            Self::Paper => "paper",
        }
    }
}

/// One of several equal shares of the training runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// From 1.
    index: usize,
    count: usize,
}

impl Share {
    /// Whether the training run at this position belongs to the share.
    pub fn includes(self, position: usize) -> bool {
        position % self.count == self.index - 1
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((index, count)) if 1 <= index && index <= count => Ok(Self { index, count }),
            _ => Err("not of the form I/N with 1 <= I <= N, as in `2/6`".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_every_training_once() {
        let shares: Vec<Share> = (1..=3).map(|i| format!("{i}/3").parse().unwrap()).collect();
        for position in 0..10 {
            assert_eq!(shares.iter().filter(|share| share.includes(position)).count(), 1, "{position}");
        }
    }

    #[test]
    fn impossible_shares_are_refused() {
        for text in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
