//! Snapshots with noise: the most probable smooth curve behind them.
//!
//! A scalar is measured at irregular times, `y_n = f(t_n) + e_n`, with independent noise `e_n` of deviation `s`. Of `f`
//! nothing is assumed but that its third derivative is white noise of intensity `r s^2`: a twice integrated Wiener
//! process with an unknown parabola. The mean of `f` given `y` is what a Kalman filter with a Rauch-Tung-Striebel
//! pass gives for this prior with a diffuse start, and is the smoothing spline of degree five that minimises
//! `sum (y_n - f(t_n))^2 + 1/r integral f'''^2`.
//!
//! Third differences of `y` do not see the parabola. With `D` the matrix of differences (four neighbours a row, so that
//! `D f` is the mean of `f'''` under a quadratic B-spline) and `R` the Gram matrix of these splines,
//!
//! ```text
//! D y ~ normal(0, s^2 (D D' + r R)),        E[f | y] = y - D' (D D' + r R)^-1 D y.
//! ```
//!
//! The matrix has seven diagonals and depends on the times alone: it is factored once, and each series costs a few
//! operations a snapshot. Nothing diffuse has to be made finite, so that the result is exact.

mod evidence;
#[cfg(test)]
mod tests;

pub use evidence::{Evidence, NoiseFit};

/// Derivative that is white noise under the prior, and width of the band on either side of the diagonal.
const ORDER: usize = 3;

/// A row of a symmetric banded matrix: the diagonal and the entries at its left, nearest first.
type Row = [f64; ORDER + 1];

/// Third differences on a grid: what noise and the prior add to their covariance.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Differences {
    /// Weights of snapshots `i..=i + 3` in difference `i`. Each row is scaled so that its largest weight is 1.
    weights: Vec<Row>,
    /// `D D'`.
    noise: Vec<Row>,
    /// `R`.
    prior: Vec<Row>,
}

impl Differences {
    /// On increasing times, measured in `unit`; none if there are fewer than four.
    pub(crate) fn new(times: &[f64], unit: f64) -> Self {
        let times: Vec<f64> = times.iter().map(|time| (time - times[0]) / unit).collect();
        let count = times.len().saturating_sub(ORDER);
        let mut scales = Vec::with_capacity(count);
        let mut weights = Vec::with_capacity(count);
        for nodes in times.windows(ORDER + 1) {
            let mut row = divided_difference(nodes);
            let largest = row.iter().fold(0.0, |far: f64, weight| far.max(weight.abs()));
            row.iter_mut().for_each(|weight| *weight /= largest);
            scales.push(largest);
            weights.push(row);
        }
        let noise = (0..count).map(|i| {
            std::array::from_fn(|below| match i.checked_sub(below) {
                Some(j) => (below..=ORDER).map(|k| weights[j][k] * weights[i][k - below]).sum(),
                None => 0.0,
            })
        });
        let noise = noise.collect();
        let mut prior = vec![[0.0; ORDER + 1]; count];
        for interval in 0..times.len().saturating_sub(1) {
            add_gram(&times, interval, &scales, &mut prior);
        }
        Self { weights, noise, prior }
    }

    /// `D y` of `width` series that stand side by side, `[snapshots, width]`.
    fn apply(&self, series: &[f64], width: usize) -> Vec<f64> {
        let mut out = vec![0.0; self.weights.len() * width];
        for (i, (row, out)) in self.weights.iter().zip(out.chunks_exact_mut(width)).enumerate() {
            for (k, weight) in row.iter().enumerate() {
                let snapshot = &series[(i + k) * width..][..width];
                out.iter_mut().zip(snapshot).for_each(|(out, value)| *out += weight * value);
            }
        }
        out
    }

    /// `D D' + ratio R`, factored.
    fn factor(&self, ratio: f64) -> Cholesky {
        let sum = |(noise, prior): (&Row, &Row)| std::array::from_fn(|k| noise[k] + ratio * prior[k]);
        Cholesky::new(self.noise.iter().zip(&self.prior).map(sum).collect())
    }
}

/// The weights of four nodes in `3!` times their divided difference, a mean of the third derivative.
fn divided_difference(nodes: &[f64]) -> Row {
    std::array::from_fn(|j| {
        let gaps = nodes.iter().enumerate().filter(|&(k, _)| k != j).map(|(_, node)| nodes[j] - node);
        gaps.fold(6.0, |product, gap| product / gap)
    })
}

