//! Arguments of `simulate`: the options that all systems share, and those of each system.
//!
//! The defaults are those of the simulators, which are the paper's.

use std::path::PathBuf;

use cfo_data::simulate;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

/// Simulate a system and write a trajectory file
#[derive(Debug, Args)]
pub struct Simulate {
    /// System to simulate.
    #[command(subcommand)]
    pub system: SimulatedSystem,
}

/// The systems.
#[derive(Debug, Subcommand)]
pub enum SimulatedSystem {
    Lorenz(LorenzOptions),
    Burgers(BurgersOptions),
    DiffusionReaction(DiffusionReactionOptions),
    ShallowWater(ShallowWaterOptions),
    KuramotoSivashinsky(KuramotoSivashinskyOptions),
    GrayScott(GrayScottOptions),
}

/// Options of every system: how much to simulate and where to write it.
#[derive(Debug, Args)]
pub struct SimulationOutput {
    /// Trajectory file to write: HDF5, or a NumPy archive if the name ends with `.npz`
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Number of trajectories [default: the paper's]
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Seed; trajectory i does not depend on the number of samples or threads
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Layout of the file
    #[arg(long, value_enum, default_value_t = SimulationLayout::Cfo)]
    pub layout: SimulationLayout,
    /// Numbers of trajectories for training, validation and test [default: the paper's proportions]
    #[arg(long, value_name = "TRAIN,VALIDATION,TEST", value_parser = counts)]
    pub split: Option<[usize; 3]>,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// Layouts that `--layout` accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SimulationLayout {
    /// The layout of this program
    Cfo,
    /// The layout of PDEBench
    Pdebench,
}

/// Parses three counts separated by commas.
fn counts(text: &str) -> Result<[usize; 3], String> {
    let counts: Result<Vec<usize>, _> = text.split(',').map(|part| part.trim().parse()).collect();
    let three = counts.ok().and_then(|counts| counts.try_into().ok());
    three.ok_or_else(|| "needed: three whole numbers with commas, as in `900,50,50`".to_owned())
}

/// The Lorenz system: a chaotic ODE of three variables
#[derive(Debug, Args, Serialize)]
pub struct LorenzOptions {
    #[command(flatten)]
    #[serde(skip)]
    pub output: SimulationOutput,
    /// Number of stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::Lorenz::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::Lorenz::default().horizon)]
    pub horizon: f64,
    /// Half the side of the cube of initial states
    #[arg(long, value_name = "SIZE", default_value_t = simulate::Lorenz::default().spread)]
    pub spread: f64,
}

/// Burgers' equation: one periodic space axis, smooth random initial states
#[derive(Debug, Args, Serialize)]
pub struct BurgersOptions {
    #[command(flatten)]
    #[serde(skip)]
    pub output: SimulationOutput,
    /// Number of stored points
    #[arg(long, default_value_t = simulate::Burgers::default().grid)]
    pub grid: usize,
    /// Number of stored times, equally spaced, both ends included
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

/// Diffusion and reaction of two substances on a square, as in PDEBench
#[derive(Debug, Args, Serialize)]
pub struct DiffusionReactionOptions {
    #[command(flatten)]
    #[serde(skip)]
    pub output: SimulationOutput,
    /// Number of cells along each side
    #[arg(long, default_value_t = simulate::DiffusionReaction::default().grid)]
    pub grid: usize,
    /// Number of stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::DiffusionReaction::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::DiffusionReaction::default().horizon)]
    pub horizon: f64,
    /// Relative tolerance of the solver: 0.001 as in PDEBench, 0.000001 for an error of about 3e-8
    #[arg(long, default_value_t = simulate::DiffusionReaction::default().tolerance)]
    pub tolerance: f64,
}

/// Shallow-water equations on a square after a dam break, as in PDEBench
#[derive(Debug, Args, Serialize)]
pub struct ShallowWaterOptions {
    #[command(flatten)]
    #[serde(skip)]
    pub output: SimulationOutput,
    /// Initial states: `dam-break` as in PDEBench (only 81 are distinct), or `varied` (all are distinct)
    #[arg(long, default_value_t = simulate::Variant::default())]
    pub variant: simulate::Variant,
    /// Number of cells along each side
    #[arg(long, default_value_t = simulate::ShallowWater::default().grid)]
    pub grid: usize,
    /// Number of stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::ShallowWater::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::ShallowWater::default().horizon)]
    pub horizon: f64,
}

/// The Kuramoto-Sivashinsky equation: one periodic space axis, chaotic
#[derive(Debug, Args, Serialize)]
pub struct KuramotoSivashinskyOptions {
    #[command(flatten)]
    #[serde(skip)]
    pub output: SimulationOutput,
    /// Number of stored points
    #[arg(long, default_value_t = simulate::KuramotoSivashinsky::default().grid)]
    pub grid: usize,
    /// Number of stored times
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

/// The Gray-Scott reaction of two substances in a periodic box with one to three space axes
#[derive(Debug, Args, Serialize)]
pub struct GrayScottOptions {
    #[command(flatten)]
    #[serde(skip)]
    pub output: SimulationOutput,
    /// Number of space axes, 1 to 3
    #[arg(long, default_value_t = simulate::GrayScott::default().dimensions)]
    pub dimensions: usize,
    /// Number of points along each axis
    #[arg(long, default_value_t = simulate::GrayScott::default().grid)]
    pub grid: usize,
    /// Number of stored times, equally spaced, both ends included
    #[arg(long, default_value_t = simulate::GrayScott::default().frames)]
    pub frames: usize,
    /// Last time
    #[arg(long, value_name = "TIME", default_value_t = simulate::GrayScott::default().horizon)]
    pub horizon: f64,
    /// Rate at which substrate is added
    #[arg(long, default_value_t = simulate::GrayScott::default().feed)]
    pub feed: f64,
    /// Rate at which catalyst is removed, beside `feed`
    #[arg(long, default_value_t = simulate::GrayScott::default().kill)]
    pub kill: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_is_three_counts() {
        assert_eq!(counts("900,50,50"), Ok([900, 50, 50]));
        for text in ["", "1,2", "1,2,3,4", "a,b,c", "1,-2,3", "0.9,0.05,0.05"] {
            assert!(counts(text).is_err(), "{text}");
        }
    }
}
