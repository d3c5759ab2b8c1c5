//! Options of `cfo reproduce`.

use std::path::PathBuf;
use std::str::FromStr;

use cfo::paper::Edition;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::console::{Console, Silent};

/// Repeat an experiment of the paper and write a report with the paper's numbers beside the measured ones
#[derive(Clone, Debug, Args)]
pub struct Reproduce {
    /// Experiment to run
    pub target: Experiment,
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
    pub share: Option<TrainingShare>,
    /// Device: `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Seed of the data and of the first training run
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
    /// Whether `all` makes this report: `all` then prints its contents, and systems that it does not have are not an error.
    #[arg(skip)]
    pub part_of_all: bool,
    /// Prints results and shows progress; by default nothing is shown.
    #[arg(skip = &Silent as &dyn Console)]
    pub console: &'static dyn Console,
}

impl Reproduce {
    /// Returns the recipes to train with.
    pub fn editions(&self) -> Editions {
        let usual = if matches!(self.target, Experiment::Table1) { Editions::Both } else { Editions::Paper };
        self.recipe.unwrap_or(usual)
    }

    /// Returns the seeds of the training runs.
    pub fn training_seeds(&self) -> Vec<u64> {
        let usual = if matches!(self.target, Experiment::Quickstart) { 3 } else { 1 };
        (0..self.seeds.unwrap_or(usual)).map(|k| self.seed.wrapping_add(k)).collect()
    }
}

/// Experiments of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// Velocity error of linear and quintic splines on Lorenz, and its order of convergence
    SplineOrder,
    /// Errors of splines and stencils at keep rates 100, 50 and 25 %, and which one is recommended
    SplineChoice,
    /// The paper's main claim in minutes, on Lorenz: CFO on a quarter of the times and an autoregressive model on all times
    Quickstart,
    /// Rollout errors of CFO on four systems at keep rates 100, 50 and 25 %, and of the autoregressive model
    Table1,
    /// Error over the number of network evaluations, for Euler, Heun and RK4
    Nfe,
    /// Error over the amplitude of the noise around the spline
    Noise,
    /// Burgers' equation backward in time, with noise in the initial snapshot
    Reverse,
    /// Training on the first half of the horizon, rollouts over the whole horizon
    Extrapolation,
    /// Errors of CFO with each network that the paper compares
    Backbones,
    /// Times of training steps and rollouts
    Runtime,
    /// Errors and seconds per batch of CFO, neural ODE, PDE-Refiner and conditional flow matching
    Baselines,
    /// Errors of CFO on wavelet coefficients and on the states themselves
    Latent,
    /// Errors and training times on the Kuramoto-Sivashinsky equation
    Ks,
    /// Errors of CFO at keep rates 100, 50, 25 and 12 %, with splines and with refined paths, beside autoregressive models
    Sparse,
    /// Single trajectories of CFO and other methods side by side, and their training losses
    Figures,
    /// Every table and figure of the paper on one page; an interrupted command can be repeated and continues
    All,
}

impl Experiment {
    /// Whether its networks can be trained with several seeds.
    pub(crate) fn has_seeds(self) -> bool {
        !matches!(self, Self::SplineOrder | Self::Reverse | Self::Runtime | Self::Figures)
    }
}

/// The recipes to train with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Editions {
    /// The paper's hyperparameters; keys that the paper does not define are our choice
    Paper,
    /// The paper's data and network, at most its steps and batch; all other keys are our choice
    Ours,
    /// Both, side by side
    Both,
}

impl Editions {
    /// Returns the editions.
    pub fn list(self) -> &'static [Edition] {
        match self {
            Self::Paper => &[Edition::Paper],
            Self::Ours => &[Edition::Ours],
            Self::Both => &[Edition::Paper, Edition::Ours],
        }
    }
}

/// The scale of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Reduced: minutes on two CPU cores
    Smoke,
    /// The paper's data, networks and training steps
    Paper,
}

/// One of several equal shares of the training runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainingShare {
    index: usize,
    count: usize,
}

impl TrainingShare {
    /// Whether the training run at this position belongs to the share.
    pub fn includes(self, position: usize) -> bool {
        position % self.count == self.index - 1
    }
}

impl FromStr for TrainingShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed {
            Some((index, count)) if 1 <= index && index <= count => Ok(Self { index, count }),
            _ => Err("needed: I/N with 1 <= I <= N, as in `2/6`".into()),
        }
    }
}

/// The choices of an option.
pub trait ChoiceName: ValueEnum {
    /// Returns the name on the command line.
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl<T: ValueEnum> ChoiceName for T {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_take_every_training_once() {
        let shares: Vec<TrainingShare> = (1..=3).map(|i| format!("{i}/3").parse().unwrap()).collect();
        for position in 0..10 {
            assert_eq!(shares.iter().filter(|share| share.includes(position)).count(), 1, "{position}");
        }
    }

    #[test]
    fn impossible_shares_are_refused() {
        for text in ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"] {
            assert!(text.parse::<TrainingShare>().is_err(), "{text}");
        }
    }
}
