//! Known functions of time, given at knots: controls, measured forcing, boundary values.

use crate::path::{Path, Spline};

/// How a signal is defined between its knots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interpolation {
    /// Straight lines from knot to knot.
    #[default]
    Linear,
    /// The value of a knot up to the next one, where the signal jumps.
    Hold,
    /// A cubic spline with continuous derivative.
    Spline,
}

/// A signal of one or several channels. Before its first and after its last knot it is constant.
///
/// ```
/// use cfo_numerics::{Interpolation, Signal};
///
/// let (times, values) = (vec![0.0, 1.0, 3.0], vec![2.0, 4.0, 0.0]);
/// let line = Signal::new(times.clone(), values.clone(), Interpolation::Linear);
/// assert_eq!([0.5, 2.0, 9.0].map(|time| line.at(time)[0]), [3.0, 2.0, 0.0]);
/// let steps = Signal::new(times, values, Interpolation::Hold);
/// assert_eq!([0.5, 1.0, 2.0].map(|time| steps.at(time)[0]), [2.0, 4.0, 4.0]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    times: Vec<f64>,
    /// `[times, channels]`.
    values: Vec<f64>,
    /// Derivatives at the knots of a spline, `[times, channels]`; otherwise empty.
    slopes: Vec<f64>,
    interpolation: Interpolation,
}

/// The change of a signal over one interval: the polynomial `x (c1 + x (c2 + x c3))` of `x = (t - start) * rate`, limited to
/// `[0, 1]`. A signal is its first value plus all its ramps.
#[derive(Clone, Debug, PartialEq)]
pub struct Ramp {
    /// The time at which the ramp begins.
    pub start: f64,
    /// The reciprocal of its duration.
    pub rate: f64,
    /// `[c1, c2, c3]` of each channel; `c2` and `c3` are 0 unless the signal is a spline.
    pub rises: Vec<[f64; 3]>,
}

impl Signal {
    /// Rate of the ramps that stand for jumps, in units of the signal's time. A unit is the span of the training data; single
    /// precision resolves a ten-millionth of it.
    pub const JUMP_RATE: f64 = 1e7;

    /// Creates a signal from its values `[times, channels]` at increasing times.
    ///
    /// # Panics
    /// If there are no times, or the number of values is not a multiple of theirs.
    pub fn new(times: Vec<f64>, values: Vec<f64>, interpolation: Interpolation) -> Self {
        assert!(
            !times.is_empty() && values.len().is_multiple_of(times.len()),
            "one row of values for each time"
        );
        let channels = values.len() / times.len();
        let mut slopes = Vec::new();
        if interpolation == Interpolation::Spline {
            let path = Path { spline: Spline::Cubic, stencil: 3 };
            for &time in &times {
                let weights = path.weights(&times, time);
                let slope = |channel: usize| -> f64 {
                    let rows = weights.range().zip(weights.velocity());
                    rows.map(|(row, weight)| weight * values[row * channels + channel]).sum()
                };
                slopes.extend((0..channels).map(slope));
            }
        }
        Self { times, values, slopes, interpolation }
    }

