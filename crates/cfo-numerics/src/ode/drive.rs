//! The loop over steps and output times of an integration.

use super::course::resolution;
use super::{Controller, Course, OdeError, Tableau};

/// Limit on equal steps to one output time. More are treated as a mistake: even the cheapest field would take minutes.
const MOST_EQUAL_STEPS: u64 = 1 << 32;

/// How step lengths are chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Steps {
    /// Equal steps inside each interval between output times: the fewest that are not longer than `step`.
    Fixed {
        /// Longest step, in units of time.
        step: f64,
    },
    /// This number of equal steps in each interval between output times.
    PerInterval(usize),
    /// This number of equal steps from the initial to the last output time; states in between come from dense output.
    Total(usize),
    /// Steps as long as the error estimate allows; states in between come from dense output.
    Adaptive(Controller),
}

/// Cost of an integration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DriveCounts {
    /// Steps taken.
    pub steps: u64,
    /// Attempted steps that were rejected.
    pub rejections: u64,
    /// Evaluations of the field (the paper's NFE). [`drive`] does not count them; the implementor of [`AdvanceState`] does.
    pub evaluations: u64,
}

/// A state that can be advanced in time by [`drive`].
///
/// The implementor chooses the representation of the state and where it is stored. One implementor is the host's
/// [`Integrator`](super::Integrator), another is a rollout whose states stay on the device.
///
/// ```
/// use cfo_numerics::ode::{AdvanceState, OdeError, RK4, Steps, drive};
///
/// /// Moves along the exact solution of `u' = -u`.
/// struct Exact { state: f64, next: f64, outputs: Vec<f64> }
/// impl AdvanceState for Exact {
///     type Error = OdeError;
///     fn first_step(&mut self, _end: f64, _rtol: f64, _atol: f64) -> Result<f64, OdeError> { Ok(0.1) }
///     fn attempt(&mut self, start: f64, end: f64) -> Result<(), OdeError> {
///         self.next = self.state * (start - end).exp();
///         Ok(())
///     }
///     fn error(&mut self, _rtol: f64, _atol: f64) -> Result<f64, OdeError> { Ok(0.0) }
///     fn is_finite(&mut self) -> Result<bool, OdeError> { Ok(self.next.is_finite()) }
///     fn interpolate(&mut self, _index: usize, _t: f64) -> Result<(), OdeError> { unreachable!("steps end at outputs") }
///     fn accept(&mut self) -> Result<(), OdeError> { self.state = self.next; Ok(()) }
///     fn deliver(&mut self, _index: usize) -> Result<(), OdeError> { self.outputs.push(self.state); Ok(()) }
/// }
/// let mut exact = Exact { state: 1.0, next: 1.0, outputs: Vec::new() };
/// let counts = drive(&mut exact, &RK4, 0.0, &[0.5, 1.0], Steps::Fixed { step: 0.1 })?;
/// assert_eq!((counts.steps, exact.outputs.len()), (10, 2));
/// # Ok::<(), OdeError>(())
/// ```
pub trait AdvanceState {
    /// The implementor's error, which includes integrations that cannot continue.
    type Error: From<OdeError>;

    /// Length of a good first step towards `end` (see [`first_step`](super::first_step)), for adaptive steps only.
    fn first_step(&mut self, end: f64, rtol: f64, atol: f64) -> Result<f64, Self::Error>;

    /// Attempts a step from the accepted state at `start` to `end`. It replaces an earlier attempt.
    fn attempt(&mut self, start: f64, end: f64) -> Result<(), Self::Error>;

    /// Scaled error of the attempted step, as in [`Stepper::error`](super::Stepper::error), for adaptive steps only.
    fn error(&mut self, rtol: f64, atol: f64) -> Result<f64, Self::Error>;

    /// Whether all values of the attempted state are finite; may be true if only the outputs are checked.
    fn is_finite(&mut self) -> Result<bool, Self::Error>;

    /// Delivers output `index` at time `t` inside the attempted step, by dense output.
    fn interpolate(&mut self, index: usize, t: f64) -> Result<(), Self::Error>;

    /// Makes the attempted state the accepted one.
    fn accept(&mut self) -> Result<(), Self::Error>;

    /// Delivers the accepted state as output `index`.
    fn deliver(&mut self, index: usize) -> Result<(), Self::Error>;
}

/// Advances a state from `t0` through the output times. The rules are those of [`integrate`](super::integrate).
pub fn drive<A: AdvanceState>(
    state: &mut A,
    tableau: &Tableau,
    t0: f64,
    output_times: &[f64],
    steps: Steps,
) -> Result<DriveCounts, A::Error> {
    check_times(t0, output_times)?;
    let Some(&end) = output_times.last() else { return Ok(DriveCounts::default()) };
    let mut drive = Drive { state, time: t0, times: output_times, done: 0, counts: DriveCounts::default() };
    drive.deliver_reached()?;
    match steps {
        Steps::Fixed { step } if step.is_nan() || step <= 0.0 => Err(OdeError::InvalidStep(step))?,
        Steps::PerInterval(0) | Steps::Total(0) => Err(OdeError::NoSteps)?,
        // With a small tolerance, so that the rounding of the division does not add an eleventh step to ten.
        Steps::Fixed { step } => {
            drive.by_intervals(|length| (length / step * (1.0 - 1e-12)).ceil().max(1.0))?
        }
        Steps::PerInterval(count) => drive.by_intervals(|_| count as f64)?,
        Steps::Total(count) => drive.equal_steps(end, count as f64, Stop::Pass)?,
        Steps::Adaptive(controller) => drive.adaptive(end, &controller, tableau)?,
    }
    Ok(drive.counts)
}

