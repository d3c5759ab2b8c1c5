//! Smoothing of noisy snapshots: the most probable smooth curve given the data.
//!
//! A scalar is measured at irregular times, `y_n = f(t_n) + e_n`, with independent noise `e_n` of standard deviation
//! `s`. The prior of `f` is a twice integrated Wiener process with an unknown parabola: its third derivative is white
//! noise of intensity `r s^2`. The mean of `f` given `y` is the smoothing spline of degree five that minimises `sum
//! (y_n - f(t_n))^2 + 1/r integral f'''^2`.
//!
//! With `V` the covariance of `y / s` for a process that starts at 0, `V = L L'`, and `Q` orthonormal columns that span
//! `L^-1` of all parabolas,
//!
//! ```text
//! E[f | y] = y - W^-1 L'^-1 (1 - Q Q') L^-1 y
//! ```
//!
//! where `W^-1` has the variances of the noise in units of `s^2` on its diagonal: `1 / m` for a value that is the mean
//! of `m` measurements. `L^-1` is a Kalman filter that starts at a known state, `L'^-1` its transpose. Both cost a few
//! operations per snapshot and need no diffuse initialisation. Since `V >= W^-1`, no interval between times is short
//! enough to make a matrix singular.

mod evidence;
mod filter;
#[cfg(test)]
pub(crate) mod tests;

pub use evidence::{Evidence, NoiseFit};
use filter::{CurveState, Filter, STATES, dot, moved};

/// Smooths series on one grid of times: a Kalman smoother with an integrated Wiener process as prior.
///
/// ```
/// use cfo_numerics::Smoother;
///
/// let times: Vec<f64> = (0..9).map(f64::from).collect();
/// let mut series: Vec<f64> = times.iter().map(|t| t * t).collect();
/// series[4] += 0.5;
/// Smoother::new(&times, &[], 1.0, 0.01).smooth(&mut series, 1);
/// assert!((series[4] - 16.0).abs() < 0.2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Smoother {
    snapshots: usize,
    /// `None` if nothing is smoothed.
    filter: Option<Filter>,
}

/// Variance of each value in units of the noise's; `counts` are the measurements averaged in each (empty: one).
fn variances(snapshots: usize, counts: &[u32]) -> Vec<f64> {
    (0..snapshots).map(|i| counts.get(i).map_or(1.0, |&count| 1.0 / f64::from(count.max(1)))).collect()
}

impl Smoother {
    /// Creates a smoother for increasing times; `ratio` is the prior's intensity over the noise's variance, with times
    /// in `unit`. Fewer than four snapshots are not changed, and neither are any at an infinite ratio (no noise).
    /// Values are means of `counts` measurements each (empty: one each).
    pub fn new(times: &[f64], counts: &[u32], unit: f64, ratio: f64) -> Self {
        let snapshots = times.len();
        let used = ratio.is_finite() && snapshots > STATES;
        let filter = used.then(|| Filter::new(times, &variances(snapshots, counts), unit, ratio));
        Self { snapshots, filter }
    }

    /// Replaces `width` interleaved series, `[snapshots, width]`, by their means given the data.
    ///
    /// # Panics
    /// If `series` does not have snapshots times `width` values.
    pub fn smooth(&self, series: &mut [f64], width: usize) {
        assert_eq!(series.len(), self.snapshots * width, "a series has a value for each snapshot");
        let Some(filter) = self.filter.as_ref().filter(|_| width > 0) else { return };
        let mut noise = series.to_vec();
        filter.whiten(&mut noise, width);
        filter.noise_of(&mut noise, width);
        series.iter_mut().zip(&noise).for_each(|(value, noise)| *value -= noise);
    }

    /// The posterior standard deviations of weighted sums of the smoothed snapshots `first..`, in units of the noise's,
    /// by one pass over the grid. The weight 1 gives that of a snapshot, the weights of a stencil that of a velocity.
    ///
    /// # Panics
    /// If there are weights for snapshots that do not exist.
    pub fn deviations(&self, sums: &[(usize, &[f64])]) -> Vec<f64> {
        let exist = |(first, weights): &(usize, &[f64])| first + weights.len() <= self.snapshots;
        assert!(sums.iter().all(exist), "a weight needs a snapshot");
        let Some(filter) = &self.filter else {
            // Without noise the posterior deviation is zero; with too few snapshots it is that of the noise.
            let own = |weights: &[f64]| weights.iter().map(|weight| weight * weight).sum::<f64>().sqrt();
            let certain = self.snapshots > STATES;
            return sums.iter().map(|(_, weights)| if certain { 0.0 } else { own(weights) }).collect();
        };
        let (parabolas, later) = (filter.unknown_parabolas(), filter.later_information());
        let variance = |&(first, weights): &(usize, &[f64])| -> f64 {
            let mut sum = 0.0;
            // The covariance of the partial sum with the state, given the values up to each snapshot.
            let mut joint: CurveState = [0.0; STATES];
            for (&weight, i) in weights.iter().zip(first..) {
                let stage = &filter.stages[i];
                joint = moved(&joint, stage.length);
                let off = joint[0];
                joint.iter_mut().zip(&stage.gain).for_each(|(x, gain)| *x -= gain * off);
                joint[0] = off * (stage.noise / stage.variance);
                let own = &stage.covariance;
                let informed: CurveState = std::array::from_fn(|k| dot(&later[i][k], own));
                sum += 2.0 * weight * (joint[0] - dot(&joint, &informed));
                sum += weight * weight * (own[0] - dot(own, &informed));
                joint.iter_mut().zip(own).for_each(|(x, own)| *x += weight * own);
            }
            let mut products = [0.0; STATES];
            for (weight, row) in weights.iter().zip(&parabolas[first..]) {
                products.iter_mut().zip(row).for_each(|(product, entry)| *product += weight * entry);
            }
            sum + dot(&products, &products)
        };
        sums.iter().map(|sum| variance(sum).max(0.0).sqrt()).collect()
    }
}
