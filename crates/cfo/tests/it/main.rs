//! End-to-end tests of training, resuming and integration on small systems.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod clock;
mod controls;
mod cuda;
mod finetuning;
mod latent;
mod layers;
mod learning;
mod library;
mod miss;
mod names;
mod neural_ode;
mod ranks;
mod refining;
mod resuming;
mod rollouts;
mod samplers;
mod scaling;
mod solver_options;
mod solvers;
mod splits;
mod statics;
mod streaming;
mod util;
mod windows;
