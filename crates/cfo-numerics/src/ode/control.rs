//! Step size control from error estimates.

use super::OdeError;

/// Settings of adaptive steps: a PID controller on the scaled error `E`.
///
/// `E` is the root mean square of `err_i / (atol + rtol max(|u_i|, |u'_i|))`; a step is accepted when `E < 1`. With `r
/// = 1 / E` of this step, `r_1` and `r_2` of the two accepted steps before it and the method's error order `q`, the
/// next step is longer by the factor
///
/// ```text
/// safety  r^((I + P + D) / q)  r_1^(-(P + 2 D) / q)  r_2^(D / q)
/// ```
///
/// limited to [`accepted_factor`](Self::accepted_factor) or [`rejected_factor`](Self::rejected_factor).
/// [`Controller::new`] has the defaults of diffrax, [`Controller::scipy`] those of SciPy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Controller {
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance, in units of the state.
    pub atol: f64,
    /// Coefficient P; 0 by default. (P, I) = (0.4, 0.3) or (0.3, 0.3) avoid rejections where stability limits the step.
    pub proportional: f64,
    /// Coefficient I; 1 by default.
    pub integral: f64,
    /// Coefficient D; 0 by default.
    pub derivative: f64,
    /// Safety factor; 0.9 by default.
    pub safety: f64,
    /// Least and greatest factor after an accepted step; `[1, 10]` by default, so that the step never shrinks.
    pub accepted_factor: [f64; 2],
    /// Least and greatest factor after a rejected step; `[0.2, 0.9]` by default.
    pub rejected_factor: [f64; 2],
    /// Whether the step may grow right after a rejection; yes by default.
    pub growth_after_rejection: bool,
    /// Limit on attempted steps of a whole integration; 100,000 by default.
    pub max_steps: u64,
    /// Longest step; unlimited by default.
    pub max_step: f64,
    /// First step; by default it is computed from two evaluations of the field (see [`first_step`]).
    pub first_step: Option<f64>,
    /// Whether steps end at every output time instead of passing it and interpolating; no by default.
    pub stop_at_outputs: bool,
}

impl Controller {
    /// The integral controller that diffrax uses by default.
    pub fn new(rtol: f64, atol: f64) -> Self {
        Self {
            rtol,
            atol,
            proportional: 0.0,
            integral: 1.0,
            derivative: 0.0,
            safety: 0.9,
            accepted_factor: [1.0, 10.0],
            rejected_factor: [0.2, 0.9],
            growth_after_rejection: true,
            max_steps: 100_000,
            max_step: f64::INFINITY,
            first_step: None,
            stop_at_outputs: false,
        }
    }

    /// The rules of SciPy's `solve_ivp`, whose default tolerances are 1e-3 and 1e-6. An accepted step may be followed
    /// by a shorter one. After a rejection the next step does not grow. With [`DOPRI5`](super::DOPRI5) this reproduces
    /// `RK45` step for step.
    pub fn scipy(rtol: f64, atol: f64) -> Self {
        Self { accepted_factor: [0.0, 10.0], growth_after_rejection: false, ..Self::new(rtol, atol) }
    }

    /// The controller's state for a new integration with a method whose error estimate falls as `h^error_order`.
    pub fn start(&self, error_order: usize) -> StepControl {
        StepControl {
            controller: *self,
            order: error_order as f64,
            previous: 1.0,
            before_previous: 1.0,
            rejected: false,
        }
    }

    pub(super) fn check(&self) -> Result<(), OdeError> {
        let Self { rtol, atol, .. } = *self;
        let valid = rtol >= 0.0 && atol >= 0.0 && rtol + atol > 0.0 && (rtol + atol).is_finite();
        if !valid {
            return Err(OdeError::InvalidTolerance { rtol, atol });
        }
        match [Some(self.max_step), self.first_step]
            .into_iter()
            .flatten()
            .find(|step| step.is_nan() || *step <= 0.0)
        {
            Some(step) => Err(OdeError::InvalidStep(step)),
            None => Ok(()),
        }
    }
}

impl Default for Controller {
    /// The paper's tolerances for neural ODEs: rtol 1e-4, atol 1e-6.
    fn default() -> Self {
        Self::new(1e-4, 1e-6)
    }
}

/// The controller's decision about an attempted step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Whether the step is accepted; otherwise it is repeated with a shorter length.
    pub accept: bool,
    /// The next attempt's length in units of this one's.
    pub factor: f64,
}

/// State of a step size controller. It uses errors, not states, so host and device integrators share it.
///
/// ```
/// use cfo_numerics::ode::Controller;
///
/// let mut control = Controller::new(1e-4, 1e-6).start(5);
/// let decision = control.decide(32.0); // error 32 times the tolerance
/// assert!(!decision.accept && (decision.factor - 0.9 / 2.0).abs() < 1e-15);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepControl {
    controller: Controller,
    order: f64,
    previous: f64,
    before_previous: f64,
    rejected: bool,
}