/// Adds what one interval contributes to the Gram matrix of the splines, divided by the rows' scales. Products of
/// quadratic splines have degree four, for which three Gauss points are exact.
fn add_gram(times: &[f64], interval: usize, scales: &[f64], gram: &mut [Row]) {
    let (left, length) = (times[interval], times[interval + 1] - times[interval]);
    let offset = 0.5 * (0.6_f64).sqrt();
    let points = [(0.5 - offset, 5.0 / 18.0), (0.5, 8.0 / 18.0), (0.5 + offset, 5.0 / 18.0)];
    let splines = interval.saturating_sub(ORDER - 1)..(interval + 1).min(scales.len());
    for (at, share) in points {
        let t = left + at * length;
        let value = |i: usize| spline(times, i, ORDER, interval, t) / scales[i];
        for i in splines.clone() {
            for j in splines.start..=i {
                gram[i][i - j] += share * length * value(i) * value(j);
            }
        }
    }
}

/// The B-spline of `order` (degree plus one) on knots `first..=first + order` at a time in an interval, scaled to integral 1.
fn spline(times: &[f64], first: usize, order: usize, interval: usize, t: f64) -> f64 {
    if interval < first || interval >= first + order {
        return 0.0;
    }
    let length = times[first + order] - times[first];
    if order == 1 {
        return 1.0 / length;
    }
    let lower = |first: usize| spline(times, first, order - 1, interval, t);
    let sum = (t - times[first]) * lower(first) + (times[first + order] - t) * lower(first + 1);
    order as f64 / (order - 1) as f64 * sum / length
}

/// `L` with `L L'` a positive banded matrix: the diagonal and the entries at its left.
#[derive(Clone, Debug, PartialEq)]
struct Cholesky {
    rows: Vec<Row>,
}

impl Cholesky {
    fn new(mut rows: Vec<Row>) -> Self {
        for i in 0..rows.len() {
            for below in (0..=ORDER.min(i)).rev() {
                let j = i - below;
                let mut sum = rows[i][below];
                for k in i.saturating_sub(ORDER)..j {
                    if j - k <= ORDER {
                        sum -= rows[i][i - k] * rows[j][j - k];
                    }
                }
                rows[i][below] = if below > 0 { sum / rows[j][0] } else { sum.max(f64::MIN_POSITIVE).sqrt() };
            }
        }
        Self { rows }
    }

    /// Logarithm of the determinant of the matrix.
    fn log_determinant(&self) -> f64 {
        2.0 * self.rows.iter().map(|row| row[0].ln()).sum::<f64>()
    }

    /// `L^-1 z` in place, of `width` columns side by side.
    fn forward(&self, z: &mut [f64], width: usize) {
        for (i, row) in self.rows.iter().enumerate() {
            let (before, here) = z.split_at_mut(i * width);
            let here = &mut here[..width];
            for below in 1..=ORDER.min(i) {
                let earlier = &before[(i - below) * width..][..width];
                here.iter_mut().zip(earlier).for_each(|(z, earlier)| *z -= row[below] * earlier);
            }
            here.iter_mut().for_each(|z| *z /= row[0]);
        }
    }

    /// `L'^-1 z` in place.
    fn backward(&self, z: &mut [f64], width: usize) {
        for i in (0..self.rows.len()).rev() {
            let (up_to, after) = z.split_at_mut((i + 1) * width);
            let here = &mut up_to[i * width..];
            for above in 1..=ORDER.min(self.rows.len() - 1 - i) {
                let later = &after[(above - 1) * width..][..width];
                let factor = self.rows[i + above][above];
                here.iter_mut().zip(later).for_each(|(z, later)| *z -= factor * later);
            }
            here.iter_mut().for_each(|z| *z /= self.rows[i][0]);
        }
    }

    /// Entries of the inverse up to `reach` from the diagonal, `[row][distance to the left]`, by Takahashi's recurrence
    /// from the last row upwards: each entry follows from those of the next three rows.
    fn inverse_band(&self, reach: usize) -> Vec<Vec<f64>> {
        let (count, reach) = (self.rows.len(), reach.max(ORDER));
        let mut band = vec![vec![0.0; reach + 1]; count];
        for j in (0..count).rev() {
            for i in (j..(j + reach + 1).min(count)).rev() {
                let mut sum = if i == j { 1.0 / self.rows[j][0] } else { 0.0 };
                for k in j + 1..=(j + ORDER).min(count - 1) {
                    let (low, high) = (i.min(k), i.max(k));
                    sum -= self.rows[k][k - j] * band[high][high - low];
                }
                band[i][i - j] = sum / self.rows[j][0];
            }
        }
        band
    }
}

