//! The paper's five systems, simulated from their formulas.
//!
//! Each system is a configuration with public fields whose default is the paper's, and implements [`Equation`];
//! [`run`] simulates many trajectories in parallel and returns them in order.
//!
//! Everything is computed in `f64` and stored in `f32`. An initial state from this crate's own distributions (Lorenz, the
//! varied dam) is rounded to `f32` before the first step, so that the stored first frame is exactly the state that was
//! integrated.

mod burgers;
mod diffusion_reaction;
mod error;
mod kuramoto_sivashinsky;
mod legacy_random;
mod lorenz;
mod options;
mod random_field;
mod roe;
mod run;
mod shallow_water;
mod spectral;
#[cfg(test)]
mod testing;

use std::sync::atomic::AtomicBool;

pub use burgers::Burgers;
pub use diffusion_reaction::DiffusionReaction;
pub use error::SimulationError;
pub use kuramoto_sivashinsky::KuramotoSivashinsky;
pub use lorenz::Lorenz;
pub use random_field::RandomField;
pub use run::run;
pub use shallow_water::{ShallowWater, Variant};

use crate::{Description, Trajectory};

/// A system that can be simulated: a distribution of initial states and the equation that evolves them.
///
/// Trajectory `index` of `seed` is a pure function of the two and of the configuration: it does not
/// depend on what else is simulated, in which order and on how many threads.
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
    /// The system's name on the command line and in files.
    fn name(&self) -> &'static str;

    /// Whether the options make sense; everything else may be called only if they do.
    fn check(&self) -> Result<(), SimulationError>;

    /// What holds for every trajectory.
    fn description(&self) -> Description;

    /// The stored times; nominal ones where each trajectory has its own.
    fn times(&self) -> Vec<f64>;

    /// How many distinct trajectories there are; `None` if their number is unlimited.
    fn distinct(&self) -> Option<usize> {
        None
    }

    /// Trajectory `index` of `seed`, ended by [`SimulationError::Interrupted`] soon after `interrupt` is set.
    fn simulate(&self, seed: u64, index: u64, interrupt: &AtomicBool) -> Result<Trajectory, SimulationError>;

    /// Trajectory `index` of `seed`.
    fn trajectory(&self, seed: u64, index: u64) -> Result<Trajectory, SimulationError> {
        self.simulate(seed, index, &AtomicBool::new(false))
    }
}
