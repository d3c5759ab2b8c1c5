//! The mathematics of the paper without tensors and without files: time grids, finite-difference stencils,
//! Hermite paths, the noise schedule, Runge-Kutta methods and metrics.

mod philox;

pub use philox::{Philox, philox4x32};
