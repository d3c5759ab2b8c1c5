//! Per-channel statistics in one pass, and scaling by them.

use crate::simd::vectorized;

/// Mean and standard deviation of each channel over every point of every snapshot.
///
/// A channel that never changes gets deviation 1, so that scaling keeps it finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Normalization {
    /// One mean per channel.
    pub mean: Vec<f64>,
    /// One positive standard deviation per channel.
    pub deviation: Vec<f64>,
}

impl Normalization {
    /// The identity scaling.
    pub fn identity(channels: usize) -> Self {
        Self { mean: vec![0.0; channels], deviation: vec![1.0; channels] }
    }

    /// Scales values in place, channels last.
    pub fn apply(&self, values: &mut [f32]) {
        scale(values, &self.mean, &self.deviation);
    }
}

vectorized! {
    /// Subtracts a mean from the values of each channel (channels last) and divides by a deviation.
    pub fn scale(values: &mut [f32], mean: &[f64], deviation: &[f64]) {
        transform(values, mean, deviation, |value, mean, deviation| (value - mean) / deviation);
    }
}

vectorized! {
    /// Inverts [`scale`].
    pub fn unscale(values: &mut [f32], mean: &[f64], deviation: &[f64]) {
        transform(values, mean, deviation, |value, mean, deviation| value * deviation + mean);
    }
}

#[inline(always)]
fn transform(values: &mut [f32], mean: &[f64], deviation: &[f64], map: impl Fn(f64, f64, f64) -> f64) {
    match mean.len() {
        1 | 2 | 4 | 8 => transform_lanes::<8>(values, mean, deviation, map),
        3 | 6 | 12 => transform_lanes::<12>(values, mean, deviation, map),
        channels => {
            for point in values.chunks_mut(channels.max(1)) {
                for ((value, &mean), &deviation) in point.iter_mut().zip(mean).zip(deviation) {
                    *value = map(f64::from(*value), mean, deviation) as f32;
                }
            }
        }
    }
}

/// Transforms several points at once; `LANES` is a multiple of the channels.
#[inline(always)]
fn transform_lanes<const LANES: usize>(
    values: &mut [f32],
    mean: &[f64],
    deviation: &[f64],
    map: impl Fn(f64, f64, f64) -> f64,
) {
    let channels = mean.len();
    let (mut means, mut deviations) = ([0.0; LANES], [0.0; LANES]);
    for lane in 0..LANES {
        (means[lane], deviations[lane]) = (mean[lane % channels], deviation[lane % channels]);
    }
    let (groups, rest) = values.as_chunks_mut::<LANES>();
    for group in groups {
        for lane in 0..LANES {
            group[lane] = map(f64::from(group[lane]), means[lane], deviations[lane]) as f32;
        }
    }
    for ((value, &mean), &deviation) in rest.iter_mut().zip(&means).zip(&deviations) {
        *value = map(f64::from(*value), mean, deviation) as f32;
    }
}

/// Running statistics: snapshots are added in portions of any size.
///
/// Each portion of a few thousand points is reduced in two passes relative to its own mean and merged by the pairwise
/// update of Chan, Golub and LeVeque. A mean that is a million times the deviation thus costs no accuracy.
#[derive(Clone, Debug, PartialEq)]
pub struct Statistics {
    count: u64,
    mean: Vec<f64>,
    /// Sum of squared distances from the mean.
    spread: Vec<f64>,
    low: Vec<f32>,
    high: Vec<f32>,
}

/// Number of points reduced together; small enough to stay in the first-level cache.
const PORTION: usize = 2048;

impl Statistics {
    /// Creates empty statistics.
    pub fn new(channels: usize) -> Self {
        Self {
            count: 0,
            mean: vec![0.0; channels],
            spread: vec![0.0; channels],
            low: vec![f32::INFINITY; channels],
            high: vec![f32::NEG_INFINITY; channels],
        }
    }

