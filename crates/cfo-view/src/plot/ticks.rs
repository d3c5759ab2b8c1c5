//! Ticks of an axis and their labels.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::AxisScale;

/// The visible part of an axis in drawing coordinates (the logarithm of the value on a logarithmic axis).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Labelled positions.
    pub major: Vec<f64>,
    /// Unlabelled positions.
    pub minor: Vec<f64>,
    scale: AxisScale,
    /// Whether labels of a logarithmic axis are numbers, not powers of ten.
    numbers: bool,
}

impl Ticks {
    /// Ticks for an axis that shows `values`; those that the scale cannot show are left out.
    pub fn covering(values: impl Iterator<Item = f64>, scale: AxisScale) -> Self {
        let (low, high) = values
            .filter_map(|value| coordinate(value, scale))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)));
        match (low <= high, scale) {
            (false, _) => Self::covering([1.0, 10.0].into_iter(), scale),
            (true, AxisScale::Linear) => Self::linear(low, high, 5.0),
            (true, AxisScale::Logarithmic) => Self::logarithmic(low, high),
        }
    }

    /// A linear axis with about `intervals` intervals between ticks.
    pub fn linear(low: f64, high: f64, intervals: f64) -> Self {
        // A flat curve gets a band around it.
        let (low, high) = if high - low > 1e-12 * low.abs().max(high.abs()) {
            (low, high)
        } else {
            (low - 0.5 * low.abs().max(1e-3), high + 0.5 * high.abs().max(1e-3))
        };
        let raw = (high - low) / intervals;
        let decade = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|m| m * decade).into_iter().find(|&s| s >= raw * 0.999);
        let step = step.unwrap_or(10.0 * decade);
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let major = (first..=last).map(|i| i as f64 * step).collect();
        Self { low, high, major, minor: Vec::new(), scale: AxisScale::Linear, numbers: true }
    }

    fn logarithmic(low: f64, high: f64) -> Self {
        let (low, high) = (low - 0.05, high + 0.05);
        let (first, last) = (low.floor() as i32, high.ceil() as i32);
        let stride = ((last - first) / 8).max(1) as usize;
        let visible = |x: &f64| (low..=high).contains(x);
        let mut major: Vec<f64> = (first..=last).step_by(stride).map(f64::from).filter(visible).collect();
        let mut minor: Vec<f64> = (first..last)
            .flat_map(|decade| (2..10).map(move |m| f64::from(decade) + f64::from(m).log10()))
            .filter(visible)
            .collect();
        let numbers = major.len() < 2;
        if numbers {
            // Less than two decades: multiples are labelled too, not more than can stand side by side.
            let mut all = [major, minor].concat();
            all.sort_by(f64::total_cmp);
            let few = all.len() <= 6;
            let round =
                |x: &f64| few || [1.0, 2.0, 5.0].iter().any(|m| (10f64.powf(x - x.floor()) - m).abs() < 1e-6);
            (major, minor) = all.into_iter().partition(round);
        }
        if numbers && major.len() < 2 {
            let even = Self::linear(10f64.powf(low), 10f64.powf(high), 4.0).major;
            major = even.into_iter().map(f64::log10).filter(visible).collect();
        }
        Self { low, high, major, minor, scale: AxisScale::Logarithmic, numbers }
    }

    /// Returns the drawing coordinate of `value`, if the axis can show it.
    pub fn coordinate(&self, value: f64) -> Option<f64> {
        coordinate(value, self.scale)
    }

    /// The text beside the tick at a drawing coordinate.
    pub fn label(&self, at: f64) -> String {
        match self.scale {
            AxisScale::Linear => plain(at),
            AxisScale::Logarithmic if self.numbers && (-3.0..4.0).contains(&at) => plain(10f64.powf(at)),
            AxisScale::Logarithmic if (at - at.round()).abs() < 1e-9 => {
                format!("10{}", superscript(at.round() as i32))
            }
            AxisScale::Logarithmic => {
                let decade = at.floor();
                format!("{:.0}·10{}", 10f64.powf(at - decade), superscript(decade as i32))
            }
        }
    }
}

impl Ranged for Ticks {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.low) / (self.high - self.low);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { self.minor.clone() } else { self.major.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Ticks {
    fn format(value: &f64) -> String {
        value.to_string()
    }

    fn format_ext(&self, value: &f64) -> String {
        self.label(*value)
    }
}

fn coordinate(value: f64, scale: AxisScale) -> Option<f64> {
    let x = match scale {
        AxisScale::Linear => value,
        AxisScale::Logarithmic => value.log10(),
    };
    x.is_finite().then_some(x)
}

/// A tick's value without the digits of binary rounding.
fn plain(value: f64) -> String {
    let value = if value.abs() < 1e-12 { 0.0 } else { value };
    if value != 0.0 && !(1e-3..1e5).contains(&value.abs()) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn superscript(exponent: i32) -> String {
    exponent
        .to_string()
        .chars()
        .map(|c| match c.to_digit(10) {
            Some(digit) => ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][digit as usize],
            None => '⁻',
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_ticks_are_round_and_inside() {
        let ticks = Ticks::covering([0.0, 1.0].into_iter(), AxisScale::Linear);
        let labels: Vec<_> = ticks.major.iter().map(|&x| ticks.label(x)).collect();
        assert_eq!(labels, ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn logarithmic_ticks_are_decades() {
        let ticks = Ticks::covering([2e-4, 0.3, -1.0, f64::NAN].into_iter(), AxisScale::Logarithmic);
        let labels: Vec<_> = ticks.major.iter().map(|&x| ticks.label(x)).collect();
        assert_eq!(labels, ["10⁻³", "10⁻²", "10⁻¹"]);
        assert!(ticks.low < (2e-4f64).log10() && ticks.high > (0.3f64).log10());
    }

    #[test]
    fn a_narrow_logarithmic_axis_still_has_labels() {
        let ticks = Ticks::covering([2.0, 5.0].into_iter(), AxisScale::Logarithmic);
        let labels: Vec<_> = ticks.major.iter().map(|&x| ticks.label(x)).collect();
        assert_eq!(labels, ["2", "3", "4", "5"]);
        let ticks = Ticks::covering([2e-6, 3e-6].into_iter(), AxisScale::Logarithmic);
        assert_eq!(ticks.label(ticks.major[0]), "2·10⁻⁶");
        // Not so many that they run into each other.
        let labels = |values: [f64; 2]| -> Vec<String> {
            let ticks = Ticks::covering(values.into_iter(), AxisScale::Logarithmic);
            ticks.major.iter().map(|&x| ticks.label(x)).collect()
        };
        assert_eq!(labels([500.0, 4000.0]), ["500", "1000", "2000"]);
        // Not so few that nothing can be read off.
        assert_eq!(labels([0.0254, 0.0289]), ["0.025", "0.0275", "0.03"]);
    }

    #[test]
    fn every_axis_has_room_and_its_ticks_inside() {
        for scale in [AxisScale::Linear, AxisScale::Logarithmic] {
            for values in
                [vec![], vec![3.0], vec![1e-9, 1e9], vec![f64::NAN], vec![-4e7, 1e8], vec![5.0, 5.0]]
            {
                let ticks = Ticks::covering(values.iter().copied(), scale);
                assert!(ticks.low < ticks.high, "{values:?} {scale:?}");
                // A round number may miss the end by rounding, far less than a pixel.
                let room = 1e-8 * (ticks.high - ticks.low);
                let inside = ticks.low - room..=ticks.high + room;
                assert!(ticks.major.iter().all(|x| inside.contains(x)), "{ticks:?}");
            }
        }
    }
}
