//! From an initial state through a list of output times.

use super::{Controller, OdeError, Stepper, Tableau, VectorField};

/// How long the steps are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    /// Equal steps inside each interval between output times, as few as keep them no longer than `step`.
    Fixed {
        /// Longest step, in units of time.
        step: f64,
    },
    /// That many equal steps in each interval between output times.
    PerInterval(usize),
    /// That many equal steps from the initial to the last output time; states between come from dense output.
    Total(usize),
    /// As long as the error estimate allows; states between come from dense output.
    Adaptive(Controller),
}

/// What an integration cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps taken.
    pub steps: u64,
    /// Steps attempted and thrown away.
    pub rejections: u64,
    /// Evaluations of the field (the paper's NFE).
    pub evaluations: u64,
}

/// States at the output times, and what they cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The output times as they were asked for.
    pub times: Vec<f64>,
    /// A row for each time.
    pub states: Vec<f64>,
    /// Steps taken.
    pub steps: u64,
    /// Steps attempted and thrown away.
    pub rejections: u64,
    /// Evaluations of the field (the paper's NFE).
    pub evaluations: u64,
}

impl Solution {
    /// The state at output time `index`.
    ///
    /// # Panics
    /// If there is no such time.
    pub fn state(&self, index: usize) -> &[f64] {
        let width = self.states.len() / self.times.len();
        &self.states[index * width..(index + 1) * width]
    }
}

/// Integrates from `u0` at `t0` and returns the state at each output time, exactly at that time.
///
/// Output times run away from `t0` in one direction: up for the future, down for the past. They may begin with `t0` itself
/// and may repeat. An integration that cannot go on ends in an error that names the time reached.
pub fn integrate<F: VectorField + ?Sized>(
    field: &F,
    tableau: &Tableau,
    t0: f64,
    u0: &[f64],
    output_times: &[f64],
    steps: Steps,
) -> Result<Solution, OdeError> {
    let mut states = Vec::with_capacity(output_times.len() * u0.len());
    let counts = Integrator::new(tableau, steps)
        .integrate(field, t0, u0, output_times, |_, state| states.extend_from_slice(state))?;
    let Counts { steps, rejections, evaluations } = counts;
    Ok(Solution { times: output_times.to_vec(), states, steps, rejections, evaluations })
}

/// An integrator that keeps its workspace between integrations and hands over states instead of storing them.
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
    /// An integrator with that method and those steps.
    pub fn new(tableau: &Tableau, steps: Steps) -> Self {
        Self { steps, stepper: Stepper::new(tableau, 0.0, &[]), output: Vec::new() }
    }

    /// Integrates from `u0` at `t0` and calls `sink(index, state)` at each output time in turn. As [`integrate`] otherwise.
    /// On an error the states up to the time reached have been delivered.
    pub fn integrate<F: VectorField + ?Sized>(
        &mut self,
        field: &F,
        t0: f64,
        u0: &[f64],
        output_times: &[f64],
        mut sink: impl FnMut(usize, &[f64]),
    ) -> Result<Counts, OdeError> {
        check_input(t0, u0, output_times)?;
        let Some(&end) = output_times.last() else { return Ok(Counts::default()) };
        self.stepper.reset(t0, u0);
        self.output.resize(u0.len(), 0.0);
        let mut run = Run {
            field,
            stepper: &mut self.stepper,
            output: &mut self.output,
            times: output_times,
            sink: &mut sink,
            done: 0,
            counts: Counts::default(),
        };
        run.deliver_reached();
        match self.steps {
            Steps::Fixed { step } => {
                if step.is_nan() || step <= 0.0 {
                    return Err(OdeError::InvalidStep { step });
                }
                // A hair of slack: an interval of ten steps takes ten, whatever the last bit of the division says.
                run.by_intervals(|length| (length / step * (1.0 - 1e-12)).ceil().max(1.0))?;
            }
            Steps::PerInterval(0) | Steps::Total(0) => return Err(OdeError::NoSteps),
            Steps::PerInterval(count) => run.by_intervals(|_| count as f64)?,
            Steps::Total(count) => run.equal_steps(end, count as f64, Stop::Pass)?,
            Steps::Adaptive(controller) => run.adaptive(end, &controller)?,
        }
        let counts = run.counts;
        Ok(Counts { evaluations: self.stepper.evaluations(), ..counts })
    }
}

/// Whether steps pass output times and interpolate, or end at them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Pass,
    AtOutputs,
}

/// One integration under way.
struct Run<'a, F: ?Sized, S> {
    field: &'a F,
    stepper: &'a mut Stepper,
    output: &'a mut [f64],
    times: &'a [f64],
    sink: &'a mut S,
    done: usize,
    counts: Counts,
}

