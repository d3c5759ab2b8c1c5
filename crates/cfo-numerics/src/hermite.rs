//! Hermite basis polynomials of degree `2s + 1` on the unit segment.
//!
//! `H(tau) = sum_k h^k (f^(k)(t) L_k(tau) + f^(k)(t') R_k(tau))` matches values and the first `s` derivatives at both
//! ends of a segment of length `h`. With `sigma = 1 - tau`
//!
//! ```text
//! L_k(tau) = tau^k / k!  sigma^(s+1)  sum_(j=0)^(s-k) C(s+j, j) tau^j,     R_k(tau) = (-1)^k L_k(sigma)
//! ```
//!
//! For `s = 2`, `H_k0` and `H_k1` of the appendix "Quintic Hermite Interpolation", factored to be exact at both ends.

/// Largest number of matched derivatives that is supported.
pub(crate) const MAX_SMOOTHNESS: usize = 8;

/// The basis polynomials and their derivatives in `tau` at one point; zero from `s + 1` on, up to `N`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Basis<const N: usize> {
    /// `[L_k, R_k]`: weights on the derivatives at the left and at the right knot.
    pub value: [[f64; N]; 2],
    /// Derivatives of `value` with respect to `tau`.
    pub rate: [[f64; N]; 2],
}

impl<const N: usize> Basis<N> {
    /// Basis of smoothness `s < N` at `tau`.
    #[inline]
    pub(crate) fn new(smoothness: usize, tau: f64) -> Self {
        let sigma = 1.0 - tau;
        let (left, left_rate) = side(smoothness, tau, sigma);
        let (mut right, mut right_rate) = side(smoothness, sigma, tau);
        for k in 0..=smoothness {
            // R_k(tau) = (-1)^k L_k(1 - tau), and the chain rule flips the sign of its derivative again.
            if k % 2 == 1 {
                right[k] = -right[k];
            } else {
                right_rate[k] = -right_rate[k];
            }
        }
        Self { value: [left, right], rate: [left_rate, right_rate] }
    }
}

/// `L_k(tau)` and `L_k'(tau)` for `k = 0..=s`; closed forms where the paper has them.
#[inline]
fn side<const N: usize>(smoothness: usize, tau: f64, sigma: f64) -> ([f64; N], [f64; N]) {
    let (mut value, mut rate) = ([0.0; N], [0.0; N]);
    match smoothness {
        0 => {
            value[0] = sigma;
            rate[0] = -1.0;
        }
        1 => {
            value[0] = sigma * sigma * (1.0 + 2.0 * tau);
            value[1] = tau * sigma * sigma;
            rate[0] = -6.0 * tau * sigma;
            rate[1] = sigma * (1.0 - 3.0 * tau);
        }
        2 => {
            let square = sigma * sigma;
            value[0] = square * sigma * (1.0 + 3.0 * tau + 6.0 * tau * tau);
            value[1] = square * sigma * tau * (1.0 + 3.0 * tau);
            value[2] = 0.5 * square * sigma * tau * tau;
            rate[0] = -30.0 * square * tau * tau;
            rate[1] = square * (1.0 - 3.0 * tau) * (1.0 + 5.0 * tau);
            rate[2] = 0.5 * square * tau * (2.0 - 5.0 * tau);
        }
        _ => general_side(smoothness, tau, sigma, &mut value, &mut rate),
    }
    (value, rate)
}

/// The formula at the head of this file, by the product rule, for any smoothness.
fn general_side(smoothness: usize, tau: f64, sigma: f64, value: &mut [f64], rate: &mut [f64]) {
    let fall = sigma.powi(smoothness as i32);
    let mut power = 1.0; // tau^k / k!
    let mut power_rate = 0.0; // its derivative, tau^(k-1) / (k-1)!
    for k in 0..=smoothness {
        let (mut sum, mut sum_rate) = (0.0, 0.0);
        for j in (0..=smoothness - k).rev() {
            sum_rate = sum_rate * tau + sum;
            sum = sum * tau + binomial(smoothness + j, j);
        }
        value[k] = power * fall * sigma * sum;
        rate[k] = fall
            * (power_rate * sigma * sum - power * (smoothness + 1) as f64 * sum + power * sigma * sum_rate);
        power_rate = power;
        power *= tau / (k + 1) as f64;
    }
}

