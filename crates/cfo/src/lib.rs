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
//! Operators are in [`operator`], objectives in [`objective`], solvers and rollouts in [`rollout`]. Your own operators and objectives
//! append operations to a graph; [`graph`] has its types. A [`Recipe`] is a training configuration that can be stored as TOML; its
//! sections are in [`recipe`]. The crates [`data`] and [`numerics`] are re-exported.

mod error;
mod measure;
mod model;
pub mod objective;
pub mod operator;
pub mod paper;
mod predict;
pub mod proposal;
pub mod ranks;
pub mod recipe;
mod run;
mod train;
mod trajectories;

pub use cfo_engine::Precision;
pub use device::Device;
pub use error::{BatchSize, CfoError, Divergence, Result};
pub use measure::scaling;
pub use model::Model;
pub use objective::Objective;
pub use operator::{Operator, StateSpace};
pub use predict::evaluate::Report;
pub use predict::rollout::{Prediction, Request, Watch};
pub use predict::{Alignment, Loader, ShorterSteps, Solution, Trained, evaluate, rollout};
pub use recipe::{Budget, Recipe, Solver, SolverOptions};
pub use run::{Ending, Run, StepReport, WallTime, checkpoint, write_evaluation};
pub use train::{Observer, Reply, Training};
pub use trajectories::{Part, Trajectories};
pub use {cfo_data as data, cfo_numerics as numerics};

/// The types with which your own operators and objectives append to a graph.
///
/// [`Operator::apply`] and [`Objective::loss`] get a [`Graph`](graph::Graph) and return a [`Node`](graph::Node) of it.
/// [`Graph::formula`](graph::Graph::formula) starts arithmetic with operators. Programs that plan and run graphs themselves, such as
/// benchmarks, depend on the crate `cfo-engine`.
pub mod graph {
    #[doc(inline)]
    pub use cfo_engine::{
        Activation, Element, EngineError, Formula, Graph, GroupNormInputs, Initial, IntoVar, Node, PadMode,
        Shape, Var, Wavelet, WaveletFamily, spectral_modes,
    };
}

/// Devices by name, and a report of what is available.
pub mod device {
    #[doc(inline)]
    pub use cfo_device::{CudaDevice, CudaLibrary, CudaReport, Device, DeviceReport, gpu_count};
}

/// A single compiled training step, for benchmarks and dry runs.
pub mod training {
    pub use crate::train::training_data::TrainingData;
    pub use crate::train::{CompiledStep, Counts, TrainingStep, sampler};
}
