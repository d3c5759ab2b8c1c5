//! Arguments of the commands around a trained operator: init, train, evaluate, predict, bench.

use std::path::PathBuf;
use std::str::FromStr;

use cfo::SolverOptions;
use clap::{Args, ValueEnum};

/// Write a recipe that fits a trajectory file, with a comment on each choice
#[derive(Debug, Args)]
pub struct Init {
    /// HDF5 or `.npz`; the layout is recognised by the content
    pub file: PathBuf,
    /// Recipe to write [default: stdout]
    #[arg(long, value_name = "RECIPE")]
    pub out: Option<PathBuf>,
    /// Replace the recipe if it exists
    #[arg(long)]
    pub force: bool,
}

/// Train an operator from a recipe
#[derive(Debug, Args)]
#[command(
    after_help = "docs/reference/recipe.md lists every key of a recipe with its type, default and meaning."
)]
pub struct Train {
    /// A recipe in TOML; every key has a default [default: what `cfo init` writes for the data; with --resume the run's own]
    pub recipe: Option<PathBuf>,
    /// Trajectory file; overrides the recipe's `data.path`
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Folder of the run [default: runs/NAME-OF-RECIPE, or runs/NAME-OF-DATA without a recipe]
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Override a key of the recipe by its path, as in `train.steps=2000`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Start from the weights of another run; its network must have the same shapes
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Continue from the run's latest checkpoint, or start if there is none
    #[arg(long)]
    pub resume: bool,
    /// Print plan, parameters, memory and data statistics without training
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// How a trained operator is integrated; the recipe sets what is not given
#[derive(Debug, Clone, Args)]
pub struct Integration {
    /// `euler`, `heun`, `rk4`, `dopri5` or `tsit5`. Alone, `heun`, `dopri5` and `tsit5` choose their steps by the recipe's tolerances
    #[arg(long)]
    pub solver: Option<String>,
    /// Exactly this many equal steps from the first to the last time of a trajectory
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// At most this many network evaluations over the horizon of the training data
    #[arg(long)]
    pub nfe: Option<usize>,
    /// Relative tolerance of an adaptive solver
    #[arg(long)]
    pub rtol: Option<f64>,
    /// Absolute tolerance of an adaptive solver, in normalised units
    #[arg(long)]
    pub atol: Option<f64>,
    /// `best`, `latest` or `step-N` [default: best, else latest]
    #[arg(long)]
    pub checkpoint: Option<String>,
    /// `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Precision: `f32`, `tf32`, `bf16`, or `same` for that of training
    #[arg(long)]
    pub precision: Option<String>,
}

impl Integration {
    /// The options of the solver.
    pub fn solver_options(&self) -> SolverOptions {
        let Self { solver, steps, nfe, rtol, atol, .. } = self.clone();
        SolverOptions { solver, steps, nfe, rtol, atol }
    }
}

/// Compare a trained operator's rollouts with trajectories
#[derive(Debug, Args)]
pub struct Evaluate {
    /// Folder of a run
    pub run: PathBuf,
    /// Trajectory file
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Part of the file to evaluate on
    #[arg(long, value_enum, default_value_t = Part::Test)]
    pub split: Part,
    #[command(flatten)]
    pub integration: Integration,
    /// Folder for the report [default: RUN/evaluation]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// A part of a trajectory file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Part {
    /// Trajectories to train on
    Train,
    /// Trajectories watched during training
    Validation,
    /// Trajectories held out for the report
    Test,
    /// Every trajectory
    All,
}

/// Integrate a trained operator from given states to given times
#[derive(Debug, Args)]
pub struct Predict {
    /// Folder of a run
    pub run: PathBuf,
    /// Trajectory file with the initial states
    #[arg(long, value_name = "FILE")]
    pub initial: PathBuf,
    /// `0,0.1,0.25` or `start:stop:count` or `@FILE` with numbers, in the data's units and any order; times before the start are
    /// integrated backward
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub times: String,
    /// Trajectory file to write: `.h5` or `.npz`
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Time of the initial states [default: the time of each in the file]
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub from: Option<f64>,
    /// Predict only from this trajectory of the file; may be repeated
    #[arg(long, value_name = "I", conflicts_with = "split")]
    pub trajectory: Vec<usize>,
    /// Predict only from this part of the file
    #[arg(long, value_enum, value_name = "S")]
    pub split: Option<Part>,
    /// Snapshot to predict from: `first`, `last` or its number, counted from 0
    #[arg(long, value_name = "N", default_value = "first")]
    pub frame: Frame,
    /// PDE parameters to predict with instead of the file's, as in `nu=0.05,length=64`
    #[arg(long, value_name = "NAME=VALUE,...", allow_hyphen_values = true)]
    pub parameters: Option<String>,
    #[command(flatten)]
    pub integration: Integration,
    /// Replace the output file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// A snapshot of a trajectory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// Counted from 0
    Number(usize),
    /// The last one
    Last,
}

impl FromStr for Frame {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "first" => Ok(Self::Number(0)),
            "last" => Ok(Self::Last),
            number => number
                .parse()
                .map(Self::Number)
                .map_err(|_| "neither `first`, `last` nor a whole number from 0 on".into()),
        }
    }
}

/// Time the parts of training and inference
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// What to time
    #[arg(value_enum)]
    pub what: Work,
    /// One of the paper's networks, with the recipe (`recipes/`) and the trajectories of its system
    #[arg(long, value_enum, default_value_t = Network::Mlp)]
    pub model: Network,
    /// `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// `f32`, `tf32` or `bf16` [default: the recipe's]
    #[arg(long)]
    pub precision: Option<String>,
    /// Samples per step [default: the recipe's]
    #[arg(long)]
    pub batch: Option<usize>,
    /// Points along each side [default: the paper's]
    #[arg(long)]
    pub grid: Option<usize>,
    /// Override a key of the network's recipe by its path, as in `train.ema=0.999`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Training trajectories held in memory
    #[arg(long, default_value_t = 16)]
    pub trajectories: usize,
    /// For `rollout`: time whole rollouts with this number of network evaluations instead of one step
    #[arg(long)]
    pub nfe: Option<usize>,
    /// For `train-step`: stream each batch's snapshots from host memory, ahead of the step
    #[arg(long)]
    pub stream: bool,
    /// Timed repetitions
    #[arg(long, default_value_t = 30)]
    pub repetitions: usize,
    /// Print one JSON document alone on stdout
    #[arg(long)]
    pub json: bool,
}

/// A part of training or inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Work {
    /// Draw a batch, forward pass, backward pass, Adam update
    TrainStep,
    /// The network alone
    Forward,
    /// One RK4 step of every trajectory of the batch
    Rollout,
    /// Draw a batch
    Sampler,
    /// The time that the training loop and the sampler add to the bare step
    Overhead,
    /// A sum over all ranks by MPI, for messages of several sizes
    AllReduce,
}

/// One of the paper's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Lorenz
    Mlp,
    /// Burgers
    Unet1d,
    /// Burgers
    Fno,
    /// Diffusion-reaction
    Unet2d,
    /// Diffusion-reaction
    Dit,
    /// Each in turn; on the CPU with smaller batches and grids
    All,
}
