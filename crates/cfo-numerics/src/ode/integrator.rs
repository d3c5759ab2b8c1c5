//! Integration on the host from an initial state through a list of output times.

use super::{AdvanceState, DriveCounts, OdeError, Stepper, Steps, Tableau, VectorField, drive};

/// States at the output times, and the cost of the integration.
#[derive(Clone, Debug, PartialEq)]
pub struct OdeSolution {
    /// The output times.
    pub times: Vec<f64>,
    /// States, one row for each time.
    pub states: Vec<f64>,
    /// Steps taken.
    pub steps: u64,
    /// Attempted steps that were rejected.
    pub rejections: u64,
    /// Evaluations of the field (the paper's NFE).
    pub evaluations: u64,
}

impl OdeSolution {
    /// The state at output time `index`.
    ///
    /// # Panics
    /// If the index is out of range.
    pub fn state(&self, index: usize) -> &[f64] {
        let width = self.states.len() / self.times.len();
        &self.states[index * width..(index + 1) * width]
    }
}

/// Integrates from `u0` at `t0` and returns the state at exactly each output time.
///
/// Output times run in one direction from `t0`, forward or backward in time. They may start with `t0` itself and may
/// repeat. The error of an integration that cannot continue contains the time reached.
pub fn integrate<F: VectorField + ?Sized>(
    field: &F,
    tableau: &Tableau,
    t0: f64,
    u0: &[f64],
    output_times: &[f64],
    steps: Steps,
) -> Result<OdeSolution, OdeError> {
    let mut states = Vec::with_capacity(output_times.len() * u0.len());
    let counts = Integrator::new(tableau, steps)
        .integrate(field, t0, u0, output_times, |_, state| states.extend_from_slice(state))?;
    let DriveCounts { steps, rejections, evaluations } = counts;
    Ok(OdeSolution { times: output_times.to_vec(), states, steps, rejections, evaluations })
}

/// An integrator that keeps its workspace between integrations and passes states to a callback instead of storing them.
///
/// ```
/// use cfo_numerics::ode::{Controller, Integrator, Steps, TSIT5};
///
/// let decay = |_t: f64, u: &[f64], out: &mut [f64]| out[0] = -u[0];
/// let mut integrator = Integrator::new(&TSIT5, Steps::Adaptive(Controller::new(1e-8, 1e-10)));
/// let mut worst = 0.0_f64;
/// for initial in [1.0, 2.0, 3.0] {
///     integrator.integrate(&decay, 0.0, &[initial], &[0.5, 1.0], |index, state| {
///         let t = [0.5, 1.0][index];
///         worst = worst.max((state[0] - initial * f64::exp(-t)).abs());
///     })?;
/// }
/// assert!(worst < 1e-7);
/// # Ok::<(), cfo_numerics::ode::OdeError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Integrator {
    steps: Steps,
    stepper: Stepper,
    output: Vec<f64>,
}

impl Integrator {
    /// Creates an integrator with this method and these steps.
    pub fn new(tableau: &Tableau, steps: Steps) -> Self {
        Self { steps, stepper: Stepper::new(tableau, 0.0, &[]), output: Vec::new() }
    }

    /// Integrates from `u0` at `t0` and calls `sink(index, state)` at each output time in order. The rules are those of
    /// [`integrate`]. After an error, the states up to the time reached have been delivered.
    pub fn integrate<F: VectorField + ?Sized>(
        &mut self,
        field: &F,
        t0: f64,
        u0: &[f64],
        output_times: &[f64],
        sink: impl FnMut(usize, &[f64]),
    ) -> Result<DriveCounts, OdeError> {
        if let Some((index, &value)) = u0.iter().enumerate().find(|(_, u)| !u.is_finite()) {
            return Err(OdeError::InitialState { index, value });
        }
        self.stepper.reset(t0, u0);
        self.output.resize(u0.len(), 0.0);
        let tableau = *self.stepper.tableau();
        let mut run = Run { field, stepper: &mut self.stepper, output: &mut self.output, sink };
        let counts = drive(&mut run, &tableau, t0, output_times, self.steps)?;
        Ok(DriveCounts { evaluations: self.stepper.evaluations(), ..counts })
    }
}

/// A stepper with its field and the sink of its states.
struct Run<'a, F: ?Sized, S> {
    field: &'a F,
    stepper: &'a mut Stepper,
    output: &'a mut [f64],
    sink: S,
}

impl<F: VectorField + ?Sized, S: FnMut(usize, &[f64])> AdvanceState for Run<'_, F, S> {
    type Error = OdeError;

    fn first_step(&mut self, end: f64, rtol: f64, atol: f64) -> Result<f64, OdeError> {
        Ok(self.stepper.first_step(self.field, end, rtol, atol))
    }

    fn attempt(&mut self, _: f64, end: f64) -> Result<(), OdeError> {
        self.stepper.attempt(self.field, end);
        Ok(())
    }

    fn error(&mut self, rtol: f64, atol: f64) -> Result<f64, OdeError> {
        Ok(self.stepper.error(rtol, atol))
    }

    fn is_finite(&mut self) -> Result<bool, OdeError> {
        Ok(self.stepper.next_is_finite())
    }

    fn interpolate(&mut self, index: usize, t: f64) -> Result<(), OdeError> {
        self.stepper.interpolate(t, self.output);
        (self.sink)(index, self.output);
        Ok(())
    }

    fn accept(&mut self) -> Result<(), OdeError> {
        self.stepper.accept();
        Ok(())
    }

    fn deliver(&mut self, index: usize) -> Result<(), OdeError> {
        (self.sink)(index, self.stepper.state());
        Ok(())
    }
}
