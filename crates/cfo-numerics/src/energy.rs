//! The mean square of a path's velocity, from inner products of the changes between snapshots.

use crate::draw_by::DrawBy;
use crate::path::Path;
use crate::time_grid::Segment;

/// The mean of the squared velocity of a path over its training points.
///
/// The velocity is a weighted sum of the changes `d_j = u_{j+1} - u_j` between neighbouring snapshots, so its mean
/// square is a weighted sum of their inner products `<d_j, d_{j+o}>` with `o` below the reach. The weights depend on
/// the times alone. On each segment the squared velocity is a polynomial, which Gauss-Legendre quadrature integrates
/// exactly.
///
/// ```
/// use cfo_numerics::{DrawBy, Energy, Path};
///
/// let times = [0.0, 0.5, 2.0];
/// let energy = Energy::new(Path::default(), DrawBy::Time, &times);
/// // Changes of a straight line of slope 3.
/// let changes = [1.5, 4.5];
/// let mean_square = energy.mean_square(|j, offset| changes[j] * changes[j + offset]);
/// assert!((mean_square - 9.0).abs() < 1e-12);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Energy {
    reach: usize,
    /// Weight of the product of change `j` with change `j + offset`, at `j * reach + offset`.
    weights: Vec<f64>,
}

impl Energy {
    /// The number of neighbouring changes in a velocity of this path, for a trajectory of `snapshots` snapshots.
    pub fn reach(path: Path, snapshots: usize) -> usize {
        let path = path.supported(snapshots);
        let widest = if path.spline.smoothness() == 0 { 1 } else { path.stencil };
        widest.min(snapshots.saturating_sub(1)).max(1)
    }

    /// The mean for a path through snapshots at these strictly increasing times.
    pub fn new(path: Path, by: DrawBy, times: &[f64]) -> Self {
        let reach = Self::reach(path, times.len());
        let mut weights = vec![0.0; times.len().saturating_sub(1) * reach];
        let smoothness = path.supported(times.len()).spline.smoothness();
        let quadrature = gauss_legendre(2 * smoothness + 1);
        for (index, pair) in times.windows(2).enumerate() {
            let length = pair[1] - pair[0];
            // A snapshot belongs to the segment at its right, the last one to the last.
            let knots = [(0.0, 1.0), (1.0, 1.0)];
            let (nodes, share) = match by {
                DrawBy::Time | DrawBy::Interval => (&quadrature[..], by.interval_share(times, index)),
                DrawBy::Snapshot if index + 2 == times.len() => (&knots[..], 1.0 / times.len() as f64),
                DrawBy::Snapshot => (&knots[..1], 1.0 / times.len() as f64),
            };
            for &(tau, weight) in nodes {
                let at = path.weights_in(times, Segment { index, tau, length });
                // Change j has the weights of all snapshots after it.
                let mut changes = [0.0; crate::PathWeights::MAX];
                let mut after = 0.0;
                for (change, velocity) in changes.iter_mut().zip(at.velocity()).skip(1).rev() {
                    after += velocity;
                    *change = after;
                }
                let changes = &changes[1..at.count];
                for (j, &one) in changes.iter().enumerate() {
                    for (offset, &other) in changes[j..].iter().enumerate() {
                        let both = if offset == 0 { 1.0 } else { 2.0 };
                        weights[(at.first + j) * reach + offset] += both * weight * share * one * other;
                    }
                }
            }
        }
        Self { reach, weights }
    }

    /// The mean square, given the inner product of change `j` with change `j + offset`.
    pub fn mean_square(&self, product: impl Fn(usize, usize) -> f64) -> f64 {
        let changes = self.weights.len() / self.reach;
        let mut sum = 0.0;
        for (j, weights) in self.weights.chunks(self.reach).enumerate() {
            for (offset, weight) in weights.iter().enumerate().take(changes - j) {
                sum += weight * product(j, offset);
            }
        }
        sum.max(0.0)
    }
}

