//! Ridge regression of several targets, evaluated on rows that were not fitted.

use rayon::prelude::*;

/// Numbers by column, with one entry for each sample.
pub(super) type SampleColumns = Vec<Vec<f64>>;

/// Penalties to select from, in units of the number of samples.
const PENALTIES: [f64; 4] = [1e-8, 1e-6, 1e-4, 1e-2];

/// A fit with the penalty that gives the smallest error on the other rows.
pub(super) struct Fit {
    /// Sum of squared errors of each target on the other rows.
    pub errors: Vec<f64>,
    /// Sum of squared distances of each target on the other rows from its mean over the fitted rows.
    pub totals: Vec<f64>,
    /// Residual of each target on the fitted rows.
    pub residuals: SampleColumns,
}

impl Fit {
    /// Fits `targets` on `rows` and evaluates on `others`.
    pub fn new(features: &SampleColumns, targets: &SampleColumns, rows: &[usize], others: &[usize]) -> Self {
        let scaled: Vec<[Vec<f64>; 2]> =
            features.iter().filter_map(|column| standardized(column, rows, others)).collect();
        let count = scaled.len();
        let centered: Vec<[Vec<f64>; 2]> = targets
            .iter()
            .map(|column| {
                let mean = rows.iter().map(|&i| column[i]).sum::<f64>() / rows.len() as f64;
                [rows, others].map(|rows| rows.iter().map(|&i| column[i] - mean).collect())
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let gram: Vec<Vec<f64>> = (0..count)
            .into_par_iter()
            .map(|i| (0..=i).map(|j| dot(&scaled[i][0], &scaled[j][0])).collect())
            .collect();
        let sides: SampleColumns =
            centered.iter().map(|y| scaled.iter().map(|x| dot(&x[0], &y[0])).collect()).collect();
        let left = |weights: &SampleColumns, part: usize| -> SampleColumns {
            centered
                .iter()
                .zip(weights)
                .map(|(y, weights)| {
                    let mut left = y[part].clone();
                    for (x, &weight) in scaled.iter().zip(weights) {
                        left.iter_mut().zip(&x[part]).for_each(|(left, x)| *left -= weight * x);
                    }
                    left
                })
                .collect()
        };
        let squares = |columns: &SampleColumns| columns.iter().map(|column| dot(column, column)).collect();
        let totals = centered.iter().map(|y| dot(&y[1], &y[1])).collect();
        let residuals = centered.iter().map(|y| y[0].clone()).collect();
        let mut best = Self { errors: vec![f64::INFINITY; targets.len()], totals, residuals };
        for penalty in PENALTIES {
            let weights = solve(&gram, penalty * rows.len() as f64, &sides);
            let errors: Vec<f64> = squares(&left(&weights, 1));
            if errors.iter().sum::<f64>() < best.error() {
                (best.errors, best.residuals) = (errors, left(&weights, 0));
            }
        }
        best
    }

    /// Sum of squared errors of all targets.
    pub fn error(&self) -> f64 {
        self.errors.iter().sum()
    }
}

/// A column at the fitted and the other rows, with mean 0 and deviation 1 at the former; `None` if constant there.
fn standardized(column: &[f64], rows: &[usize], others: &[usize]) -> Option<[Vec<f64>; 2]> {
    let count = rows.len() as f64;
    let mean = rows.iter().map(|&i| column[i]).sum::<f64>() / count;
    let variance = rows.iter().map(|&i| (column[i] - mean).powi(2)).sum::<f64>() / count;
    let scale = 1.0 / variance.sqrt();
    scale
        .is_finite()
        .then(|| [rows, others].map(|rows| rows.iter().map(|&i| (column[i] - mean) * scale).collect()))
}

/// Solves `(gram + penalty) w = side` for each side by Cholesky decomposition; only the lower half of `gram` is used.
fn solve(gram: &[Vec<f64>], penalty: f64, sides: &SampleColumns) -> SampleColumns {
    let count = gram.len();
    let mut lower: SampleColumns = gram.to_vec();
    for i in 0..count {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| lower[i][k] * lower[j][k]).sum();
            let rest = lower[i][j] - known + if i == j { penalty } else { 0.0 };
            // Positive because of the penalty, up to rounding.
            lower[i][j] = if i == j { rest.max(1e-12 * penalty).sqrt() } else { rest / lower[j][j] };
        }
    }
    let mut solved = sides.clone();
    for x in &mut solved {
        for i in 0..count {
            let known: f64 = (0..i).map(|k| lower[i][k] * x[k]).sum();
            x[i] = (x[i] - known) / lower[i][i];
        }
        for i in (0..count).rev() {
            let known: f64 = (i + 1..count).map(|k| lower[k][i] * x[k]).sum();
            x[i] = (x[i] - known) / lower[i][i];
        }
    }
    solved
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_law_is_found_and_leaves_nothing() {
        let x: SampleColumns =
            (1..=3).map(|k| (0..60).map(|i| (f64::from(i * k) * 0.37).sin()).collect()).collect();
        let y: SampleColumns = vec![(0..60).map(|i| 2.0 * x[0][i] - x[2][i] + 5.0).collect()];
        let (rows, others): (Vec<usize>, Vec<usize>) = (0..60).partition(|i| i % 2 == 0);
        let fit = Fit::new(&x, &y, &rows, &others);
        assert!(fit.error() < 1e-10 * fit.totals[0], "{} of {}", fit.error(), fit.totals[0]);
        assert!(fit.residuals[0].iter().all(|left| left.abs() < 1e-5));
    }

    #[test]
    fn the_solution_solves() {
        let gram = vec![vec![4.0], vec![1.0, 3.0], vec![0.5, -1.0, 5.0]];
        let solved = solve(&gram, 0.5, &vec![vec![1.0, 2.0, 3.0]]);
        let full = |i: usize, j: usize| gram[i.max(j)][i.min(j)] + if i == j { 0.5 } else { 0.0 };
        for (i, side) in [1.0, 2.0, 3.0].into_iter().enumerate() {
            let found: f64 = (0..3).map(|j| full(i, j) * solved[0][j]).sum();
            assert!((found - side).abs() < 1e-12);
        }
    }
}
