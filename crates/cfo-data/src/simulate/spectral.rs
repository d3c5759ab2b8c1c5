//! Spectral solver for periodic fields with the nonlinearity `-(u^2/2)_x` and a linear part that is diagonal in Fourier
//! space: ETDRK4 (Cox and Matthews 2002; Kassam and Trefethen 2005) with the 2/3 rule.

use std::cell::RefCell;
use std::f64::consts::TAU;
use std::sync::Arc;

use realfft::num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};

thread_local! {
    /// Cache of each thread's plans, by length.
    static PLANNER: RefCell<RealFftPlanner<f64>> = RefCell::new(RealFftPlanner::new());
}

/// Fourier coefficients of a real periodic field, from the constant to the last mode that the 2/3 rule keeps:
/// `u(x) = sum_k c_k exp(2 pi i k x/length)` over positive and negative k.
pub(super) type Modes = Vec<Complex<f64>>;

/// A periodic grid with the transforms between modes and points.
pub(super) struct PeriodicGrid {
    points: usize,
    inverse: Arc<dyn ComplexToReal<f64>>,
    forward: Arc<dyn RealToComplex<f64>>,
    spectrum: Vec<Complex<f64>>,
    field: Vec<f64>,
    scratch: Vec<Complex<f64>>,
}

impl PeriodicGrid {
    pub(super) fn new(points: usize) -> Self {
        let (inverse, forward) = PLANNER
            .with_borrow_mut(|planner| (planner.plan_fft_inverse(points), planner.plan_fft_forward(points)));
        let scratch = inverse.get_scratch_len().max(forward.get_scratch_len());
        Self {
            points,
            spectrum: inverse.make_input_vec(),
            field: inverse.make_output_vec(),
            scratch: vec![Complex::ZERO; scratch],
            inverse,
            forward,
        }
    }

    /// The last mode kept on a grid of `points` points: squares of kept modes alias only to dropped modes.
    pub(super) fn last_mode(points: usize) -> usize {
        points.saturating_sub(1) / 3
    }

    pub(super) fn zero_modes(&self) -> Modes {
        vec![Complex::ZERO; Self::last_mode(self.points) + 1]
    }

    pub(super) fn points(&self) -> usize {
        self.points
    }

    /// The field at the grid points.
    pub(super) fn field(&mut self, modes: &[Complex<f64>]) -> &[f64] {
        self.transform(modes);
        &self.field
    }

    fn transform(&mut self, modes: &[Complex<f64>]) {
        self.spectrum[..modes.len()].copy_from_slice(modes);
        self.spectrum[modes.len()..].fill(Complex::ZERO);
        // The mean of a real field is real; a NaN is detected in the modes.
        self.spectrum[0].im = 0.0;
        self.inverse
            .process_with_scratch(&mut self.spectrum, &mut self.field, &mut self.scratch)
            .expect("buffers were made by the plan, and the constant and the last mode are real");
    }

    /// Coefficients of the square of a field, times the number of points.
    fn square(&mut self, modes: &[Complex<f64>]) -> &[Complex<f64>] {
        self.transform(modes);
        for value in &mut self.field {
            *value *= *value;
        }
        self.forward
            .process_with_scratch(&mut self.field, &mut self.spectrum, &mut self.scratch)
            .expect("buffers were made by the plan");
        &self.spectrum[..modes.len()]
    }
}

/// Largest amplitude of the last eighth of the modes relative to the largest of all: a measure of resolution.
pub(super) fn tail_share(modes: &[Complex<f64>]) -> f64 {
    let most =
        |part: &[Complex<f64>]| part.iter().fold(0.0f64, |most, mode| most.max(mode.norm_sqr())).sqrt();
    let largest = most(modes);
    if largest == 0.0 { 0.0 } else { most(&modes[modes.len() - modes.len() / 8 - 1..]) / largest }
}

/// EtdWeights of one mode in a step; see the formulas of Kassam and Trefethen.
pub(super) struct EtdWeights {
    pub whole: f64,
    pub half: f64,
    pub stage: f64,
    pub first: f64,
    pub middle: f64,
    pub last: f64,
}

/// A step of fixed size for `u_t = L u - (u^2/2)_x`.
pub(super) struct Etdrk4 {
    weights: Vec<EtdWeights>,
    /// `-(i kappa/2)` divided by the number of points, imaginary part.
    advection: Vec<f64>,
    start: Modes,
    stages: [Modes; 2],
    nonlinear: [Modes; 3],
}

impl Etdrk4 {
    /// Creates a step `h` on a grid over `length`, with the linear part `linear(kappa)` at wavenumber `kappa`.
    pub(super) fn new(grid: &PeriodicGrid, length: f64, h: f64, linear: impl Fn(f64) -> f64) -> Self {
        let zero = grid.zero_modes();
        let kappa = |mode: usize| TAU / length * mode as f64;
        let weights = (0..zero.len()).map(|mode| EtdWeights::new(h, h * linear(kappa(mode)))).collect();
        let advection = (0..zero.len()).map(|mode| -0.5 * kappa(mode) / grid.points() as f64).collect();
        Self {
            weights,
            advection,
            start: zero.clone(),
            stages: [zero.clone(), zero.clone()],
            nonlinear: [zero.clone(), zero.clone(), zero],
        }
    }

    fn nonlinear(grid: &mut PeriodicGrid, advection: &[f64], modes: &[Complex<f64>], out: &mut Modes) {
        for ((out, square), factor) in out.iter_mut().zip(grid.square(modes)).zip(advection) {
            *out = Complex::new(-factor * square.im, factor * square.re);
        }
    }

