//! Maximum-likelihood estimates of the noise and of the prior's intensity.

use super::filter::{Filter, STATES};
use super::variances;

/// Powers of ten that bound the search for the ratio of the prior's intensity to the noise's variance. A curve is
/// smoothed over about `ratio^(-1/6)` intervals, 30 at the least ratio. At the largest ratio a ten millionth of a
/// snapshot's noise is removed.
const EXPONENTS: [f64; 2] = [-9.0, 9.0];

const RESOLUTION: f64 = 0.02;

/// The noise and the prior of maximum likelihood.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoiseFit {
    /// Standard deviation of the noise, in the units of the series; 0 if the data need no noise.
    pub deviation: f64,
    /// The prior's intensity over the noise's variance, for [`Smoother`](super::Smoother); infinite without noise.
    pub ratio: f64,
}

impl NoiseFit {
    /// No noise.
    pub const NONE: Self = Self { deviation: 0.0, ratio: f64::INFINITY };
}

/// Series whose noise is estimated. Their likelihood does not depend on a parabola in each series.
#[derive(Clone, Debug)]
pub struct Evidence {
    unit: f64,
    grids: Vec<Grid>,
}

#[derive(Clone, Debug)]
struct Grid {
    times: Vec<f64>,
    variances: Vec<f64>,
    /// `[times, width]`.
    series: Vec<f64>,
    width: usize,
}

impl Evidence {
    /// Creates an empty collection; times are measured in `unit`, which should be about one interval.
    pub fn new(unit: f64) -> Self {
        Self { unit, grids: Vec::new() }
    }

    /// Adds `width` interleaved series, `[times, width]`, whose values are means of `counts` measurements each (empty:
    /// one each). Fewer than four snapshots contain no information.
    ///
    /// # Panics
    /// If `series` does not have times times `width` values.
    pub fn add(&mut self, times: &[f64], counts: &[u32], series: &[f64], width: usize) {
        assert_eq!(series.len(), times.len() * width, "a series has a value for each time");
        if times.len() > STATES && width > 0 {
            let variances = variances(times.len(), counts);
            self.grids.push(Grid { times: times.to_vec(), variances, series: series.to_vec(), width });
        }
    }

    /// Number of values minus the three parameters of each series' parabola.
    pub fn len(&self) -> usize {
        self.grids.iter().map(|grid| (grid.times.len() - STATES) * grid.width).sum()
    }

    /// Whether the data contain no information yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The noise and the prior of maximum likelihood.
    pub fn fit(&self) -> NoiseFit {
        self.most_likely(None)
    }

    /// The prior of maximum likelihood for noise of known standard deviation.
    pub fn fit_prior(&self, deviation: f64) -> NoiseFit {
        if deviation > 0.0 { self.most_likely(Some(deviation)) } else { NoiseFit::NONE }
    }

    /// Scans integer exponents, then narrows the bracket around the best by golden-section search.
    fn most_likely(&self, known: Option<f64>) -> NoiseFit {
        let cost = |exponent: f64| self.cost(10f64.powf(exponent), known).0;
        let [least, most] = EXPONENTS;
        let exponents = (0..=(most - least) as usize).map(|k| least + k as f64);
        let costs: Vec<(f64, f64)> = exponents.map(|exponent| (exponent, cost(exponent))).collect();
        let best =
            costs.iter().copied().filter(|(_, cost)| cost.is_finite()).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((best, _)) = best else { return NoiseFit::NONE };
        let exponent = golden((best - 1.0).max(least), (best + 1.0).min(most), cost);
        let ratio = 10f64.powf(exponent);
        let deviation = known.unwrap_or_else(|| self.cost(ratio, None).1);
        // At the end of the range noise cannot be distinguished from a rough curve.
        let none = known.is_none() && (exponent > most - 1.0 || deviation <= self.rounding());
        if none || !deviation.is_finite() { NoiseFit::NONE } else { NoiseFit { deviation, ratio } }
    }

    /// Deviations below this are rounding errors of the values.
    fn rounding(&self) -> f64 {
        let values = self.grids.iter().flat_map(|grid| &grid.series);
        4.0 * f64::EPSILON * values.fold(0.0, |most: f64, value| most.max(value.abs()))
    }

    /// Minus twice the log-likelihood up to a constant, and the noise's deviation: known, or most likely.
    fn cost(&self, ratio: f64, known: Option<f64>) -> (f64, f64) {
        let (mut squares, mut determinant) = (0.0, 0.0);
        for Grid { times, variances, series, width } in &self.grids {
            let filter = Filter::new(times, variances, self.unit, ratio);
            let mut white = series.clone();
            filter.whiten(&mut white, *width);
            squares += white.iter().map(|z| z * z).sum::<f64>();
            determinant += *width as f64 * filter.log_determinant;
        }
        let count = self.len() as f64;
        let variance = known.map_or(squares / count, |deviation| deviation * deviation);
        (count * variance.ln() + squares / variance + determinant, variance.sqrt())
    }
}

/// The argument of the minimum of a unimodal function.
fn golden(mut low: f64, mut high: f64, function: impl Fn(f64) -> f64) -> f64 {
    let share = 0.5 * (5f64.sqrt() - 1.0);
    let mut inner = [high - share * (high - low), low + share * (high - low)];
    let mut values = inner.map(&function);
    while high - low > RESOLUTION {
        if values[0] <= values[1] {
            (high, inner[1], values[1]) = (inner[1], inner[0], values[0]);
            inner[0] = high - share * (high - low);
            values[0] = function(inner[0]);
        } else {
            (low, inner[0], values[0]) = (inner[0], inner[1], values[1]);
            inner[1] = low + share * (high - low);
            values[1] = function(inner[1]);
        }
    }
    0.5 * (low + high)
}