/// Nodes in `[0, 1]` and weights of the Gauss-Legendre rule with `count` points, exact to degree `2 count - 1`.
fn gauss_legendre(count: usize) -> Vec<(f64, f64)> {
    let node = |i: usize| {
        let mut x = (std::f64::consts::PI * (i as f64 + 0.75) / (count as f64 + 0.5)).cos();
        let mut slope = 1.0;
        // Newton's method doubles the two digits of Tricomi's estimate in each iteration.
        for _ in 0..6 {
            let (mut value, mut before) = (x, 1.0);
            for k in 2..=count {
                let k = k as f64;
                (value, before) = (((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k, value);
            }
            slope = count as f64 * (before - x * value) / (1.0 - x * x);
            x -= value / slope;
        }
        ((1.0 - x) / 2.0, 1.0 / ((1.0 - x * x) * slope * slope))
    };
    (0..count).map(node).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Spline;

    #[test]
    fn quadrature_is_exact_to_its_degree() {
        for count in 1..=17 {
            for degree in 0..2 * count {
                let sum: f64 =
                    gauss_legendre(count).iter().map(|(x, weight)| weight * x.powi(degree as i32)).sum();
                let exact = 1.0 / (degree as f64 + 1.0);
                assert!((sum - exact).abs() < 1e-14, "{count} points, degree {degree}: {sum}");
            }
        }
    }

    proptest! {
        /// Compares with the mean of the squared velocity at many points, which converges with the square of their
        /// distance.
        #[test]
        fn equals_the_mean_over_dense_points(
            smoothness in 0usize..5, extra in 0usize..4,
            knots in prop::collection::vec((0.2..1.0f64, -1.0..1.0f64), 2..14), shift in -10.0..10.0f64,
        ) {
            let path = Path::new(Spline::with_smoothness(smoothness), (smoothness + 1 + extra).min(9)).unwrap();
            let mut times = vec![shift];
            knots[1..].iter().for_each(|(gap, _)| times.push(times[times.len() - 1] + gap));
            let values: Vec<f64> = knots.iter().map(|(_, value)| *value).collect();
            let changes: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let found = [DrawBy::Time, DrawBy::Interval, DrawBy::Snapshot]
                .map(|by| Energy::new(path, by, &times).mean_square(|j, offset| changes[j] * changes[j + offset]));
            let square = |time: f64| {
                let weights = path.weights(&times, time);
                let velocity: f64 =
                    weights.velocity().iter().zip(&values[weights.range()]).map(|(w, u)| w * u).sum();
                velocity * velocity
            };
            let span = times[times.len() - 1] - times[0];
            let mut expected = [0.0, 0.0, times.iter().map(|&time| square(time)).sum::<f64>() / times.len() as f64];
            const EACH: usize = 600;
            for pair in times.windows(2) {
                for i in 0..EACH {
                    let time = pair[0] + (pair[1] - pair[0]) * (i as f64 + 0.5) / EACH as f64;
                    expected[0] += square(time) * (pair[1] - pair[0]) / (span * EACH as f64);
                    expected[1] += square(time) / (changes.len() * EACH) as f64;
                }
            }
            // The midpoint rule's error: a 24th of the squared distance times a second derivative, which for
            // polynomials of degree 4s is at most (4s)^4 times their size.
            let degree = (4 * smoothness) as f64;
            let bound = degree.powi(4) / (24.0 * (EACH * EACH) as f64) + 1e-10;
            for (found, expected) in found.into_iter().zip(expected) {
                prop_assert!((found - expected).abs() <= bound * found.max(1e-9), "{found} {expected}");
            }
        }
    }

    #[test]
    fn a_single_snapshot_has_no_velocity() {
        assert_eq!(Energy::new(Path::default(), DrawBy::Time, &[1.0]).mean_square(|_, _| 1.0), 0.0);
    }
}
