//! Noise added to a path between its knots.

/// The noise schedule `gamma(t) = gamma_0 tau^m (1 - tau)^m` with `tau = (t - t_k) / (t_(k+1) - t_k)` on each segment
/// (section "Segment Interpolation" of the paper). It vanishes at the knots and is `m - 1` times continuously
/// differentiable.
///
/// The interpolant is `I(t) = s(t) + gamma(t) z` and its velocity `s'(t) + gamma'(t) z` with standard normal `z`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseSchedule {
    /// `gamma_0`, in units of the state; 0 switches the noise off. The paper uses 1e-5, for shallow water 1e-6.
    pub amplitude: f64,
    /// `m`. The paper uses 3; 0 gives constant noise that does not vanish at the knots.
    pub exponent: u32,
    /// Rate at which the noise decays along the path, per unit of time, in addition to the schedule; 0 in the paper. A
    /// velocity field trained with it damps perturbations at this rate.
    pub decay: f64,
}

impl NoiseSchedule {
    /// No noise at all.
    pub const NONE: Self = Self { amplitude: 0.0, exponent: 3, decay: 0.0 };

    /// `gamma` at the local coordinate `tau` of a segment.
    pub fn gamma(&self, tau: f64) -> f64 {
        self.amplitude * power(tau * (1.0 - tau), self.exponent)
    }

    /// The noise's contribution to the velocity at `tau` of a segment of length `length`: `gamma' - decay gamma` with
    /// `gamma' = gamma_0 m (tau (1 - tau))^(m-1) (1 - 2 tau) / length`.
    pub fn rate(&self, tau: f64, length: f64) -> f64 {
        self.slope(tau, length) - self.decay * self.gamma(tau)
    }

    fn slope(&self, tau: f64, length: f64) -> f64 {
        let Some(below) = self.exponent.checked_sub(1) else { return 0.0 };
        let slope = f64::from(self.exponent) * power(tau * (1.0 - tau), below) * (1.0 - 2.0 * tau);
        self.amplitude * slope / length
    }
}

impl Default for NoiseSchedule {
    /// The paper's schedule: amplitude 1e-5, exponent 3.
    fn default() -> Self {
        Self { amplitude: 1e-5, exponent: 3, decay: 0.0 }
    }
}

/// `base^exponent` for exponents of any size (`powi` takes an `i32`).
fn power(base: f64, exponent: u32) -> f64 {
    match i32::try_from(exponent) {
        Ok(exponent) => base.powi(exponent),
        Err(_) => base.powf(f64::from(exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn vanishes_at_knots_and_peaks_in_the_middle() {
        for exponent in 1..8 {
            let noise = NoiseSchedule { amplitude: 2.5, exponent, ..NoiseSchedule::NONE };
            assert_eq!((noise.gamma(0.0), noise.gamma(1.0)), (0.0, 0.0));
            assert_eq!(noise.rate(0.5, 0.1), 0.0);
            assert_eq!(noise.gamma(0.5), 2.5 * 0.25_f64.powi(exponent as i32));
            if exponent > 1 {
                assert_eq!((noise.rate(0.0, 0.1), noise.rate(1.0, 0.1)), (0.0, 0.0));
            }
        }
        assert_eq!(NoiseSchedule { amplitude: 3.0, exponent: 1, ..NoiseSchedule::NONE }.rate(0.0, 0.5), 6.0);
        let constant = NoiseSchedule { amplitude: 3.0, exponent: 0, ..NoiseSchedule::NONE };
        assert_eq!((constant.gamma(0.0), constant.rate(0.3, 0.1)), (3.0, 0.0));
        assert_eq!(NoiseSchedule::NONE.gamma(0.3), 0.0);
        assert_eq!(
            NoiseSchedule { amplitude: 1.0, exponent: u32::MAX, ..NoiseSchedule::NONE }.gamma(0.5),
            0.0
        );
    }

    proptest! {
        #[test]
        fn decay_pulls_back(tau in 0.0..1.0_f64, decay in 0.0..50.0_f64, exponent in 0..5_u32) {
            let still = NoiseSchedule { amplitude: 0.3, exponent, decay: 0.0 };
            let fading = NoiseSchedule { decay, ..still };
            prop_assert_eq!(fading.gamma(tau), still.gamma(tau));
            prop_assert_eq!(fading.rate(tau, 0.2), still.rate(tau, 0.2) - decay * still.gamma(tau));
        }

        #[test]
        fn rate_is_the_derivative(
            exponent in 0..9_u32,
            amplitude in -10.0..10.0_f64,
            tau in 0.01..0.99_f64,
            length in 1e-6..1e6_f64,
        ) {
            // A central difference of step d has the error d^2/6 |gamma'''|, and |gamma'''| <= (2 m)^3 |amplitude|;
            // round-off adds eps / d.
            let noise = NoiseSchedule { amplitude, exponent, ..NoiseSchedule::NONE };
            let step = 1e-5;
            let difference = (noise.gamma(tau + step) - noise.gamma(tau - step)) / (2.0 * step * length);
            let bound = amplitude.abs() / length * (step * step * (2.0 * f64::from(exponent)).powi(3) + 1e-10);
            prop_assert!((difference - noise.rate(tau, length)).abs() <= bound);
        }
    }
}