    /// Adds points, channels last; an incomplete last point is ignored.
    pub fn add(&mut self, values: &[f32]) {
        let channels = self.mean.len();
        if channels == 0 {
            return;
        }
        let whole = values.len() - values.len() % channels;
        for portion in values[..whole].chunks(PORTION * channels) {
            self.merge(&Self::of_portion(portion, channels));
        }
    }

    fn of_portion(values: &[f32], channels: usize) -> Self {
        let mut portion = Self::new(channels);
        portion.count = (values.len() / channels) as u64;
        match channels {
            1 | 2 | 4 | 8 => portion.reduce::<8>(values),
            3 | 6 | 12 => portion.reduce::<12>(values),
            5 | 10 => portion.reduce::<10>(values),
            _ => {
                portion.reduce_rest(values);
                portion.divide();
                portion.spread_rest(values);
            }
        }
        portion
    }

    /// Reduces a portion in independent partial sums, which vectorise; `LANES` is a multiple of the channels.
    fn reduce<const LANES: usize>(&mut self, values: &[f32]) {
        let channels = self.mean.len();
        let (groups, rest) = values.as_chunks::<LANES>();
        let Totals { sums, low, high } = totals(groups);
        for lane in 0..LANES {
            let channel = lane % channels;
            self.mean[channel] += sums[lane];
            self.low[channel] = self.low[channel].min(low[lane]);
            self.high[channel] = self.high[channel].max(high[lane]);
        }
        self.reduce_rest(rest);
        self.divide();
        let mut means = [0.0; LANES];
        means.iter_mut().enumerate().for_each(|(lane, mean)| *mean = self.mean[lane % channels]);
        for (lane, spread) in spreads(groups, &means).iter().enumerate() {
            self.spread[lane % channels] += spread;
        }
        self.spread_rest(rest);
    }

    fn reduce_rest(&mut self, values: &[f32]) {
        for point in values.chunks_exact(self.mean.len()) {
            for (channel, &value) in point.iter().enumerate() {
                self.mean[channel] += f64::from(value);
                self.low[channel] = self.low[channel].min(value);
                self.high[channel] = self.high[channel].max(value);
            }
        }
    }

    fn divide(&mut self) {
        self.mean.iter_mut().for_each(|sum| *sum /= self.count as f64);
    }

    fn spread_rest(&mut self, values: &[f32]) {
        for point in values.chunks_exact(self.mean.len()) {
            for (channel, &value) in point.iter().enumerate() {
                self.spread[channel] += (f64::from(value) - self.mean[channel]).powi(2);
            }
        }
    }

    /// Adds the statistics of other points with the same channels.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let count = self.count + other.count;
        let (own, theirs) = (self.count as f64 / count as f64, other.count as f64 / count as f64);
        for channel in 0..self.mean.len() {
            let distance = other.mean[channel] - self.mean[channel];
            self.spread[channel] += other.spread[channel] + distance * distance * own * other.count as f64;
            self.mean[channel] += distance * theirs;
            self.low[channel] = self.low[channel].min(other.low[channel]);
            self.high[channel] = self.high[channel].max(other.high[channel]);
        }
        self.count = count;
    }

    /// Number of points added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Least and greatest value of each channel; `[inf, -inf]` before the first point.
    pub fn range(&self) -> Vec<[f32; 2]> {
        self.low.iter().zip(&self.high).map(|(&low, &high)| [low, high]).collect()
    }

    /// Population standard deviation of each channel; 0 for a constant channel.
    pub fn deviation(&self) -> Vec<f64> {
        let count = self.count.max(1) as f64;
        let moves = self.low.iter().zip(&self.high).map(|(low, high)| low < high);
        let deviation = |(spread, moves): (&f64, bool)| if moves { (spread / count).sqrt() } else { 0.0 };
        self.spread.iter().zip(moves).map(deviation).collect()
    }

    /// The scaling of the added values to `[0, 1]`: the least value as mean, the range as deviation.
    pub fn range_normalization(&self) -> Normalization {
        let range = |(&low, &high): (&f32, &f32)| f64::from(high) - f64::from(low);
        let ranges = self.low.iter().zip(&self.high).map(range);
        Normalization {
            mean: self.low.iter().map(|&low| if low.is_finite() { f64::from(low) } else { 0.0 }).collect(),
            deviation: ranges.map(|range| if range > 0.0 { range } else { 1.0 }).collect(),
        }
    }

    /// Mean and population standard deviation of the added values.
    pub fn normalization(&self) -> Normalization {
        let deviation = |spread: f64, mean: f64| {
            let deviation = (spread / self.count as f64).sqrt();
            // A deviation below the resolution of `f32` at the mean is rounding error.
            if deviation > mean.abs() * f64::from(f32::EPSILON) * 0.25 { deviation } else { 1.0 }
        };
        let pairs = self.spread.iter().zip(&self.mean);
        let deviation = pairs.map(|(&spread, &mean)| deviation(spread, mean)).collect();
        Normalization { mean: self.mean.clone(), deviation }
    }
}