/// Smooths series on one grid of times: see the head of this file.
///
/// ```
/// use cfo_numerics::Smoother;
///
/// let times: Vec<f64> = (0..9).map(f64::from).collect();
/// let mut series: Vec<f64> = times.iter().map(|t| t * t).collect();
/// series[4] += 0.5;
/// Smoother::new(&times, 1.0, 0.01).smooth(&mut series, 1);
/// assert!((series[4] - 16.0).abs() < 0.2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Smoother {
    differences: Differences,
    factor: Cholesky,
    snapshots: usize,
}

impl Smoother {
    /// For increasing times, with the prior's intensity in units of the noise's variance and of `unit` of time. Fewer than
    /// four snapshots are left as they are; so are any at an infinite ratio, which says that there is no noise.
    pub fn new(times: &[f64], unit: f64, ratio: f64) -> Self {
        let used = if ratio.is_finite() { times } else { &[] };
        let differences = Differences::new(used, unit);
        Self { factor: differences.factor(ratio), differences, snapshots: times.len() }
    }

    /// Replaces `width` series that stand side by side, `[snapshots, width]`, by their means given the data.
    ///
    /// # Panics
    /// If there are not as many numbers as snapshots times `width`.
    pub fn smooth(&self, series: &mut [f64], width: usize) {
        assert_eq!(series.len(), self.snapshots * width, "a series has a value for each snapshot");
        let mut z = self.differences.apply(series, width);
        self.factor.forward(&mut z, width);
        self.factor.backward(&mut z, width);
        for (i, (row, z)) in self.differences.weights.iter().zip(z.chunks_exact(width)).enumerate() {
            for (k, weight) in row.iter().enumerate() {
                let snapshot = &mut series[(i + k) * width..][..width];
                snapshot.iter_mut().zip(z).for_each(|(value, z)| *value -= weight * z);
            }
        }
    }

    /// The deviation of what is left to know of a weighted sum of the smoothed snapshots `first..`, in units of the
    /// noise's: of a snapshot itself with the weight 1, of a velocity with the weights of a stencil.
    ///
    /// # Panics
    /// If there are weights for snapshots that do not exist.
    pub fn deviation(&self, first: usize, weights: &[f64]) -> f64 {
        self.deviations(&[(first, weights)])[0]
    }

    /// As [`deviation`](Self::deviation), of many sums at the cost of one pass over the grid.
    ///
    /// # Panics
    /// If there are weights for snapshots that do not exist.
    pub fn deviations(&self, sums: &[(usize, &[f64])]) -> Vec<f64> {
        let widest = sums.iter().map(|(_, weights)| weights.len()).max().unwrap_or(0);
        let inverse = self.factor.inverse_band(widest + ORDER);
        let rows = &self.differences.weights;
        let variance = |&(first, weights): &(usize, &[f64])| -> f64 {
            assert!(first + weights.len() <= self.snapshots, "a weight needs a snapshot");
            // `w' (I - D' M^-1 D) w` with `D w` in the rows that touch the snapshots.
            let touched = first.saturating_sub(ORDER)..rows.len().min(first + weights.len());
            let difference = |i: usize| -> f64 {
                let weight = |j: usize| j.checked_sub(first).and_then(|j| weights.get(j)).unwrap_or(&0.0);
                rows[i].iter().enumerate().map(|(k, entry)| entry * weight(i + k)).sum()
            };
            let removed: f64 = touched
                .clone()
                .flat_map(|i| touched.clone().map(move |j| (i, j)))
                .map(|(i, j)| difference(i) * difference(j) * inverse[i.max(j)][i.abs_diff(j)])
                .sum();
            weights.iter().map(|weight| weight * weight).sum::<f64>() - removed
        };
        // Without noise nothing is left to know.
        let certain = self.differences.weights.is_empty() && self.snapshots > ORDER;
        sums.iter().map(|sum| if certain { 0.0 } else { variance(sum).max(0.0).sqrt() }).collect()
    }
}