impl StepControl {
    /// Decides about an attempted step from its scaled error `E`, and stores it. NaN and infinity reject the step.
    pub fn decide(&mut self, error: f64) -> Decision {
        let Controller { proportional: p, integral: i, derivative: d, safety, .. } = self.controller;
        let accept = error < 1.0;
        let inverse = 1.0 / error;
        let root = |r: f64, gain: f64| if gain == 0.0 { 1.0 } else { r.powf(gain / self.order) };
        let wish = safety
            * root(inverse, i + p + d)
            * root(self.previous, -(p + 2.0 * d))
            * root(self.before_previous, d);
        let [least, mut greatest] =
            if accept { self.controller.accepted_factor } else { self.controller.rejected_factor };
        if accept && self.rejected && !self.controller.growth_after_rejection {
            greatest = f64::min(greatest, 1.0);
        }
        // `max` and `min` drop a NaN, so a NaN error shrinks the step as far as allowed.
        let factor = if wish.is_nan() { least } else { wish.max(least).min(greatest) };
        if accept {
            self.before_previous = self.previous;
            self.previous = if inverse.is_finite() && inverse > 0.0 { inverse } else { 1.0 };
        }
        self.rejected = !accept;
        Decision { accept, factor }
    }
}

/// Length of the first step by the rule of Hairer, Nørsett and Wanner, as in SciPy and diffrax.
///
/// `d0` is the norm of `u`, `d1` the norm of `f(t, u)` at the initial state. `d2(h)` is the norm of the change of `f`
/// over an Euler step of length `h`, divided by `h`. Norms are root mean squares with each entry divided by `atol +
/// rtol |u_i|`. `interval` is the length of the whole integration.
pub fn first_step(d0: f64, d1: f64, error_order: usize, interval: f64, d2: impl FnOnce(f64) -> f64) -> f64 {
    let guess = if d0 < 1e-5 || d1 < 1e-5 { 1e-6 } else { 0.01 * d0 / d1 };
    let guess = f64::min(guess, interval);
    let steepest = f64::max(d1, d2(guess));
    let refined = if steepest <= 1e-15 {
        f64::max(1e-6, 1e-3 * guess)
    } else {
        (0.01 / steepest).powf(1.0 / error_order as f64)
    };
    (100.0 * guess).min(refined).min(interval)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffrax_limits() {
        let mut control = Controller::new(1e-3, 1e-6).start(5);
        assert_eq!(control.decide(0.0), Decision { accept: true, factor: 10.0 });
        assert_eq!(control.decide(0.99), Decision { accept: true, factor: 1.0 });
        assert_eq!(control.decide(1.0), Decision { accept: false, factor: 0.9 });
        for bad in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(control.decide(bad), Decision { accept: false, factor: 0.2 });
        }
        // After a rejection a step may grow again.
        assert!(control.decide(1e-3).factor > 3.0);
    }

    #[test]
    fn scipy_limits() {
        let mut control = Controller::scipy(1e-3, 1e-6).start(5);
        assert_eq!(control.decide(0.0), Decision { accept: true, factor: 10.0 });
        assert!((control.decide(0.99).factor - 0.9 * 0.99_f64.powf(-0.2)).abs() < 1e-15);
        assert!(!control.decide(2.0).accept);
        assert_eq!(control.decide(1e-4), Decision { accept: true, factor: 1.0 });
        assert!(control.decide(1e-4).factor > 5.0);
        assert_eq!(control.decide(f64::NAN), Decision { accept: false, factor: 0.2 });
    }

    #[test]
    fn memory_shifts_on_acceptance_alone() {
        let controller =
            Controller { proportional: 0.4, integral: 0.3, derivative: 0.1, ..Controller::default() };
        let mut control = controller.start(5);
        let (e1, e2, e3) = (0.5_f64, 0.4_f64, 0.3_f64);
        control.decide(e1);
        control.decide(7.0);
        control.decide(e2);
        let factor = control.decide(e3).factor;
        let expected = 0.9 * e3.powf(-0.8 / 5.0) * e2.powf(0.6 / 5.0) * e1.powf(-0.1 / 5.0);
        assert!((factor - expected.clamp(1.0, 10.0)).abs() < 1e-14);
    }

    #[test]
    fn settings_are_checked() {
        for (rtol, atol) in [(0.0, 0.0), (-1.0, 1.0), (f64::NAN, 1e-6), (1e-3, f64::INFINITY)] {
            assert!(matches!(Controller::new(rtol, atol).check(), Err(OdeError::InvalidTolerance { .. })));
        }
        for step in [0.0, -1.0, f64::NAN] {
            let first = Controller { first_step: Some(step), ..Controller::default() };
            let longest = Controller { max_step: step, ..Controller::default() };
            assert!(matches!(first.check(), Err(OdeError::InvalidStep(_))));
            assert!(matches!(longest.check(), Err(OdeError::InvalidStep(_))));
        }
        assert!(Controller::new(1e-3, 0.0).check().is_ok());
    }
}