struct Totals<const LANES: usize> {
    sums: [f64; LANES],
    low: [f32; LANES],
    high: [f32; LANES],
}

vectorized! {
    fn totals<const LANES: usize>(groups: &[[f32; LANES]]) -> Totals<LANES> {
        let (mut sums, mut low, mut high) =
            ([0.0; LANES], [f32::INFINITY; LANES], [f32::NEG_INFINITY; LANES]);
        for group in groups {
            for lane in 0..LANES {
                sums[lane] += f64::from(group[lane]);
                low[lane] = if group[lane] < low[lane] { group[lane] } else { low[lane] };
                high[lane] = if group[lane] > high[lane] { group[lane] } else { high[lane] };
            }
        }
        Totals { sums, low, high }
    }
}

vectorized! {
    /// Sum of the squared distances of each lane from its mean.
    fn spreads<const LANES: usize>(groups: &[[f32; LANES]], means: &[f64; LANES]) -> [f64; LANES] {
        let mut spreads = [0.0; LANES];
        for group in groups {
            for lane in 0..LANES {
                let distance = f64::from(group[lane]) - means[lane];
                spreads[lane] += distance * distance;
            }
        }
        spreads
    }
}

#[cfg(test)]
mod tests {
    use cfo_numerics::Philox;
    use proptest::prelude::*;

    use super::*;

    fn reference(values: &[f32], channels: usize, channel: usize) -> (f64, f64) {
        let own: Vec<f64> =
            values.iter().skip(channel).step_by(channels).map(|&value| f64::from(value)).collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        let spread = own.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        (mean, (spread / own.len() as f64).sqrt())
    }

    proptest! {
        #[test]
        fn portions_do_not_matter(
            channels in 1usize..4, points in 1usize..9000, cut in 0.0..1.0f64, mean in -1e4..1e4f64, seed: u64,
        ) {
            let mut random = Philox::new(seed, 0);
            let values: Vec<f32> =
                (0..points * channels).map(|_| (mean + random.normal()) as f32).collect();
            let middle = (cut * points as f64) as usize * channels;
            let mut statistics = Statistics::new(channels);
            statistics.add(&values[..middle]);
            let mut rest = Statistics::new(channels);
            rest.add(&values[middle..]);
            statistics.merge(&rest);
            prop_assert_eq!(statistics.count(), points as u64);
            let normalization = statistics.normalization();
            for channel in 0..channels {
                let (expected_mean, expected_deviation) = reference(&values, channels, channel);
                // The error of sums of n terms of size m is at most n m eps.
                let bound = points as f64 * mean.abs().max(1.0) * 4.0 * f64::EPSILON;
                prop_assert!((normalization.mean[channel] - expected_mean).abs() <= bound);
                if expected_deviation > 1e-3 * mean.abs().max(1.0) * f64::from(f32::EPSILON) * 1e4 {
                    prop_assert!((normalization.deviation[channel] - expected_deviation).abs() <= 1e3 * bound);
                }
            }
        }

        #[test]
        fn scaling_returns(values in prop::collection::vec(-1e3f32..1e3, 6..60)) {
            let mut statistics = Statistics::new(2);
            statistics.add(&values);
            for normalization in [statistics.normalization(), statistics.range_normalization()] {
                let mut scaled = values.clone();
                normalization.apply(&mut scaled);
                unscale(&mut scaled, &normalization.mean, &normalization.deviation);
                for (value, back) in values.iter().zip(&scaled) {
                    // One rounding to f32 of a scaled value of size |v - m| / d, times d.
                    prop_assert!((value - back).abs() <= 4.0 * f32::EPSILON * 2e3);
                }
            }
            let mut scaled = values[..values.len() / 2 * 2].to_vec();
            statistics.range_normalization().apply(&mut scaled);
            for channel in 0..2 {
                let own = || scaled.iter().skip(channel).step_by(2).copied();
                prop_assert_eq!(own().fold(f32::INFINITY, f32::min), 0.0);
                prop_assert_eq!(own().fold(f32::NEG_INFINITY, f32::max), 1.0);
            }
        }
    }

