//! Where a sample of a batch stands in its window, and how long its next step is.

use cfo_numerics::ode::{Controller, StepControl};

/// A rest of an interval that is longer than the next step by less than this share is gone in one.
const ROUNDING: f64 = 1e-5;
/// Least step, as a share of the interval: rounding in single precision leaves nothing of a shorter one.
const LEAST: f64 = 1e-6;

/// One sample.
#[derive(Clone, Debug)]
pub(super) struct Course {
    /// Time at the start of the interval.
    start: f64,
    /// Length of the interval.
    interval: f64,
    /// How far it has come in it.
    passed: f64,
    /// Length of the next attempt, if nothing ends it earlier.
    length: f64,
    control: StepControl,
}

impl Course {
    /// At the start of its window.
    pub(super) fn new(start: f64, first_step: f64, controller: &Controller, error_order: usize) -> Self {
        let control = controller.start(error_order);
        Self { start, interval: 0.0, passed: 0.0, length: first_step, control }
    }

    /// Goes on to the next interval, of this length.
    pub(super) fn enter(&mut self, interval: f64) {
        self.start += self.interval;
        (self.interval, self.passed) = (interval, 0.0);
    }

    /// The time that it has come to.
    pub(super) fn time(&self) -> f64 {
        self.start + self.passed
    }

    /// The next attempt's length; 0 at the end of the interval.
    pub(super) fn next_length(&self) -> f64 {
        let rest = self.interval - self.passed;
        if self.length < rest * (1.0 - ROUNDING) { self.length } else { rest }
    }

    /// Whether an attempt of this length counts; if so the time moves.
    pub(super) fn judge(&mut self, error: f64, length: f64) -> bool {
        let decision = self.control.decide(error);
        let next = length * decision.factor;
        if !decision.accept {
            self.length = next;
            return false;
        }
        let arrives = length >= self.interval - self.passed;
        // A step cut short to end with the interval says nothing against the length it was cut from.
        self.length = if arrives { next.max(self.length) } else { next };
        self.passed = if arrives { self.interval } else { self.passed + length };
        true
    }

    /// Whether there is no sense in another attempt.
    pub(super) fn is_hopeless(&self) -> bool {
        self.length < LEAST * self.interval
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps end exactly with the interval, and a rejection makes them shorter.
    #[test]
    fn steps_fill_the_interval() {
        let mut course = Course::new(1.0, 0.4, &Controller::new(1e-4, 1e-6), 5);
        course.enter(1.0);
        assert_eq!(course.next_length(), 0.4);
        assert!(!course.judge(32.0, 0.4), "an error 32 times the tolerance is too much");
        assert!((course.next_length() - 0.18).abs() < 1e-12);
        assert!(course.judge(0.9_f64.powi(5), 0.18), "the factor of caution: as long again");
        assert!((course.time() - 1.18).abs() < 1e-12);
        while course.next_length() > 0.0 {
            assert!(course.judge(1e-3, course.next_length()) && course.time() <= 2.0);
        }
        assert_eq!(course.time(), 2.0);
        course.enter(0.5);
        assert_eq!(course.next_length(), 0.5, "what was cut short by the end is not forgotten");
        for _ in 0..20 {
            assert!(!course.judge(f64::NAN, course.next_length()));
        }
        assert!(course.is_hopeless());
    }
}
