//! Arguments of the commands around a trained operator: init, train, evaluate, predict, bench.

use std::path::PathBuf;
use std::str::FromStr;

use cfo::SolverOptions;
use clap::{Args, ValueEnum};

/// Write a recipe for a trajectory file, with a reason for each choice
#[derive(Debug, Args)]
pub struct Init {
    /// Trajectory file: HDF5 or `.npz`; the layout is recognised by the content
    pub file: PathBuf,
    /// Recipe to write [default: stdout]
    #[arg(long, value_name = "RECIPE")]
    pub out: Option<PathBuf>,
    /// Replace the recipe if it exists
    #[arg(long)]
    pub force: bool,
}

/// Train a network with a recipe
#[derive(Debug, Args)]
#[command(
    after_help = "docs/reference/recipe.md lists every key of a recipe with its type, default and meaning."
)]
pub struct Train {
    /// Recipe in TOML; keys that are left out have defaults [default: what `cfo init` writes for the data; with --resume that of the run]
    pub recipe: Option<PathBuf>,
    /// Trajectory file; overrides the recipe's `data.path`
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Folder of the run [default: runs/NAME-OF-RECIPE, or runs/NAME-OF-DATA without a recipe]
    #[arg(long, value_name = "RUN")]
    pub out: Option<PathBuf>,
    /// Device: `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Override a key of the recipe, as in `train.steps=2000`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Start from the weights of another run; its network must have the same shapes
    #[arg(long, value_name = "RUN")]
    pub from: Option<PathBuf>,
    /// Continue from the run's latest checkpoint, or start if there is none
    #[arg(long)]
    pub resume: bool,
    /// Print the plan, the parameters, the memory and statistics of the data, without training
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// How a trained network is integrated; the recipe of the run sets the rest
#[derive(Debug, Clone, Args)]
pub struct IntegrationOptions {
    /// Solver: `euler`, `heun`, `rk4`, `dopri5` or `tsit5`. Without `--steps` and `--nfe`, `heun`, `dopri5` and `tsit5` choose their
    /// steps by the tolerances
    #[arg(long)]
    pub solver: Option<String>,
    /// Number of equal steps from the first to the last time of a trajectory
    #[arg(long, value_name = "N")]
    pub steps: Option<usize>,
    /// Largest number of network evaluations over the horizon of the training data
    #[arg(long)]
    pub nfe: Option<usize>,
    /// Relative tolerance of an adaptive solver
    #[arg(long)]
    pub rtol: Option<f64>,
    /// Absolute tolerance of an adaptive solver, in normalised units
    #[arg(long)]
    pub atol: Option<f64>,
    /// Checkpoint: `best`, `latest` or `step-N` [default: best, else latest]
    #[arg(long)]
    pub checkpoint: Option<String>,
    /// Device: `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Precision: `f32`, `tf32`, `bf16`, or `same` for the precision of training
    #[arg(long)]
    pub precision: Option<String>,
}

impl IntegrationOptions {
    /// Returns the options of the solver.
    pub fn solver_options(&self) -> SolverOptions {
        let Self { solver, steps, nfe, rtol, atol, .. } = self.clone();
        SolverOptions { solver, steps, nfe, rtol, atol }
    }
}

/// Compare rollouts of a trained network with trajectories, and write a report
#[derive(Debug, Args)]
pub struct Evaluate {
    /// Folder of a run
    pub run: PathBuf,
    /// Trajectory file
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// Part of the file to evaluate on
    #[arg(long, value_enum, default_value_t = SplitPart::Test)]
    pub split: SplitPart,
    #[command(flatten)]
    pub integration: IntegrationOptions,
    /// Folder for the report [default: RUN/evaluation]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// A part of a trajectory file.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum SplitPart {
    /// Training trajectories
    Train,
    /// Validation trajectories, on which the `best` checkpoint is chosen
    Validation,
    /// Test trajectories, which training does not use
    Test,
    /// Every trajectory
    All,
}

/// Integrate a trained network from given states to given times
#[derive(Debug, Args)]
pub struct Predict {
    /// Folder of a run
    pub run: PathBuf,
    /// Trajectory file with the initial states
    #[arg(long, value_name = "FILE")]
    pub initial: PathBuf,
    /// Times, as `0,0.1,0.25`, `start:stop:count` or `@FILE` with numbers, in the data's unit and any order; times before the start are
    /// reached by backward integration
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub times: String,
    /// Trajectory file to write: `.h5` or `.npz`
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Time of the initial states [default: their times in the file]
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    pub from: Option<f64>,
    /// Predict only from this trajectory of the file; may be repeated
    #[arg(long, value_name = "I", conflicts_with = "split")]
    pub trajectory: Vec<usize>,
    /// Predict only from this part of the file
    #[arg(long, value_enum, value_name = "S")]
    pub split: Option<SplitPart>,
    /// Snapshot to predict from: `first`, `last` or its number, counted from 0
    #[arg(long, value_name = "N", default_value = "first")]
    pub frame: Frame,
    /// PDE parameters to use instead of those in the file, as in `nu=0.05,length=64`
    #[arg(long, value_name = "NAME=VALUE,...", allow_hyphen_values = true)]
    pub parameters: Option<String>,
    /// File with controls to use instead of those in the file: `controls` and `control_times`, in HDF5 or `.npz`, for all trajectories or
    /// one row for each
    #[arg(long, value_name = "FILE")]
    pub controls: Option<PathBuf>,
    #[command(flatten)]
    pub integration: IntegrationOptions,
    /// Replace the output file if it exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON document, and nothing else, to stdout
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
                .map_err(|_| "needed: `first`, `last` or a whole number, 0 or more".into()),
        }
    }
}

