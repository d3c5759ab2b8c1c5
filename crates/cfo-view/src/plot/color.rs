//! Colours for numbers: perceptually uniform colour maps.
//!
//! They are built in the Oklab space, whose lightness and distances follow human vision. A sequential map gets lighter
//! while its hue turns; a diverging one gets darker away from its middle.

use std::sync::OnceLock;

/// Number of colours of a map: few enough that images compress well, more than the eye can distinguish.
const LEVELS: f64 = 96.0;

/// Maps numbers to colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ColorScale {
    /// The family of colours.
    pub map: ColorMap,
    /// The number of the first colour; smaller numbers have it too.
    pub low: f64,
    /// The number of the last colour; larger numbers have it too.
    pub high: f64,
}

/// A family of colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColorMap {
    /// Dark to light.
    Sequential,
    /// Blue for negative, white for zero, red for positive.
    Diverging,
}

impl ColorScale {
    /// A sequential scale over the finite ones of some values.
    pub fn covering<'a>(values: impl Iterator<Item = &'a f32>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite())
            .map(|&value| f64::from(value))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        let (low, high) = if low < high { (low, high) } else { (low.min(0.0), high.max(1.0)) };
        Self { map: ColorMap::Sequential, low, high }
    }

    /// A diverging scale, symmetric about zero, up to the largest magnitude of some values.
    pub fn around_zero<'a>(values: impl Iterator<Item = &'a f32>) -> Self {
        let largest = values.filter(|value| value.is_finite()).fold(0.0_f32, |most, x| most.max(x.abs()));
        let high = if largest > 0.0 { f64::from(largest) } else { 1.0 };
        Self { map: ColorMap::Diverging, low: -high, high }
    }

    /// The colour of a number; grey for NaN.
    pub fn color(&self, value: f64) -> [u8; 3] {
        if value.is_nan() {
            return [128; 3];
        }
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.map.levels()[(share * LEVELS).round() as usize]
    }
}

impl ColorMap {
    /// Its colours, made once.
    fn levels(self) -> &'static [[u8; 3]] {
        static LEVELS_OF: [OnceLock<Vec<[u8; 3]>>; 2] = [OnceLock::new(), OnceLock::new()];
        let colors = || (0..=LEVELS as usize).map(|level| self.at(level as f64 / LEVELS)).collect();
        LEVELS_OF[self as usize].get_or_init(colors)
    }

    /// The colour at a position from 0 to 1.
    fn at(self, share: f64) -> [u8; 3] {
        match self {
            Self::Sequential => {
                let lightness = 0.26 + 0.66 * share;
                let chroma = 0.10 + 0.05 * (std::f64::consts::PI * share).sin();
                oklab(lightness, chroma, 300.0 - 195.0 * share)
            }
            Self::Diverging => {
                let away = (2.0 * share - 1.0).abs();
                let hue = if share < 0.5 { 255.0 } else { 32.0 };
                oklab(0.98 - 0.48 * away, 0.17 * away, hue)
            }
        }
    }
}

/// A colour of given lightness, chroma and hue (in degrees) in sRGB; what the screen cannot show is clipped.
fn oklab(lightness: f64, chroma: f64, hue: f64) -> [u8; 3] {
    let (sine, cosine) = hue.to_radians().sin_cos();
    let (a, b) = (chroma * cosine, chroma * sine);
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let middle = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    let linear = [
        4.076_741_662_1 * long - 3.307_711_591_3 * middle + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * middle - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * middle + 1.707_614_701_0 * short,
    ];
    linear.map(|x| {
        let x = x.clamp(0.0, 1.0);
        let shown = if x <= 0.003_130_8 { 12.92 * x } else { 1.055 * x.powf(1.0 / 2.4) - 0.055 };
        (255.0 * shown).round() as u8
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn luminance([r, g, b]: [u8; 3]) -> f64 {
        0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
    }

    #[test]
    fn lightness_tells_the_order() {
        let shares = || (0..=20).map(|i| f64::from(i) / 20.0);
        let rising: Vec<f64> = shares().map(|x| luminance(ColorMap::Sequential.at(x))).collect();
        assert!(rising.windows(2).all(|pair| pair[1] > pair[0]), "{rising:?}");
        let both: Vec<f64> = shares().map(|x| luminance(ColorMap::Diverging.at(x))).collect();
        assert!(both[..11].windows(2).all(|pair| pair[1] > pair[0]), "{both:?}");
        assert!(both[10..].windows(2).all(|pair| pair[1] < pair[0]), "{both:?}");
    }

    #[test]
    fn scales_cover_what_is_finite() {
        let values = [1.0_f32, f32::NAN, -3.0, f32::INFINITY];
        let scale = ColorScale::covering(values.iter());
        assert_eq!((scale.low, scale.high), (-3.0, 1.0));
        let scale = ColorScale::around_zero(values.iter());
        assert_eq!((scale.low, scale.high), (-3.0, 3.0));
        assert_eq!(scale.color(9.0), scale.color(3.0));
        for flat in [&[][..], &[0.0], &[f32::NAN]] {
            let scale = ColorScale::covering(flat.iter());
            assert!(scale.low < scale.high);
        }
    }
}
