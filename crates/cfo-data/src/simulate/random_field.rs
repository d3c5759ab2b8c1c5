//! Gaussian random fields on the periodic unit interval.

use std::f64::consts::TAU;

use cfo_numerics::Philox;
use realfft::num_complex::Complex;
use serde::{Deserialize, Serialize};

use super::{SimulationError, options};

/// Gaussian random field with mean zero and covariance `sigma^2 (-Laplacian + tau^2)^-gamma`.
///
/// It is the Karhunen-Loeve sum `sum_k lambda_k (xi_k cos(2 pi k x) + eta_k sin(2 pi k x))` with `lambda_k = sqrt(2)
/// sigma ((2 pi k)^2 + tau^2)^(-gamma/2)` and standard normal `xi_k`, `eta_k`. There is no constant mode, so every
/// field has mean zero.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RandomField {
    /// Amplitude: [`RandomField::PUBLIC_CODE`] by default, [`RandomField::PUBLISHED_TEXT`] for the published formula.
    pub sigma: f64,
    /// Inverse correlation length; 5 by default.
    pub tau: f64,
    /// Decay exponent; 4 by default.
    pub gamma: f64,
    /// Number of terms of the sum; 128 by default. The next term is below 1e-8 of the first.
    pub modes: usize,
}

impl RandomField {
    /// Amplitude in the code that generated the published data: 25 squared, and squared once more in the covariance.
    /// Fields have a standard deviation of 0.214.
    pub const PUBLIC_CODE: f64 = 625.0;
    /// Amplitude in the published formula, `25^2 (-Laplacian + 5^2)^-4`. Fields have a standard deviation of 0.0086,
    /// for which Burgers' equation is nearly linear.
    pub const PUBLISHED_TEXT: f64 = 25.0;

    pub(super) fn check(&self, last_mode: usize) -> Result<(), SimulationError> {
        options::positive("sigma", self.sigma)?;
        options::not_negative("tau", self.tau)?;
        options::between("gamma", self.gamma, 1.0, 32.0)?;
        options::between("modes", self.modes, 1, last_mode)
    }

    /// Standard deviation of the cosine and the sine of mode `k`.
    pub fn deviation(&self, k: usize) -> f64 {
        let wavenumber = TAU * k as f64;
        2f64.sqrt() * self.sigma * (wavenumber * wavenumber + self.tau * self.tau).powf(-self.gamma / 2.0)
    }

    /// Writes the Fourier coefficients of a random field. A mode's coefficients do not depend on the number of modes.
    pub(super) fn draw(&self, random: &mut Philox, coefficients: &mut [Complex<f64>]) {
        for (k, coefficient) in coefficients.iter_mut().enumerate().skip(1).take(self.modes) {
            let (cosine, sine) = (random.normal(), random.normal());
            *coefficient = Complex::new(cosine, -sine) * (0.5 * self.deviation(k));
        }
    }
}

impl Default for RandomField {
    fn default() -> Self {
        Self { sigma: Self::PUBLIC_CODE, tau: 5.0, gamma: 4.0, modes: 128 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_the_documented_ones() {
        let field = RandomField::default();
        for (k, expected) in [0.212601, 0.026418, 0.0061112, 0.0020498].into_iter().enumerate() {
            assert!((field.deviation(k + 1) / expected - 1.0).abs() < 3e-5, "mode {}", k + 1);
        }
        let pointwise = (1..=128).map(|k| field.deviation(k).powi(2)).sum::<f64>().sqrt();
        assert!((pointwise - 0.214336).abs() < 1e-6, "{pointwise}");
        let slope = (1..=128).map(|k| (TAU * k as f64 * field.deviation(k)).powi(2)).sum::<f64>().sqrt();
        assert!((slope - 1.38265).abs() < 1e-5, "{slope}");
        let text = RandomField { sigma: RandomField::PUBLISHED_TEXT, ..field.clone() };
        assert!((text.deviation(3) * 25.0 / field.deviation(3) - 1.0).abs() < 1e-14);
    }

    #[test]
    fn draws_have_the_stated_deviation() {
        let field = RandomField::default();
        let mut sums = [0.0; 3];
        for index in 0..4000 {
            let mut modes = vec![Complex::ZERO; 130];
            field.draw(&mut Philox::new(0, index), &mut modes);
            assert_eq!((modes[0], modes[129]), (Complex::ZERO, Complex::ZERO));
            for (k, sum) in sums.iter_mut().enumerate() {
                *sum += modes[k + 1].norm_sqr() / 4000.0;
            }
        }
        for (k, sum) in sums.into_iter().enumerate() {
            // |c|^2 is lambda^2/4 times chi-squared with 2 degrees: relative error of the mean 1/sqrt(4000), five of them.
            let expected = field.deviation(k + 1).powi(2) / 2.0;
            assert!((sum / expected - 1.0).abs() < 0.08, "mode {}: {sum} {expected}", k + 1);
        }
    }
}