fn binomial(n: usize, k: usize) -> f64 {
    (0..k).fold(1.0, |product, i| product * (n - i) as f64 / (i + 1) as f64).round()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Basis = super::Basis<{ MAX_SMOOTHNESS + 1 }>;

    /// Coefficients of the polynomial of the paper's appendix, lowest power first.
    const QUINTIC: [[[f64; 6]; 3]; 2] = [
        [
            [1.0, 0.0, 0.0, -10.0, 15.0, -6.0],
            [0.0, 1.0, 0.0, -6.0, 8.0, -3.0],
            [0.0, 0.0, 0.5, -1.5, 1.5, -0.5],
        ],
        [
            [0.0, 0.0, 0.0, 10.0, -15.0, 6.0],
            [0.0, 0.0, 0.0, -4.0, 7.0, -3.0],
            [0.0, 0.0, 0.0, 0.5, -1.0, 0.5],
        ],
    ];

    #[test]
    fn quintic_is_the_papers() {
        for step in 0..=20 {
            let tau = f64::from(step) / 20.0;
            let basis = Basis::new(2, tau);
            for (side, polynomials) in QUINTIC.iter().enumerate() {
                for (k, polynomial) in polynomials.iter().enumerate() {
                    let terms = polynomial.iter().enumerate();
                    let value: f64 = terms.clone().map(|(p, c)| c * tau.powi(p as i32)).sum();
                    let rate: f64 = terms.skip(1).map(|(p, c)| c * p as f64 * tau.powi(p as i32 - 1)).sum();
                    assert!((basis.value[side][k] - value).abs() < 1e-14);
                    assert!((basis.rate[side][k] - rate).abs() < 1e-13);
                }
            }
        }
    }

    #[test]
    fn closed_forms_are_the_general_formula() {
        for smoothness in 0..3 {
            for step in -5..=25 {
                let tau = f64::from(step) / 20.0;
                let (value, rate) = side::<9>(smoothness, tau, 1.0 - tau);
                let (mut general, mut general_rate) = ([0.0; 9], [0.0; 9]);
                general_side(smoothness, tau, 1.0 - tau, &mut general, &mut general_rate);
                for k in 0..=smoothness {
                    assert!((value[k] - general[k]).abs() < 1e-13);
                    assert!((rate[k] - general_rate[k]).abs() < 1e-12);
                }
            }
        }
    }

    /// Hermite interpolation of degree `2s + 1` reproduces every monomial up to that degree; this fixes the basis
    /// uniquely.
    #[test]
    fn every_smoothness_reproduces_monomials() {
        for smoothness in 0..=MAX_SMOOTHNESS {
            for power in 0..=2 * smoothness + 1 {
                let derivative = |x: f64, k: usize| -> f64 {
                    if k > power {
                        return 0.0;
                    }
                    (power - k + 1..=power).map(|p| p as f64).product::<f64>() * x.powi((power - k) as i32)
                };
                for step in 0..=10 {
                    let tau = f64::from(step) / 10.0;
                    let basis = Basis::new(smoothness, tau);
                    let combine = |rows: &[[f64; MAX_SMOOTHNESS + 1]; 2]| -> (f64, f64) {
                        let terms = (0..=smoothness)
                            .flat_map(|k| [rows[0][k] * derivative(0.0, k), rows[1][k] * derivative(1.0, k)]);
                        terms.fold((0.0, 1.0), |(sum, size), x| (sum + x, f64::max(size, x.abs())))
                    };
                    let (value, size) = combine(&basis.value);
                    assert!((value - derivative(tau, 0)).abs() < 1e-14 * size, "{smoothness} {power} {tau}");
                    let (rate, size) = combine(&basis.rate);
                    assert!((rate - derivative(tau, 1)).abs() < 1e-13 * size, "{smoothness} {power} {tau}");
                }
            }
        }
    }

    #[test]
    fn ends_are_exact() {
        for smoothness in 0..=MAX_SMOOTHNESS {
            for (tau, here) in [(0.0, 0), (1.0, 1)] {
                let basis = Basis::new(smoothness, tau);
                for k in 0..=smoothness {
                    assert_eq!(basis.value[here][k], if k == 0 { 1.0 } else { 0.0 });
                    assert_eq!(basis.value[1 - here][k], 0.0);
                    if smoothness > 0 {
                        assert_eq!(basis.rate[here][k], if k == 1 { 1.0 } else { 0.0 });
                        assert_eq!(basis.rate[1 - here][k], 0.0);
                    }
                }
            }
        }
    }
}
