//! Simulators of the paper's five systems, and of one in three dimensions.
//!
//! Each system is a configuration with public fields, whose defaults are the paper's, and implements [`Equation`].
//! [`run`] simulates many trajectories in parallel and returns them in order.
//!
//! Computations use `f64`; results are stored as `f32`. An initial state from this crate's own distributions (Lorenz,
//! the varied dam) is rounded to `f32` before the first step, so that the stored first frame is exactly the integrated
//! state.

mod burgers;
mod diffusion_reaction;
mod error;
mod gray_scott;
mod kuramoto_sivashinsky;
mod legacy_random;
mod lorenz;
mod named;
mod options;
mod parts;
mod random_field;
mod roe;
mod run;
mod shallow_water;
mod spectral;
#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

pub use burgers::Burgers;
pub use diffusion_reaction::DiffusionReaction;
pub use error::SimulationError;
pub use gray_scott::GrayScott;
pub use kuramoto_sivashinsky::KuramotoSivashinsky;
pub use lorenz::Lorenz;
pub use named::named;
pub use parts::parts;
pub use random_field::RandomField;
pub use run::run;
pub use shallow_water::{ShallowWater, Variant};

use crate::{Description, Trajectory};

/// A system that can be simulated: a distribution of initial states and the equation that evolves them.
///
/// Trajectory `index` of `seed` is a pure function of both and of the configuration. It does not depend on other
/// trajectories, their order or the number of threads.
///
/// ```
/// use cfo_data::simulate::{Equation, Lorenz};
///
/// let lorenz = Lorenz { frames: 11, ..Lorenz::default() };
/// let trajectory = lorenz.trajectory(0, 3)?;
/// assert_eq!(*trajectory.times, lorenz.times());
/// assert_eq!(trajectory.values.len(), 11 * 3);
/// # Ok::<(), cfo_data::simulate::SimulationError>(())
/// ```
pub trait Equation: Send + Sync {
    /// Name of the system on the command line and in files.
    fn name(&self) -> &'static str;

    /// Checks the options. The other methods may be called only if they are valid.
    fn check(&self) -> Result<(), SimulationError>;

    /// The description of all trajectories.
    fn description(&self) -> Description;

    /// The stored times; nominal ones if each trajectory has its own.
    fn times(&self) -> Vec<f64>;

    /// Number of distinct trajectories; `None` if it is unlimited.
    fn distinct(&self) -> Option<usize> {
        None
    }

    /// Simulates trajectory `index` of `seed`. Setting `interrupt` ends it soon with [`SimulationError::Interrupted`].
    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError>;

    /// Simulates trajectory `index` of `seed`.
    fn trajectory(&self, seed: u64, index: u64) -> Result<Trajectory, SimulationError> {
        self.simulate(seed, index, &AtomicBool::new(false))
    }
}
