//! Time and step length of a trajectory under adaptive steps.

use super::{Controller, StepControl};

/// The time and the step length of one trajectory with adaptive steps.
///
/// It uses times and errors, not states. The integrator on the host has one course. A rollout on a device, or a
/// training through a solver, has one for each trajectory of a batch.
///
/// ```
/// use cfo_numerics::ode::{Controller, Course};
///
/// let mut course = Course::new(0.0, 0.4, &Controller::new(1e-4, 1e-6), 5);
/// assert_eq!(course.next_end(1.0), 0.4);
/// assert!(!course.judge(32.0, 1.0)); // error 32 times the tolerance
/// assert!((course.next_end(1.0) - 0.4 * 0.9 / 2.0).abs() < 1e-15);
/// ```
#[derive(Clone, Debug)]
pub struct Course {
    time: f64,
    length: f64,
    longest: f64,
    /// Fraction of the remaining time that is added to a step instead of becoming a step of its own.
    rounding: f64,
    /// Least length of a step, in addition to the resolution of time.
    least: f64,
    rejected: bool,
    control: StepControl,
}

impl Course {
    /// A trajectory at `time` whose first attempt has the length `first_step`. The method's error estimate falls as
    /// `h^error_order`. Steps are at most [`Controller::max_step`] long.
    pub fn new(time: f64, first_step: f64, controller: &Controller, error_order: usize) -> Self {
        Self {
            time,
            length: first_step,
            longest: controller.max_step,
            rounding: 0.0,
            least: 0.0,
            rejected: false,
            control: controller.start(error_order),
        }
    }

    /// Extends a step to its target if less than this fraction would be left, for states of low precision.
    #[must_use]
    pub fn with_rounding(self, share: f64) -> Self {
        Self { rounding: share, ..self }
    }

    /// Sets the least length of a step. The resolution of time, ten units in its last place, is always a lower bound.
    #[must_use]
    pub fn with_least(self, least: f64) -> Self {
        Self { least, ..self }
    }

    /// The time reached by accepted steps.
    pub fn time(&self) -> f64 {
        self.time
    }

    /// Sets the time, for a trajectory that continues from another origin with its step length and controller.
    pub fn set_time(&mut self, time: f64) {
        self.time = time;
    }

    /// Changes the least length of a step.
    pub fn set_least(&mut self, least: f64) {
        self.least = least;
    }

    /// The signed length of the next attempt towards `target`, which may be earlier than the current time. It is the
    /// whole distance if the step would pass the target or end just before it.
    pub fn next_length(&self, target: f64) -> f64 {
        let way = target - self.time;
        if self.arrives(target) { way } else { way.signum() * self.planned() }
    }

    /// The end of the next attempt towards `target`.
    pub fn next_end(&self, target: f64) -> f64 {
        if self.arrives(target) { target } else { self.time + self.next_length(target) }
    }

    fn arrives(&self, target: f64) -> bool {
        let rest = (target - self.time).abs();
        rest - self.planned() < f64::max(10.0 * resolution(self.time), self.rounding * rest)
    }

    /// Decides about the attempt towards `target` from its scaled error; if it is accepted, the time advances.
    pub fn judge(&mut self, error: f64, target: f64) -> bool {
        let decision = self.control.decide(error);
        let next = self.next_length(target).abs() * decision.factor;
        self.rejected = !decision.accept;
        if self.rejected {
            self.length = next;
            return false;
        }
        let (arrives, end) = (self.arrives(target), self.next_end(target));
        // A step that was shortened to end at its target does not change the planned length.
        self.length = if arrives { next.max(self.planned()) } else { next };
        self.time = end;
        true
    }

    /// Whether the next attempt is shorter than the least step after a rejection, or its length is NaN or zero.
    pub fn is_stuck(&self) -> bool {
        self.length.is_nan() || self.rejected && self.length < self.shortest()
    }

    /// The length that the controller requested, without the limits.
    pub fn length(&self) -> f64 {
        self.length
    }

    /// Length of the next attempt without a target.
    fn planned(&self) -> f64 {
        self.length.clamp(self.shortest(), self.longest.max(self.shortest()))
    }

    fn shortest(&self) -> f64 {
        f64::max(self.least, resolution(self.time))
    }
}

/// Ten units in the last place of a time.
pub(super) fn resolution(time: f64) -> f64 {
    10.0 * (time.abs().next_up() - time.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn course(time: f64, first_step: f64) -> Course {
        Course::new(time, first_step, &Controller::new(1e-4, 1e-6), 5)
    }

    /// Steps end exactly at the target in both directions, and a rejection shortens them.
    #[test]
    fn steps_end_at_the_target() {
        for (start, target) in [(1.0, 2.0), (2.0, 1.0), (-0.5, -1.5), (1e6, 1e6 + 1.0)] {
            let mut course = course(start, 0.4).with_rounding(1e-5);
            let end = course.next_end(target);
            assert!(((end - start).abs() - 0.4).abs() < 1e-9);
            assert!(!course.judge(32.0, target), "an error 32 times the tolerance is too large");
            let end = course.next_end(target);
            assert!(((end - start).abs() - 0.18).abs() < 1e-9);
            assert!(course.judge(0.9_f64.powi(5), target));
            while course.time() != target {
                assert!(course.judge(1e-3, target) && (course.time() - start).abs() <= 1.0);
            }
            let beyond = target + 0.5 * (target - start);
            assert_eq!(course.next_end(beyond), beyond, "a step cut short keeps its planned length");
        }
    }

    #[test]
    fn rejections_end_at_the_least_step() {
        for error in [f64::NAN, f64::INFINITY, 1e9] {
            let mut course = course(0.0, 0.1).with_least(1e-6);
            let mut attempts = 0;
            while !course.is_stuck() {
                assert!(!course.judge(error, 1.0));
                attempts += 1;
                assert!(attempts < 100);
            }
        }
        assert!(course(0.0, f64::NAN).is_stuck());
    }

    #[test]
    fn no_step_is_longer_than_the_longest() {
        let controller = Controller { max_step: 0.05, ..Controller::new(1e-4, 1e-6) };
        let mut course = Course::new(0.0, 0.4, &controller, 5);
        let mut steps = 0;
        while course.time() != 1.0 {
            assert!(course.next_length(1.0) <= 0.05 + 1e-12);
            assert!(course.judge(0.0, 1.0));
            steps += 1;
        }
        assert_eq!(steps, 20);
    }
}
