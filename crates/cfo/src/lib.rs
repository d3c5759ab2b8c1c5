//! Learn the continuous-time dynamics of PDEs and ODEs by flow matching on temporal splines.
//!
//! The way of the data: a [`Trajectories`] is scaled and thinned into [`TrainingData`]; [`training_step`] appends the
//! drawing of a batch from its splines, the network and the optimiser to one graph; [`train`] runs it; a checkpoint keeps it; a [`Rollout`]
//! integrates the learned field to any time; [`evaluate`] compares it with the truth.

mod alignment;
mod checkpoint;
mod error;
mod evaluate;
mod method;
mod metrics;
mod model;
pub mod objective;
pub mod operator;
pub mod paper;
mod partition;
mod profile;
mod proposal;
pub mod recipe;
mod rollout;
mod scaling;
mod selection;
mod smoothing;
mod survey;
mod train;
mod trained;
mod training_data;
mod trajectories;

pub use alignment::Alignment;
pub use checkpoint::{Checkpoints, Course, State, write_atomically};
pub use error::{CfoError, Result};
pub use evaluate::{RelativeL2, Report, TimeError, Worst};
pub use metrics::{Bands, Metrics};
pub use model::Model;
pub use objective::ObjectiveConfig;
pub use operator::{
    Dit as DitConfig, Fno as FnoConfig, Mlp as MlpConfig, MlpActivation, Operator, OperatorConfig,
    OperatorInputs, Padding, Setting, Unet as UnetConfig, parameter_count,
};
pub use partition::Portions;
pub use profile::Profile;
pub use proposal::{Machine, Proposal};
pub use recipe::{DataConfig, EvaluateConfig, NoiseConfig, PathConfig, Recipe, TrainConfig};
pub use rollout::{Budget, Divergence, Halt, Prediction, Request, Rollout, Solver, Watch};
pub use scaling::{Normalize, Scaling};
pub use smoothing::{Denoiser, RemovedNoise, Smoothing};
pub use train::sampler;
pub use train::{Ending, Observer, Prepared, Reply, StepReport, Training, WallTime};
pub use trained::{Loader, Solution, Trained};
pub use training_data::TrainingData;
pub use trajectories::{Part, Trajectories, Trajectories as TrajectorySet};

/// The README's example, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use {cfo_data as data, cfo_numerics as numerics};

/// The engine with the devices that it runs on.
pub mod engine {
    pub use cfo_device::{CudaDevice, CudaLibrary, CudaReport, Device, DeviceReport};
    pub use cfo_engine::*;
}
