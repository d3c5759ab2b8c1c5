//! Learn the continuous-time dynamics of PDEs and ODEs by flow matching on temporal splines.
//!
//! [`Trajectories`] are read, simulated or made from one's own arrays. A [`Training`] takes an [`Operator`] (the network) and an
//! [`Objective`] (what it is trained for) and makes a [`Trained`] model of them: one value that predicts, evaluates, saves and loads.
//!
//! ```no_run
//! use cfo::{Trained, Training, Trajectories, objective::FlowMatching, operator::Mlp};
//!
//! let data = Trajectories::read("own.npz")?;
//! let trained = Training::new(Mlp::default()) // any `impl Operator`
//!     .objective(FlowMatching::quintic().stencil(5)) // any `impl Objective`
//!     .steps(6000)
//!     .batch(512)
//!     .folder("runs/own")
//!     .observe(|report| println!("{} {:.2e}", report.step, report.loss)) // may stop the training
//!     .fit(&data)?;
//! println!("relative L2 error {:.2e}", trained.evaluate(data.test())?.relative_l2.mean);
//! let solution = Trained::load("runs/own")?.predict(&[2.0, 0.0], 0.0, &[0.1, 0.75, 3.0])?;
//! println!("{:?} with {} evaluations", solution.states, solution.evaluations);
//! # Ok::<(), cfo::CfoError>(())
//! ```
//!
//! Operators are in [`operator`], objectives in [`objective`], solvers and rollouts in [`rollout`]. A [`Recipe`] says the same as a
//! training in a file; its keys are in [`recipe`]. The crates below are [`data`], [`numerics`] and [`engine`].

mod alignment;
pub mod checkpoint;
mod error;
pub mod evaluate;
mod fingerprint;
mod inputs;
mod latent;
mod method;
mod metrics;
mod model;
pub mod objective;
pub mod operator;
pub mod paper;
mod partition;
mod profile;
pub mod proposal;
pub mod ranks;
pub mod recipe;
pub mod rollout;
pub mod scaling;
mod selection;
mod smoothing;
mod survey;
mod train;
mod trained;
mod training_data;
mod trajectories;
mod trust;

pub use alignment::Alignment;
pub use engine::Device;
pub use error::{CfoError, Result};
pub use evaluate::Report;
pub use model::{Model, StateSpace};
pub use objective::Objective;
pub use operator::Operator;
pub use recipe::Recipe;
pub use rollout::{Budget, Prediction, Request, Solver, SolverOptions, Watch};
pub use train::{BatchSize, Divergence, Ending, Observer, Reply, StepReport, Training, WallTime};
pub use trained::{Loader, ShorterSteps, Solution, Trained};
pub use trajectories::{Part, Trajectories};
pub use {cfo_data as data, cfo_numerics as numerics};

/// The engine with the devices that it runs on.
pub mod engine {
    pub use cfo_device::{CudaDevice, CudaLibrary, CudaReport, Device, DeviceReport, gpu_count};
    pub use cfo_engine::*;
}

/// A training step by hand: what benchmarks time and dry runs describe.
pub mod training {
    pub use crate::train::{CompiledStep, Counts, Prepared, sampler};
    pub use crate::training_data::TrainingData;
}
