//! `cfo simulate` as typed: the options that all systems share, and those of each system.
//!
//! Defaults are taken from the simulators, so that they are written once; they are the paper's.

use std::path::PathBuf;
use std::str::FromStr;

use cfo_data::simulate;
use clap::{Args, Subcommand, ValueEnum};

/// Simulate one of the paper's systems and write a trajectory file
#[derive(Debug, Args)]
pub struct Simulate {
    /// Which system.
    #[command(subcommand)]
    pub system: System,
}

/// The systems.
#[derive(Debug, Subcommand)]
pub enum System {
    Lorenz(Lorenz),
    Burgers(Burgers),
    DiffusionReaction(DiffusionReaction),
    ShallowWater(ShallowWater),
    KuramotoSivashinsky(KuramotoSivashinsky),
}

/// Options of every system: how much to simulate and where to write it.
#[derive(Debug, Args)]
pub struct Output {
    /// File to write: HDF5, or a NumPy archive if the name ends in `.npz`
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Number of trajectories [default: the paper's]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Seed; trajectory i of a seed does not depend on the number of samples or threads
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Layout of the file
    #[arg(long, value_enum, default_value_t = Layout::Cfo)]
    pub layout: Layout,
    /// Numbers of trajectories to train, to validate and to test on [default: in the paper's proportions]
    #[arg(long, value_name = "TRAIN,VALIDATION,TEST")]
    pub split: Option<SplitCounts>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// Layouts that `--layout` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// Our own
    Cfo,
    /// What PDEBench's loaders read
    Pdebench,
}

/// Three counts separated by commas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitCounts {
    pub train: usize,
    pub validation: usize,
    pub test: usize,
}

impl FromStr for SplitCounts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let counts: Result<Vec<usize>, _> = text.split(',').map(|part| part.trim().parse()).collect();
        match counts.as_deref() {
            Ok(&[train, validation, test]) => Ok(Self { train, validation, test }),
            _ => Err("needed: three whole numbers separated by commas, as in `900,50,50`".to_owned()),
        }
    }
}

impl SplitCounts {
    /// The sum of the three; `None` if it overflows.
    pub fn total(self) -> Option<usize> {
        self.train.checked_add(self.validation)?.checked_add(self.test)
    }
}

/// The Lorenz system: a chaotic ODE of three variables
#[derive(Debug, Args)]
pub struct Lorenz {
    #[command(flatten)]
    pub output: Output,
    /// Stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::Lorenz::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::Lorenz::default().horizon)]
    pub horizon: f64,
    /// Half the side of the cube in which trajectories start
    #[arg(long, value_name = "SIZE", default_value_t = simulate::Lorenz::default().spread)]
    pub spread: f64,
}

/// Burgers' equation: one periodic space axis, random smooth initial states
#[derive(Debug, Args)]
pub struct Burgers {
    #[command(flatten)]
    pub output: Output,
    /// Stored points
    #[arg(long, default_value_t = simulate::Burgers::default().grid)]
    pub grid: usize,
    /// Stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::Burgers::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::Burgers::default().horizon)]
    pub horizon: f64,
    /// Diffusion coefficient
    #[arg(long, default_value_t = simulate::Burgers::default().viscosity)]
    pub viscosity: f64,
    /// Amplitude of the random initial states: 625 as in the public code, 25 as in the published formula
    #[arg(long, default_value_t = simulate::Burgers::default().field.sigma)]
    pub sigma: f64,
}

/// Diffusion and reaction of two substances on a square, as PDEBench computes it
#[derive(Debug, Args)]
pub struct DiffusionReaction {
    #[command(flatten)]
    pub output: Output,
    /// Cells along each side
    #[arg(long, default_value_t = simulate::DiffusionReaction::default().grid)]
    pub grid: usize,
    /// Stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::DiffusionReaction::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::DiffusionReaction::default().horizon)]
    pub horizon: f64,
    /// Relative tolerance of a step: 0.001 as in PDEBench, 0.000001 for an error of about 3e-8
    #[arg(long, default_value_t = simulate::DiffusionReaction::default().tolerance)]
    pub tolerance: f64,
}

/// Shallow-water equations on a square after a dam break, as PDEBench computes it
#[derive(Debug, Args)]
pub struct ShallowWater {
    #[command(flatten)]
    pub output: Output,
    /// Initial states: `dam-break` as in PDEBench, which has only 81 distinct ones, or `varied`, all distinct
    #[arg(long, default_value_t = simulate::Variant::default())]
    pub variant: simulate::Variant,
    /// Cells along each side
    #[arg(long, default_value_t = simulate::ShallowWater::default().grid)]
    pub grid: usize,
    /// Stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::ShallowWater::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::ShallowWater::default().horizon)]
    pub horizon: f64,
}

/// The Kuramoto-Sivashinsky equation: one periodic space axis, chaotic
#[derive(Debug, Args)]
pub struct KuramotoSivashinsky {
    #[command(flatten)]
    pub output: Output,
    /// Stored points
    #[arg(long, default_value_t = simulate::KuramotoSivashinsky::default().grid)]
    pub grid: usize,
    /// Stored times
    #[arg(long, default_value_t = simulate::KuramotoSivashinsky::default().frames)]
    pub frames: usize,
    /// Mean time from the first to the last stored frame
    #[arg(long, value_name = "TIME", default_value_t = simulate::KuramotoSivashinsky::default().horizon)]
    pub horizon: f64,
    /// Mean time before the first stored frame
    #[arg(long, value_name = "TIME", default_value_t = simulate::KuramotoSivashinsky::default().spin_up)]
    pub spin_up: f64,
    /// Coefficient of the fourth derivative
    #[arg(long, default_value_t = simulate::KuramotoSivashinsky::default().viscosity)]
    pub viscosity: f64,
    /// Mean length of the domain
    #[arg(long, default_value_t = simulate::KuramotoSivashinsky::default().length)]
    pub length: f64,
    /// Largest relative deviation of a trajectory's length from the mean; 0 fixes it
    #[arg(long, value_name = "SHARE", default_value_t = simulate::KuramotoSivashinsky::default().length_jitter)]
    pub length_jitter: f64,
    /// Largest relative deviation of a trajectory's time step from the mean; 0 fixes it
    #[arg(long, value_name = "SHARE", default_value_t = simulate::KuramotoSivashinsky::default().time_jitter)]
    pub time_jitter: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_three_counts() {
        let counts = SplitCounts { train: 900, validation: 50, test: 50 };
        assert_eq!("900,50,50".parse(), Ok(counts));
        assert_eq!(counts.total(), Some(1000));
        for text in ["", "1,2", "1,2,3,4", "a,b,c", "1,-2,3", "0.9,0.05,0.05"] {
            assert!(text.parse::<SplitCounts>().is_err(), "{text}");
        }
    }
}