impl<F: VectorField + ?Sized, S: FnMut(usize, &[f64])> Run<'_, F, S> {
    /// Delivers outputs at the very time of the accepted state.
    fn deliver_reached(&mut self) {
        while self.times.get(self.done) == Some(&self.stepper.time()) {
            (self.sink)(self.done, self.stepper.state());
            self.done += 1;
        }
    }

    /// Delivers outputs inside the attempted step by dense output.
    fn deliver_passed(&mut self) {
        let (start, end) = (self.stepper.time(), self.stepper.next_time());
        while let Some(&t) = self.times.get(self.done) {
            let inside = if end > start { t < end } else { t > end };
            if !inside {
                break;
            }
            self.stepper.interpolate(self.field, t, self.output);
            (self.sink)(self.done, self.output);
            self.done += 1;
        }
    }

    fn accept(&mut self, stop: Stop) {
        if stop == Stop::Pass {
            self.deliver_passed();
        }
        self.stepper.accept();
        self.counts.steps += 1;
        self.deliver_reached();
    }

    fn by_intervals(&mut self, count: impl Fn(f64) -> f64) -> Result<(), OdeError> {
        while let Some(&target) = self.times.get(self.done) {
            let steps = count((target - self.stepper.time()).abs());
            self.equal_steps(target, steps, Stop::AtOutputs)?;
        }
        Ok(())
    }

    /// Equal steps from here to `target`.
    fn equal_steps(&mut self, target: f64, count: f64, stop: Stop) -> Result<(), OdeError> {
        let start = self.stepper.time();
        let step = (target - start) / count;
        if step == 0.0 && target == start {
            return Ok(());
        }
        if step.abs() < resolution(start).max(resolution(target)) {
            return Err(OdeError::StepTooSmall { time: start, step: step.abs() });
        }
        let count = count as u64;
        for n in 1..=count {
            let end = if n == count { target } else { start + step * n as f64 };
            self.stepper.attempt(self.field, end);
            if !self.stepper.next_is_finite() {
                return Err(OdeError::Diverged { time: self.stepper.time() });
            }
            self.accept(stop);
        }
        Ok(())
    }

    fn adaptive(&mut self, end: f64, controller: &Controller) -> Result<(), OdeError> {
        controller.check()?;
        let tableau = *self.stepper.tableau();
        if !tableau.estimates_error() {
            return Err(OdeError::NoErrorEstimate { method: tableau.name });
        }
        if self.done == self.times.len() {
            return Ok(());
        }
        let Controller { rtol, atol, max_steps, max_step, .. } = *controller;
        let stop = if controller.stop_at_outputs { Stop::AtOutputs } else { Stop::Pass };
        let direction = (end - self.stepper.time()).signum();
        let mut control = controller.start(tableau.error_order);
        let mut step = match controller.first_step {
            Some(step) => step,
            None => self.stepper.first_step(self.field, end, rtol, atol),
        };
        let mut rejected = false;
        for _ in 0..max_steps {
            let time = self.stepper.time();
            let least = resolution(time);
            // NaN from a field that is not finite at the start ends here too.
            if step.is_nan() || step < least && rejected {
                return Err(self.stuck(step));
            }
            step = step.clamp(least, max_step.max(least));
            let target = if stop == Stop::Pass { end } else { self.times[self.done] };
            let mut next = time + direction * step;
            let clipped = direction * (target - next) < 10.0 * least;
            if clipped {
                next = target;
            }
            self.stepper.attempt(self.field, next);
            let mut error = self.stepper.error(rtol, atol);
            if error < 1.0 && !self.stepper.next_is_finite() {
                // An infinite state makes its own scale infinite and would pass as exact.
                error = f64::INFINITY;
            }
            let decision = control.decide(error);
            let length = (next - time).abs();
            // A step cut short to end at an output says nothing against the length it was cut from.
            let kept = if clipped && target != end { step } else { 0.0 };
            step = length * decision.factor;
            rejected = !decision.accept;
            if rejected {
                self.counts.rejections += 1;
                continue;
            }
            step = step.max(kept);
            self.accept(stop);
            if self.done == self.times.len() {
                return Ok(());
            }
        }
        Err(OdeError::TooManySteps { time: self.stepper.time(), target: end, limit: max_steps })
    }

    /// The error of an adaptive integration whose step vanished.
    fn stuck(&self, step: f64) -> OdeError {
        let time = self.stepper.time();
        if self.stepper.next_is_finite() && !step.is_nan() {
            OdeError::StepTooSmall { time, step }
        } else {
            OdeError::Diverged { time }
        }
    }
}

/// Ten units in the last place of a time: the least step.
fn resolution(time: f64) -> f64 {
    10.0 * (time.abs().next_up() - time.abs())
}

fn check_input(t0: f64, u0: &[f64], times: &[f64]) -> Result<(), OdeError> {
    if !t0.is_finite() {
        return Err(OdeError::InitialTime { time: t0 });
    }
    if let Some((index, &value)) = u0.iter().enumerate().find(|(_, u)| !u.is_finite()) {
        return Err(OdeError::InitialState { index, value });
    }
    let direction = times.last().map_or(0.0, |end| (end - t0).signum());
    let mut previous = t0;
    for (index, &time) in times.iter().enumerate() {
        let back = if direction < 0.0 { time > previous } else { time < previous };
        if back || !time.is_finite() {
            return Err(OdeError::OutputTimes { index, time, previous, start: t0 });
        }
        previous = time;
    }
    Ok(())
}