/// Measure the speed of the parts of training and inference
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// Part to measure
    #[arg(value_enum)]
    pub what: BenchWork,
    /// Network of the paper, with the recipe (`recipes/`) and the trajectories of its system
    #[arg(long, value_enum, default_value_t = BenchNetwork::Mlp)]
    pub model: BenchNetwork,
    /// Device: `auto`, `cpu` or `cuda:N`
    #[arg(long, default_value = "auto")]
    pub device: String,
    /// Precision: `f32`, `tf32` or `bf16` [default: the recipe's]
    #[arg(long)]
    pub precision: Option<String>,
    /// Samples per step [default: the recipe's]
    #[arg(long)]
    pub batch: Option<usize>,
    /// Points along each side of the grid [default: the paper's]
    #[arg(long)]
    pub grid: Option<usize>,
    /// Override a key of the recipe, as in `train.ema=0.999`; may be repeated
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Number of training trajectories in memory
    #[arg(long, default_value_t = 16)]
    pub trajectories: usize,
    /// For `rollout`: measure whole rollouts with this number of network evaluations instead of one step
    #[arg(long)]
    pub nfe: Option<usize>,
    /// For `train-step`: load the snapshots of each batch from host memory, ahead of the step
    #[arg(long)]
    pub stream: bool,
    /// Number of measured repetitions
    #[arg(long, default_value_t = 30)]
    pub repetitions: usize,
    /// Print one JSON document, and nothing else, to stdout
    #[arg(long)]
    pub json: bool,
}

/// A part of training or inference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchWork {
    /// A training step: sampling of a batch, forward pass, backward pass, Adam update
    TrainStep,
    /// The forward pass of the network
    Forward,
    /// One RK4 step for every trajectory of the batch
    Rollout,
    /// Sampling of a batch
    Sampler,
    /// The time that the training loop and the sampler add to the training step
    Overhead,
    /// An MPI sum over all ranks, for messages of several sizes
    AllReduce,
}

/// One of the paper's networks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchNetwork {
    /// MLP on Lorenz
    Mlp,
    /// U-Net on Burgers
    Unet1d,
    /// FNO on Burgers
    Fno,
    /// U-Net on diffusion-reaction
    Unet2d,
    /// DiT on diffusion-reaction
    Dit,
    /// Each in turn; on the CPU with smaller batches and grids
    All,
}
