//! Learn the continuous-time dynamics of PDEs and ODEs by flow matching on temporal splines.
//!
//! The way of the data: a [`TrajectorySet`] is scaled and thinned into [`TrainingData`]; [`training_step`] appends the
//! drawing of a batch from its splines, the network and the optimiser to one graph; [`train`] runs it; a checkpoint keeps it; a [`Rollout`]
//! integrates the learned field to any time; [`evaluate`] compares it with the truth.

mod alignment;
mod checkpoint;
mod error;
mod evaluate;
mod metrics;
mod model;
mod objective;
mod operator;
pub mod paper;
mod partition;
mod profile;
mod proposal;
mod recipe;
mod reference;
mod rollout;
mod scaling;
mod selection;
mod smoothing;
mod survey;
mod train;
mod training_data;
mod trajectories;

pub use alignment::Alignment;
pub use checkpoint::{Checkpoints, Course, State, write_atomically};
pub use error::{CfoError, Result};
pub use evaluate::{Evaluation, RelativeL2, Report, TimeError, Worst, evaluate};
pub use metrics::{Bands, Metrics};
pub use model::Model;
pub use objective::{sampler, training_step};
pub use operator::{
    DitConfig, FnoConfig, MlpActivation, MlpConfig, Operator, OperatorConfig, OperatorInputs, Padding,
    Setting, UnetConfig, parameter_count,
};
pub use partition::Portions;
pub use profile::Profile;
pub use proposal::{Machine, Proposal};
pub use recipe::{DataConfig, EvaluateConfig, NoiseConfig, ObjectiveConfig, PathConfig, Recipe, TrainConfig};
pub use rollout::{Budget, Divergence, Halt, Prediction, Request, Rollout, Solver};
pub use scaling::{Normalize, Scaling};
pub use smoothing::{Denoiser, RemovedNoise, Smoothing};
pub use train::{Ending, Observer, Reply, Session, StepReport, Trained, WallTime, train};
pub use training_data::TrainingData;
pub use trajectories::TrajectorySet;

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