/// Whether steps pass output times and interpolate, or end at output times.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Pass,
    AtOutputs,
}

struct Drive<'a, A> {
    state: &'a mut A,
    time: f64,
    times: &'a [f64],
    done: usize,
    counts: DriveCounts,
}

impl<A: AdvanceState> Drive<'_, A> {
    fn deliver_reached(&mut self) -> Result<(), A::Error> {
        while self.times.get(self.done) == Some(&self.time) {
            self.state.deliver(self.done)?;
            self.done += 1;
        }
        Ok(())
    }

    /// Accepts the step attempted to `end` and delivers the outputs inside it.
    fn accept(&mut self, end: f64, stop: Stop) -> Result<(), A::Error> {
        let forward = end > self.time;
        while let Some(&t) = self.times.get(self.done) {
            let inside = if forward { t < end } else { t > end };
            if stop == Stop::AtOutputs || !inside {
                break;
            }
            self.state.interpolate(self.done, t)?;
            self.done += 1;
        }
        self.state.accept()?;
        self.time = end;
        self.counts.steps += 1;
        self.deliver_reached()
    }

    fn by_intervals(&mut self, count: impl Fn(f64) -> f64) -> Result<(), A::Error> {
        while let Some(&target) = self.times.get(self.done) {
            let steps = count((target - self.time).abs());
            self.equal_steps(target, steps, Stop::AtOutputs)?;
        }
        Ok(())
    }

    /// Makes equal steps from the current time to `target`.
    fn equal_steps(&mut self, target: f64, count: f64, stop: Stop) -> Result<(), A::Error> {
        let start = self.time;
        if target == start {
            return Ok(());
        }
        let step = (target - start) / count;
        if step.abs() < resolution(start).max(resolution(target)) {
            Err(OdeError::StepTooSmall { time: start, step: step.abs() })?;
        }
        if count > MOST_EQUAL_STEPS as f64 {
            Err(OdeError::TooManySteps { time: start, target, limit: MOST_EQUAL_STEPS })?;
        }
        let count = count as u64;
        for n in 1..=count {
            let end = if n == count { target } else { start + step * n as f64 };
            self.state.attempt(self.time, end)?;
            if !self.state.is_finite()? {
                Err(OdeError::Diverged { time: self.time })?;
            }
            self.accept(end, stop)?;
        }
        Ok(())
    }

    fn adaptive(&mut self, end: f64, controller: &Controller, tableau: &Tableau) -> Result<(), A::Error> {
        controller.check()?;
        if !tableau.estimates_error() {
            Err(OdeError::NoErrorEstimate(tableau.name))?;
        }
        if self.done == self.times.len() {
            return Ok(());
        }
        let Controller { rtol, atol, max_steps, .. } = *controller;
        let stop = if controller.stop_at_outputs { Stop::AtOutputs } else { Stop::Pass };
        let first = match controller.first_step {
            Some(step) => step,
            None => self.state.first_step(end, rtol, atol)?,
        };
        let mut course = Course::new(self.time, first, controller, tableau.error_order);
        for _ in 0..max_steps {
            // The first step is NaN if the field is not finite at the start.
            if course.is_stuck() {
                Err(self.stuck(&course)?)?;
            }
            let target = if stop == Stop::Pass { end } else { self.times[self.done] };
            let next = course.next_end(target);
            self.state.attempt(self.time, next)?;
            let error = self.judge(rtol, atol)?;
            if !course.judge(error, target) {
                self.counts.rejections += 1;
                continue;
            }
            self.accept(next, stop)?;
            if self.done == self.times.len() {
                return Ok(());
            }
        }
        Err(OdeError::TooManySteps { time: self.time, target: end, limit: max_steps })?
    }

    /// Error of the attempted step. An infinite state would make its own scale infinite and its error zero.
    fn judge(&mut self, rtol: f64, atol: f64) -> Result<f64, A::Error> {
        let error = self.state.error(rtol, atol)?;
        Ok(if error < 1.0 && !self.state.is_finite()? { f64::INFINITY } else { error })
    }

    /// The error of an adaptive integration whose step became too small.
    fn stuck(&mut self, course: &Course) -> Result<OdeError, A::Error> {
        let step = course.length();
        let tame = !step.is_nan() && self.state.is_finite()?;
        Ok(match tame {
            true => OdeError::StepTooSmall { time: self.time, step },
            false => OdeError::Diverged { time: self.time },
        })
    }
}

fn check_times(t0: f64, times: &[f64]) -> Result<(), OdeError> {
    if !t0.is_finite() {
        return Err(OdeError::InitialTime(t0));
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