    /// The times of the knots.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.values.len() / self.times.len()
    }

    /// The values of all channels at a knot.
    ///
    /// # Panics
    /// If there is no such knot.
    pub fn knot(&self, index: usize) -> &[f64] {
        &self.values[index * self.channels()..][..self.channels()]
    }

    /// The values of all channels at a time.
    pub fn at(&self, time: f64) -> Vec<f64> {
        let knot = self.times.partition_point(|&known| known <= time).saturating_sub(1);
        let row = self.knot(knot);
        let Some(&next) = self.times.get(knot + 1).filter(|_| self.interpolation != Interpolation::Hold)
        else {
            return row.to_vec();
        };
        let x = ((time - self.times[knot]) / (next - self.times[knot])).clamp(0.0, 1.0);
        let value = |(channel, &value): (usize, &f64)| {
            let [c1, c2, c3] = self.rise(knot, channel);
            value + x * (c1 + x * (c2 + x * c3))
        };
        row.iter().enumerate().map(value).collect()
    }

    /// The times at which a channel jumps.
    pub fn jumps(&self) -> Vec<f64> {
        if self.interpolation != Interpolation::Hold {
            return Vec::new();
        }
        let rows: Vec<&[f64]> = self.values.chunks(self.channels().max(1)).collect();
        let pairs = rows.windows(2).zip(&self.times[1..]);
        pairs.filter(|(pair, _)| pair[0] != pair[1]).map(|(_, &time)| time).collect()
    }

    /// The ramps of all intervals; ramp `k` is the change from knot `k` to the next one.
    pub fn ramps(&self) -> Vec<Ramp> {
        let ramp = |knot: usize| {
            let [from, to] = [knot, knot + 1].map(|knot| self.times[knot]);
            let (start, rate) = match self.interpolation {
                Interpolation::Hold => (to, Self::JUMP_RATE),
                Interpolation::Linear | Interpolation::Spline => (from, 1.0 / (to - from)),
            };
            Ramp {
                start,
                rate,
                rises: (0..self.channels()).map(|channel| self.rise(knot, channel)).collect(),
            }
        };
        (0..self.times.len() - 1).map(ramp).collect()
    }

    /// The polynomial of the interval after a knot.
    fn rise(&self, knot: usize, channel: usize) -> [f64; 3] {
        let channels = self.channels();
        let [before, after] = [knot, knot + 1].map(|knot| knot * channels + channel);
        let change = self.values[after] - self.values[before];
        if self.slopes.is_empty() {
            return [change, 0.0, 0.0];
        }
        let length = self.times[knot + 1] - self.times[knot];
        let [first, last] = [before, after].map(|place| length * self.slopes[place]);
        [first, 3.0 * change - 2.0 * first - last, first + last - 2.0 * change]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Interpolation; 3] = [Interpolation::Linear, Interpolation::Hold, Interpolation::Spline];

    fn signal(gaps: &[f64], values: &[f64], interpolation: Interpolation) -> Signal {
        let mut time = -1.0;
        let times: Vec<f64> = gaps
            .iter()
            .map(|gap| {
                time += gap;
                time
            })
            .collect();
        Signal::new(times, values[..2 * gaps.len()].to_vec(), interpolation)
    }

    proptest! {
        /// Checks that signals pass through their knots, are constant outside, and are the sum of their ramps.
        #[test]
        fn every_signal_passes_its_knots_and_is_the_sum_of_its_ramps(
            gaps in prop::collection::vec(0.01..1.0_f64, 1..12),
            values in prop::collection::vec(-2.0..2.0_f64, 24),
            time in -2.0..10.0_f64,
        ) {
            for interpolation in ALL {
                let signal = signal(&gaps, &values, interpolation);
                for (knot, row) in signal.times().iter().zip(values.chunks(2)) {
                    for (found, expected) in signal.at(*knot).iter().zip(row) {
                        prop_assert!((found - expected).abs() < 1e-12);
                    }
                }
                prop_assert_eq!(signal.at(-5.0), values[..2].to_vec());
                let at = signal.at(time);
                for channel in 0..2 {
                    let ramps = signal.ramps().into_iter().map(|ramp| {
                        let x = ((time - ramp.start) * ramp.rate).clamp(0.0, 1.0);
                        let [c1, c2, c3] = ramp.rises[channel];
                        x * (c1 + x * (c2 + x * c3))
                    });
                    let sum = values[channel] + ramps.sum::<f64>();
                    // A ramp that stands for a jump takes a ten-millionth of a unit.
                    let near_jump = signal.jumps().iter().any(|jump| (time - jump).abs() < 1e-6);
                    prop_assert!(near_jump || (sum - at[channel]).abs() < 1e-9, "{:?}", interpolation);
                }
            }
        }

        /// Checks that straight lines are lines for both interpolations without jumps, and quadratics are exact for a spline away
        /// from its ends.
        #[test]
        fn polynomials_are_exact(gaps in prop::collection::vec(0.01..1.0_f64, 5..12), share in 0.0..1.0_f64) {
            let times: Vec<f64> = gaps.iter().scan(0.0, |time, gap| { *time += gap; Some(*time) }).collect();
            let of = |f: &dyn Fn(f64) -> f64, interpolation| {
                Signal::new(times.clone(), times.iter().map(|&time| f(time)).collect(), interpolation)
            };
            let time = times[1] + share * (times[times.len() - 2] - times[1]);
            for interpolation in [Interpolation::Linear, Interpolation::Spline] {
                let found = of(&|t| 2.0 - 3.0 * t, interpolation).at(time)[0];
                prop_assert!((found - (2.0 - 3.0 * time)).abs() < 1e-9);
            }
            let found = of(&|t| t * t - t, Interpolation::Spline).at(time)[0];
            prop_assert!((found - (time * time - time)).abs() < 1e-9);
        }
    }

    #[test]
    fn jumps_are_where_a_held_value_changes() {
        let (times, values) = (vec![0.0, 1.0, 2.0, 3.0], vec![1.0, 1.0, 2.0, 1.0]);
        assert_eq!(Signal::new(times.clone(), values.clone(), Interpolation::Hold).jumps(), [2.0, 3.0]);
        assert!(Signal::new(times, values, Interpolation::Linear).jumps().is_empty());
    }
}