    /// Each lane adds in the same order and rounds equally with any instruction set.
    #[test]
    fn lanes_have_the_bits_of_a_plain_loop() {
        use std::hint::black_box;
        let mut random = Philox::new(7, 0);
        let values: Vec<f32> = (0..803).map(|_| (3.0 + random.normal()) as f32).collect();
        let (groups, _) = values.as_chunks::<8>();
        let means = [3.1, 2.9, 3.0, 3.2, 2.8, 3.05, 2.95, 3.15];
        let (found, spread) = (totals(groups), spreads(groups, &means));
        for lane in 0..8 {
            let (mut sum, mut square) = (0.0, 0.0);
            for group in groups {
                sum = black_box(sum + f64::from(group[lane]));
                let distance = black_box(f64::from(group[lane]) - means[lane]);
                square = black_box(square + black_box(distance * distance));
            }
            assert_eq!((found.sums[lane], spread[lane]), (sum, square));
        }
        let mut scaled = values.clone();
        scale(&mut scaled, &means[..2], &means[2..4]);
        for (i, (scaled, value)) in scaled.iter().zip(&values).enumerate() {
            let distance = black_box(f64::from(*value) - means[i % 2]);
            assert_eq!(*scaled, black_box(distance / means[2 + i % 2]) as f32);
        }
    }

    /// A deviation of 1 at a mean of 1e6: the naive sum of squares would lose all but four digits.
    #[test]
    fn huge_means_cost_no_accuracy() {
        let values: Vec<f32> = (0..1_000_000).map(|i| 1e6 + (i % 3) as f32 - 1.0).collect();
        let mut statistics = Statistics::new(1);
        values.chunks(777).for_each(|chunk| statistics.add(chunk));
        let normalization = statistics.normalization();
        let expected = reference(&values, 1, 0);
        assert!((normalization.mean[0] - expected.0).abs() < 1e-6);
        assert!((normalization.deviation[0] - expected.1).abs() < 1e-9);
    }

    #[test]
    fn constant_channels_stay_finite() {
        let mut statistics = Statistics::new(2);
        statistics.add(&[0.1, 1.0, 0.1, 3.0, 0.1, 2.0]);
        let normalization = statistics.normalization();
        assert_eq!(normalization.deviation[0], 1.0);
        assert!((normalization.mean[0] - f64::from(0.1f32)).abs() < 1e-12);
        assert_eq!(statistics.range(), [[0.1, 0.1], [1.0, 3.0]]);
        let empty = Statistics::new(1).normalization();
        assert_eq!((empty.mean[0], empty.deviation[0]), (0.0, 1.0));
        let range = statistics.range_normalization();
        assert_eq!((range.mean[1], range.deviation), (1.0, vec![1.0, 2.0]));
        let empty = Statistics::new(1).range_normalization();
        assert_eq!((empty.mean[0], empty.deviation[0]), (0.0, 1.0));
    }
}
