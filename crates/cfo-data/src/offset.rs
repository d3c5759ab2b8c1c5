//! Offsets that are subtracted from channels before their values are stored in single precision.
//!
//! Single precision has seven digits, too few for the sine in `101325 + 0.02 sin t`. If a channel's values are large
//! compared to their deviation, a number near their mean is subtracted in double precision first. Values in memory are
//! relative to this offset. Files, arrays, predictions and errors that users see are absolute.

use crate::Description;

/// Smallest ratio of mean to deviation for which a channel gets an offset. It saves at least two digits.
const LARGE: f64 = 100.0;

/// Constants below this get no offset: single precision keeps half of its digits for variation outside the sample.
const SMALL: f64 = 4096.0;

/// Larger means get no offset, since squares of absolute values would overflow.
const LARGEST: f64 = 1e100;

/// The number subtracted from each channel. Most data have none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Offset(Vec<f64>);

impl Offset {
    /// No offset in any channel.
    pub const NONE: Self = Self(Vec::new());

    /// Creates an offset from one number per channel.
    pub fn new(channels: Vec<f64>) -> Self {
        if channels.iter().all(|&offset| offset == 0.0) { Self::NONE } else { Self(channels) }
    }

    /// Chooses offsets for values (channels last) in any number of portions.
    pub fn suiting<'a>(channels: usize, portions: impl IntoIterator<Item = &'a [f64]>) -> Self {
        let mut spreads = vec![Spread::default(); channels.max(1)];
        for portion in portions {
            for point in portion.chunks_exact(channels.max(1)) {
                spreads.iter_mut().zip(point).for_each(|(spread, &value)| spread.add(value));
            }
        }
        Self::new(spreads.iter().map(Spread::offset).collect())
    }

    /// Whether no channel has an offset.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The offsets of all channels; empty if there are none.
    pub fn channels(&self) -> &[f64] {
        &self.0
    }

    /// The offset of one channel.
    pub fn of(&self, channel: usize) -> f64 {
        self.0.get(channel).copied().unwrap_or(0.0)
    }

    /// Subtracts the offset from values (channels last) and rounds to single precision.
    pub fn relative(&self, values: &[f64], out: &mut [f32]) {
        if self.is_none() {
            return out.iter_mut().zip(values).for_each(|(out, &value)| *out = value as f32);
        }
        for (out, values) in out.chunks_mut(self.0.len()).zip(values.chunks(self.0.len())) {
            for ((out, value), offset) in out.iter_mut().zip(values).zip(&self.0) {
                *out = (value - offset) as f32;
            }
        }
    }

    /// Adds the offset back to relative values (channels last).
    pub fn absolute(&self, values: &[f32]) -> Vec<f64> {
        let offsets = self.0.iter().copied().cycle().chain(std::iter::repeat(0.0));
        values.iter().zip(offsets).map(|(&value, offset)| f64::from(value) + offset).collect()
    }

    /// Returns a description whose channel names include the offset, as in `u - 1000`, for plots of relative values.
    pub fn named(&self, description: &Description) -> Description {
        let mut named = description.clone();
        if self.is_none() {
            return named;
        }
        let names = &description.channel_names;
        let own = |channel: usize| names.get(channel).cloned().unwrap_or_else(|| format!("u{channel}"));
        let about = |channel: usize| match self.of(channel) {
            0.0 => own(channel),
            offset if offset < 0.0 => format!("{} + {}", own(channel), -offset),
            offset => format!("{} - {offset}", own(channel)),
        };
        named.channel_names = (0..description.shape.channels).map(about).collect();
        named
    }

    /// Converts values relative to this offset to values relative to another one.
    pub fn shift(&self, to: &Self, values: &mut [f32]) {
        if self == to {
            return;
        }
        let channels = self.0.len().max(to.0.len());
        for point in values.chunks_mut(channels) {
            for (channel, value) in point.iter_mut().enumerate() {
                let change = self.of(channel) - to.of(channel);
                if change != 0.0 {
                    *value = (f64::from(*value) + change) as f32;
                }
            }
        }
    }
}

/// Mean and deviation of a channel in double precision.
#[derive(Clone, Debug, Default)]
struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Spread {
    fn add(&mut self, value: f64) {
        if !value.is_finite() {
            return;
        }
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (value - self.mean);
    }

    /// The offset: a number near the mean with few digits, or 0.
    fn offset(&self) -> f64 {
        let deviation = (self.squares / self.count.max(1.0)).sqrt();
        let size = self.mean.abs();
        let is_small_constant = deviation == 0.0 && size < SMALL;
        if deviation.is_nan() || size > LARGEST || size < LARGE * deviation || is_small_constant {
            return 0.0;
        }
        // A channel that is constant in the sample may vary outside it.
        let digit = if deviation > 0.0 { deviation.log2().floor().exp2() } else { 0.0 };
        let rounded = (self.mean / digit).round() * digit;
        if digit > 0.0 && rounded.is_finite() { rounded } else { self.mean }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: impl Fn(f64) -> f64) -> f64 {
        let values: Vec<f64> = (0..1000).map(|i| value(0.1 * f64::from(i))).collect();
        Offset::suiting(1, [&values[..300], &values[300..]]).of(0)
    }

    #[test]
    fn only_values_that_are_large_beside_their_spread_have_an_offset() {
        assert_eq!(of(|t| 1e9 + t.sin()), 1e9);
        assert!((of(|t| 101_325.0 + 0.02 * t.sin()) - 101_325.0).abs() < 0.01);
        assert!((of(|t| -273.15 + 0.1 * t.cos()) + 273.15).abs() < 0.1);
        for value in
            [|t: f64| t.sin(), |t: f64| 3.0 + t.cos(), |t: f64| 300.0 + 30.0 * t.sin(), |_| 9.81, |_| 0.0]
        {
            assert_eq!(of(value), 0.0);
        }
        assert_eq!(of(|_| 1e9), 1e9, "it may vary elsewhere");
        for beyond in [1e300, f64::NAN, f64::INFINITY] {
            assert_eq!(of(|t| beyond + t), 0.0);
        }
    }

    #[test]
    fn values_come_back_with_the_digits_of_their_spread() {
        let offset = Offset::new(vec![1e9, 0.0]);
        let values = [1e9 + 0.123_456_789, 0.5, 1e9 - 1.0, -2.0];
        let mut kept = [0.0; 4];
        offset.relative(&values, &mut kept);
        for (back, value) in offset.absolute(&kept).iter().zip(values) {
            // Single precision of values of size 1, and double precision of 1e9.
            assert!((back - value).abs() < 2e-7, "{back} {value}");
        }
        let other = Offset::new(vec![1e9 + 1.0, 0.0]);
        let mut moved = kept;
        offset.shift(&other, &mut moved);
        assert_eq!(moved, [kept[0] - 1.0, kept[1], -2.0, kept[3]]);
        other.shift(&Offset::NONE, &mut moved);
        assert_eq!(moved[2], (1e9 - 1.0) as f32);
        assert!(Offset::new(vec![0.0, 0.0]).is_none());
    }
}
