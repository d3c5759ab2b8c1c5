//! Learns du/dt = f(u) from snapshots at irregular times, without backpropagating through an ODE solver, and integrates f to any time.
//!
//! [`Trajectories`] are read from files, simulated or made from arrays. A [`Training`] fits an [`Operator`] (the network) to them with an
//! [`Objective`] (the loss). The result is a [`Trained`] model, which predicts, evaluates, saves and loads.
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
//!     .observe(|report| println!("{} {:.2e}", report.step, report.loss)) // may end training
//!     .fit(&data)?;
//! println!("relative L2 error {:.2e}", trained.evaluate(data.test())?.relative_l2.mean);
//! let solution = Trained::load("runs/own")?.predict(&[2.0, 0.0], 0.0, &[0.1, 0.75, 3.0])?;
//! println!("{:?} with {} evaluations", solution.states, solution.evaluations);
//! # Ok::<(), cfo::CfoError>(())
//! ```
//!
//! Operators are in [`operator`], objectives in [`objective`], solvers and rollouts in [`rollout`]. A [`Recipe`] is a training
//! configuration that can be stored as TOML; its sections are in [`recipe`]. The crates [`data`], [`numerics`] and [`engine`] are
//! re-exported.

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
mod runge_kutta;
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

/// Re-exports the engine and the devices that it runs on.
pub mod engine {
    pub use cfo_device::{CudaDevice, CudaLibrary, CudaReport, Device, DeviceReport, gpu_count};
    pub use cfo_engine::*;
}

/// A single compiled training step, for benchmarks and dry runs.
pub mod training {
    pub use crate::train::{CompiledStep, Counts, Prepared, sampler};
    pub use crate::training_data::TrainingData;
}