    pub(super) fn step(&mut self, grid: &mut PeriodicGrid, modes: &mut Modes) {
        let Self { weights, advection, start, stages: [a, b], nonlinear: [n0, n1, n2] } = self;
        start.copy_from_slice(modes);
        Self::nonlinear(grid, advection, start, n0);
        for (k, w) in weights.iter().enumerate() {
            a[k] = start[k] * w.half + n0[k] * w.stage;
        }
        Self::nonlinear(grid, advection, a, n1);
        for (k, w) in weights.iter().enumerate() {
            b[k] = start[k] * w.half + n1[k] * w.stage;
        }
        Self::nonlinear(grid, advection, b, n2);
        for (k, w) in weights.iter().enumerate() {
            b[k] = a[k] * w.half + (n2[k] * 2.0 - n0[k]) * w.stage;
            n1[k] += n2[k];
        }
        Self::nonlinear(grid, advection, b, n2);
        for (k, w) in weights.iter().enumerate() {
            modes[k] = start[k] * w.whole + n0[k] * w.first + n1[k] * w.middle + n2[k] * w.last;
        }
    }
}

impl EtdWeights {
    /// Creates the weights of a step `h` for the linear part `z / h`.
    pub(super) fn new(h: f64, z: f64) -> Self {
        let [_, phi1, phi2, phi3] = phi(z);
        let [_, half_phi1, ..] = phi(z / 2.0);
        Self {
            whole: z.exp(),
            half: (z / 2.0).exp(),
            stage: h / 2.0 * half_phi1,
            first: h * (phi1 - 3.0 * phi2 + 4.0 * phi3),
            middle: h * (2.0 * phi2 - 4.0 * phi3),
            last: h * (4.0 * phi3 - phi2),
        }
    }
}

/// `phi_0 = exp(z)` and `phi_{k+1} = (phi_k - 1/k!)/z`, for k up to 3.
///
/// For small `z` the recurrence loses digits; there the series of `phi_3` and the reversed recurrence are accurate.
fn phi(z: f64) -> [f64; 4] {
    if z.abs() > 1.0 {
        let phi1 = (z.exp() - 1.0) / z;
        let phi2 = (phi1 - 1.0) / z;
        return [z.exp(), phi1, phi2, (phi2 - 0.5) / z];
    }
    // Terms z^j/(j + 3)!: the first omitted one is below 1/23!.
    let phi3 = (0..20).rev().fold(0.0, |sum, j| (1.0 + z * sum) / f64::from(j + 3)) / 2.0;
    let phi2 = 0.5 + z * phi3;
    let phi1 = 1.0 + z * phi2;
    [1.0 + z * phi1, phi1, phi2, phi3]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    /// The weights agree with means over a circle about z, as in the reference code.
    #[test]
    fn weights_agree_with_contour_means() {
        // The circle must stay away from 0, where the formulas under the mean cancel.
        for z in [-40.0, -15.6, -3.0, -1.25, -0.75, -0.3, -1e-3, -1e-9, 0.0, 1e-6, 0.005, 0.25, 2.0] {
            let mean = |f: &dyn Fn(Complex<f64>) -> Complex<f64>| {
                let on = |j: usize| z + Complex::from_polar(1.0, PI * (j as f64 + 0.5) / 64.0);
                (0..64).map(|j| f(on(j)).re).sum::<f64>() / 64.0
            };
            let w = EtdWeights::new(1.0, z);
            let expected = [
                mean(&|r| ((r / 2.0).exp() - 1.0) / r),
                mean(&|r| (-4.0 - r + r.exp() * (4.0 - 3.0 * r + r * r)) / (r * r * r)),
                mean(&|r| 2.0 * (2.0 + r + r.exp() * (r - 2.0)) / (r * r * r)),
                mean(&|r| (-4.0 - 3.0 * r - r * r + r.exp() * (4.0 - r)) / (r * r * r)),
            ];
            for (ours, theirs) in [w.stage, w.first, w.middle, w.last].into_iter().zip(expected) {
                // Both cancel terms of size ten near |z| = 1.
                assert!((ours - theirs).abs() < 1e-13, "z = {z}: {ours} {theirs}");
            }
        }
    }

    #[test]
    fn modes_and_points_belong_together() {
        let mut grid = PeriodicGrid::new(48);
        let mut modes = grid.zero_modes();
        modes[0] = Complex::new(0.5, 0.0);
        modes[3] = Complex::new(0.25, -1.0);
        let field = grid.field(&modes).to_vec();
        for (j, value) in field.iter().enumerate() {
            let angle = TAU * 3.0 * j as f64 / 48.0;
            assert!((value - (0.5 + 0.5 * angle.cos() + 2.0 * angle.sin())).abs() < 1e-14);
        }
    }

    /// The kept modes of a square are exact: no aliasing from any pair of kept modes.
    #[test]
    fn squares_are_not_aliased() {
        for points in [46, 47, 48, 49] {
            let mut grid = PeriodicGrid::new(points);
            let last = PeriodicGrid::last_mode(points);
            let mut modes = grid.zero_modes();
            modes[last] = Complex::new(0.5, 0.0);
            let square = grid.square(&modes).to_vec();
            // cos^2 = 1/2 + cos(2 last)/2: only the constant is kept.
            assert!((square[0].re / points as f64 - 0.5).abs() < 1e-14);
            assert!(square[1..].iter().all(|mode| mode.norm() < 1e-12), "{points} points: {square:?}");
        }
    }

    #[test]
    fn resolution_is_the_share_of_the_last_modes() {
        let mut modes = vec![Complex::ZERO; 80];
        assert_eq!(tail_share(&modes), 0.0);
        modes[1] = Complex::new(2.0, 0.0);
        assert_eq!(tail_share(&modes), 0.0);
        modes[79] = Complex::new(0.0, 0.5);
        assert_eq!(tail_share(&modes), 0.25);
    }
}
