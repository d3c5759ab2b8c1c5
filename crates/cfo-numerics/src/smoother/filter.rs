//! The Kalman filter of a time grid, which whitens series on it.
//!
//! The state is `x = (f, f', f'')`. Its covariance given the values so far is stored as `L D L'` with `L` unit lower
//! triangular. A value of `f` changes only the first entry of `D`. An interval adds to all entries by Gram-Schmidt
//! steps, so no entry of `D` becomes negative for any intervals.

use crate::stencil::power_of_two_near;

/// Dimension of the state, and number of coefficients of the unknown parabola.
pub(super) const STATES: usize = 3;

pub(super) type CurveState = [f64; STATES];

/// Cholesky factor of the covariance `[[1/20, 1/8, 1/6], [1/8, 1/3, 1/2], [1/6, 1/2, 1]]` that the process gains per
/// unit of time and intensity, as columns of a unit triangle and their weights.
const ADDED: [CurveState; STATES] = [[1.0, 2.5, 10.0 / 3.0], [0.0, 1.0, 4.0], [0.0, 0.0, 1.0]];
const ADDED_WEIGHTS: CurveState = [1.0 / 20.0, 1.0 / 48.0, 1.0 / 9.0];

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FilterStage {
    /// Interval from the previous time; 0 at the first.
    pub(super) length: f64,
    pub(super) noise: f64,
    pub(super) variance: f64,
    /// Kalman gain.
    pub(super) gain: CurveState,
    /// Covariance of `f` with the state, given the values up to this one.
    pub(super) covariance: CurveState,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Filter {
    pub(super) stages: Vec<FilterStage>,
    /// Orthonormal columns that span the whitened parabolas, `[times, 3]`.
    parabolas: Vec<CurveState>,
    /// Logarithm of the determinant of the covariance of series without their parabolas, up to a constant.
    pub(super) log_determinant: f64,
}

impl Filter {
    /// Builds the filter for increasing times, each measurement's variance, and the prior's intensity in `unit`.
    pub(super) fn new(times: &[f64], variances: &[f64], unit: f64, ratio: f64) -> Self {
        // Powers of two keep neighbouring times apart.
        let scale = power_of_two_near(unit);
        let intensity = ratio / (unit * scale).powi(5);
        let mut stages: Vec<FilterStage> = Vec::with_capacity(times.len());
        let (mut triangle, mut weights) =
            ([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], [0.0; STATES]);
        let mut log_determinant = 0.0;
        for (n, &noise) in variances.iter().enumerate() {
            let length = if n == 0 { 0.0 } else { (times[n] - times[n - 1]) * scale };
            if n > 0 {
                (triangle, weights) = predicted(&triangle, &weights, length, intensity);
            }
            let variance = weights[0] + noise;
            let gain = triangle[0].map(|entry| entry * weights[0] / variance);
            weights[0] *= noise / variance;
            log_determinant += variance.ln();
            let covariance = triangle[0].map(|entry| entry * weights[0]);
            stages.push(FilterStage { length, noise, variance, gain, covariance });
        }
        // A parabola's coefficients are scaled by the time in which the prior moves as much as the noise.
        let reach = intensity.powf(-0.2);
        let mut parabolas = parabolas(&stages, reach);
        let squares = orthonormalize(&mut parabolas);
        log_determinant += squares.iter().map(|square| square.max(f64::MIN_POSITIVE).ln()).sum::<f64>();
        log_determinant += 6.0 * reach.ln();
        Self { stages, parabolas, log_determinant }
    }

    /// Whitens `width` interleaved series, `[times, width]`, and removes their parabolas.
    pub(super) fn whiten(&self, series: &mut [f64], width: usize) {
        let mut state = vec![0.0; STATES * width];
        let (f, rest) = state.split_at_mut(width);
        let (slope, bend) = rest.split_at_mut(width);
        for (stage, values) in self.stages.iter().zip(series.chunks_exact_mut(width)) {
            let FilterStage { length: h, variance, gain, .. } = *stage;
            let (half, scale) = (0.5 * h * h, 1.0 / variance.sqrt());
            for (((value, f), slope), bend) in values.iter_mut().zip(&mut *f).zip(&mut *slope).zip(&mut *bend)
            {
                *f += h * *slope + half * *bend;
                *slope += h * *bend;
                let new = *value - *f;
                *f += gain[0] * new;
                *slope += gain[1] * new;
                *bend += gain[2] * new;
                *value = new * scale;
            }
        }
        for column in 0..STATES {
            let mut products = vec![0.0; width];
            let each = || self.parabolas.iter().map(move |row| row[column]);
            for (entry, values) in each().zip(series.chunks_exact(width)) {
                products.iter_mut().zip(values).for_each(|(product, value)| *product += entry * value);
            }
            for (entry, values) in each().zip(series.chunks_exact_mut(width)) {
                values.iter_mut().zip(&products).for_each(|(value, product)| *value -= entry * product);
            }
        }
    }

    /// Applies the transpose of the whitening (without projection) and the variances: the estimated noise.
    pub(super) fn noise_of(&self, series: &mut [f64], width: usize) {
        let mut later = vec![0.0; STATES * width];
        let (f, rest) = later.split_at_mut(width);
        let (slope, bend) = rest.split_at_mut(width);
        for (stage, values) in self.stages.iter().zip(series.chunks_exact_mut(width)).rev() {
            let FilterStage { length: h, noise, variance, gain, .. } = *stage;
            let (half, scale) = (0.5 * h * h, 1.0 / variance.sqrt());
            for (((value, f), slope), bend) in values.iter_mut().zip(&mut *f).zip(&mut *slope).zip(&mut *bend)
            {
                let found = *value * scale + gain[0] * *f + gain[1] * *slope + gain[2] * *bend;
                *f -= found;
                *bend += h * *slope + half * *f;
                *slope += h * *f;
                *value = noise * found;
            }
        }
    }

    /// Contribution of the unknown parabola to the deviation of `f` at each time: columns whose squares add up.
    pub(super) fn unknown_parabolas(&self) -> Vec<CurveState> {
        let mut columns: Vec<f64> = self.parabolas.iter().flatten().copied().collect();
        self.noise_of(&mut columns, STATES);
        columns.chunks_exact(STATES).map(|row| [row[0], row[1], row[2]]).collect()
    }

    /// Information of later values about the state at each time: the symmetric matrix `N` such that the covariance
    /// given all values is `P - P N P`, where `P` is the covariance given the values up to that time.
    pub(super) fn later_information(&self) -> Vec<[CurveState; STATES]> {
        let mut found = vec![[[0.0; STATES]; STATES]; self.stages.len()];
        let mut matrix = [[0.0; STATES]; STATES];
        for (stage, found) in self.stages.iter().zip(&mut found).rev() {
            *found = matrix;
            // Before the value: `(I - K H)' N (I - K H) + H' H / variance`.
            let moved: CurveState = std::array::from_fn(|i| dot(&matrix[i], &stage.gain));
            let both = dot(&moved, &stage.gain);
            for i in 1..STATES {
                matrix[0][i] -= moved[i];
                matrix[i][0] = matrix[0][i];
            }
            matrix[0][0] += both - 2.0 * moved[0] + 1.0 / stage.variance;
            // Before the interval: `F' N F`.
            let rows = matrix.map(|row| transposed(&row, stage.length));
            for i in 0..STATES {
                let column = transposed(&[rows[0][i], rows[1][i], rows[2][i]], stage.length);
                for (j, entry) in column.into_iter().enumerate() {
                    matrix[j][i] = entry;
                }
            }
        }
        found
    }
}

/// Propagates a state over an interval.
pub(super) fn moved(state: &CurveState, h: f64) -> CurveState {
    [state[0] + h * (state[1] + 0.5 * h * state[2]), state[1] + h * state[2], state[2]]
}

/// Transpose of [`moved`].
fn transposed(row: &CurveState, h: f64) -> CurveState {
    [row[0], row[1] + h * row[0], row[2] + h * (row[1] + 0.5 * h * row[0])]
}

pub(super) fn dot(one: &CurveState, other: &CurveState) -> f64 {
    one[0] * other[0] + one[1] * other[1] + one[2] * other[2]
}

/// Predicted covariance after an interval, as columns of a unit lower triangle and their weights.
fn predicted(
    triangle: &[CurveState; STATES],
    weights: &CurveState,
    length: f64,
    intensity: f64,
) -> ([CurveState; STATES], CurveState) {
    let units = [length * length, length, 1.0];
    let added: [CurveState; STATES] = ADDED.map(|column| std::array::from_fn(|i| column[i] * units[i]));
    let before = triangle.map(|column| moved(&column, length));
    let (mut columns, mut shares) = ([[0.0; 2 * STATES]; STATES], [[0.0; 2 * STATES]; STATES]);
    let mut all = [0.0; 2 * STATES];
    for k in 0..STATES {
        all[k] = weights[k];
        all[STATES + k] = ADDED_WEIGHTS[k] * intensity * length;
        for i in 0..STATES {
            columns[i][k] = before[k][i];
            columns[i][STATES + k] = added[k][i];
        }
    }
    let (mut triangle, mut weights) = ([[0.0; STATES]; STATES], [0.0; STATES]);
    for i in 0..STATES {
        for k in 0..2 * STATES {
            shares[i][k] = columns[i][k] * all[k];
        }
        weights[i] = (0..2 * STATES).map(|k| columns[i][k] * shares[i][k]).sum();
        triangle[i][i] = 1.0;
        if weights[i] <= 0.0 {
            continue;
        }
        for j in i + 1..STATES {
            let product: f64 = (0..2 * STATES).map(|k| columns[j][k] * shares[i][k]).sum();
            triangle[i][j] = product / weights[i];
            let own = columns[i];
            columns[j].iter_mut().zip(own).for_each(|(entry, own)| *entry -= triangle[i][j] * own);
        }
    }
    (triangle, weights)
}

/// Whitened `1`, `t / reach` and `(t / reach)^2 / 2`, with `t` relative to the first time.
fn parabolas(stages: &[FilterStage], reach: f64) -> Vec<CurveState> {
    let mut states = [[1.0, 0.0, 0.0], [0.0, 1.0 / reach, 0.0], [0.0, 0.0, 1.0 / (reach * reach)]];
    let mut rows = Vec::with_capacity(stages.len());
    for stage in stages {
        let mut row = [0.0; STATES];
        for (state, entry) in states.iter_mut().zip(&mut row) {
            *state = moved(state, stage.length);
            *entry = state[0] / stage.variance.sqrt();
            let off = state[0];
            state.iter_mut().zip(&stage.gain).for_each(|(x, gain)| *x -= gain * off);
            state[0] = off * (stage.noise / stage.variance);
        }
        rows.push(row);
    }
    rows
}

/// Orthonormalizes columns by Gram-Schmidt. Returns the squared lengths of the orthogonal parts.
fn orthonormalize(rows: &mut [CurveState]) -> CurveState {
    let mut squares = [0.0; STATES];
    for column in 0..STATES {
        // Twice, because columns may be nearly parallel.
        for before in (0..column).chain(0..column) {
            let product: f64 = rows.iter().map(|row| row[before] * row[column]).sum();
            rows.iter_mut().for_each(|row| row[column] -= product * row[before]);
        }
        squares[column] = rows.iter().map(|row| row[column] * row[column]).sum();
        let scale = if squares[column] > 0.0 { 1.0 / squares[column].sqrt() } else { 0.0 };
        rows.iter_mut().for_each(|row| row[column] *= scale);
    }
    squares
}
