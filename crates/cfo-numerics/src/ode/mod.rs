//! Integration of `u' = f(t, u)`, forward and backward in time.
//!
//! - [`VectorField`]: the function to integrate
//! - [`Tableau`]: the Runge-Kutta method
//! - [`Steps`]: how step lengths are chosen
//! - [`Stepper`]: makes single steps
//! - [`Integrator`]: steps through output times
//! - [`OdeSolution`]: the result
//!
//! No decision uses the state. [`drive`] decides which steps are attempted and when outputs are due. A [`Course`]
//! decides whether an adaptive step is accepted and how long the next one is. Integrations on other devices share them:
//! a single state implements [`AdvanceState`], a batch has a [`Course`] for each trajectory.

mod checkpoints;
mod control;
mod course;
mod drive;
mod error;
mod integrator;
mod stepper;
mod tableau;
#[cfg(test)]
mod tests;

pub use checkpoints::{Recall, StepCheckpoints};
pub use control::{Controller, Decision, StepControl, first_step};
pub use course::Course;
pub use drive::{AdvanceState, DriveCounts, Steps, drive};
pub use error::OdeError;
pub use integrator::{Integrator, OdeSolution, integrate};
pub use stepper::Stepper;
pub use tableau::{DOPRI5, EULER, HEUN, RK4, TSIT5, Tableau, UnknownMethod};

/// The right-hand side of `u' = f(t, u)`; equation (forward ODE) of the paper.
///
/// Closures are fields too:
///
/// ```
/// use cfo_numerics::ode::{RK4, Steps, VectorField, integrate};
///
/// struct Decay { rate: f64 }
/// impl VectorField for Decay {
///     fn velocity(&self, _t: f64, u: &[f64], out: &mut [f64]) {
///         for (out, u) in out.iter_mut().zip(u) {
///             *out = -self.rate * u;
///         }
///     }
/// }
/// let steps = Steps::Fixed { step: 0.01 };
/// let end = integrate(&Decay { rate: 1.0 }, &RK4, 0.0, &[1.0], &[1.0], steps)?.states[0];
/// assert!((end - (-1.0_f64).exp()).abs() < 1e-9);
///
/// let turn = |_t: f64, u: &[f64], out: &mut [f64]| { out[0] = u[1]; out[1] = -u[0]; };
/// let back = integrate(&turn, &RK4, 0.0, &[0.0, 1.0], &[-0.5], steps)?;
/// assert!((back.states[0] - (-0.5_f64).sin()).abs() < 1e-9);
/// # Ok::<(), cfo_numerics::ode::OdeError>(())
/// ```
pub trait VectorField {
    /// Writes `f(t, u)` into `out`, which is as long as `u` and has arbitrary contents on entry.
    fn velocity(&self, t: f64, u: &[f64], out: &mut [f64]);
}

impl<F: Fn(f64, &[f64], &mut [f64])> VectorField for F {
    fn velocity(&self, t: f64, u: &[f64], out: &mut [f64]) {
        self(t, u, out);
    }
}
