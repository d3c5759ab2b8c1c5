//! Numerical methods of the paper that need neither tensors nor files: time grids, finite-difference stencils, Hermite
//! paths, smoothing, the noise schedule, Runge-Kutta methods and metrics.
//!
//! A trajectory is a list of snapshots `u(t_0), ..., u(t_N)` at irregular times. A [`Path`] turns them into a smooth
//! curve `s(t)` with a velocity. Both are weighted sums of a few neighbouring snapshots. [`Path::weights`] returns the
//! weights, and the caller contracts them with data of any kind:
//!
//! ```
//! use cfo_numerics::Path;
//!
//! let times = [0.0, 0.1, 0.25, 0.3, 0.5];
//! let snapshots = times.map(|t: f64| t * t);
//! let weights = Path::default().weights(&times, 0.2);
//! let value: f64 = weights.value().iter().zip(&snapshots[weights.range()]).map(|(w, u)| w * u).sum();
//! let velocity: f64 = weights.velocity().iter().zip(&snapshots[weights.range()]).map(|(w, u)| w * u).sum();
//! assert!((value - 0.04).abs() < 1e-15 && (velocity - 0.4).abs() < 1e-14);
//! ```
//!
//! Times, weights and metrics are `f64` throughout; fields may be `f32`.

#![warn(clippy::too_many_lines)]

mod clock;
mod draw_by;
mod energy;
mod grid;
mod hermite;
pub mod metric;
mod nearness;
mod noise;
pub mod ode;
mod path;
mod philox;
mod signal;
mod smoother;
pub mod stencil;
#[cfg(test)]
extern crate self as cfo_numerics;
#[cfg(test)]
#[path = "../tests/problems/mod.rs"]
mod test_problems;
mod time_grid;
mod wavelet;

pub use clock::Clock;
pub use draw_by::DrawBy;
pub use energy::Energy;
pub use grid::Grid;
pub use nearness::{groups, mean_time, nearness};
pub use noise::NoiseSchedule;
pub use path::{Fallback, Path, PathError, PathWeights, Spline};
pub use philox::{Philox, philox4x32};
pub use signal::{Interpolation, Ramp, Signal};
pub use smoother::{Evidence, NoiseFit, Smoother};
pub use time_grid::{Segment, TimeGrid, TimeGridError};
pub use wavelet::{Wavelet, WaveletFamily, WaveletPass};
