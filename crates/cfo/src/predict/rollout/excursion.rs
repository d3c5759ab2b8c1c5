//! Excursions: rollouts that leave the range of the training data by orders of magnitude. Their values are not valid.

use cfo_data::Offset;
use serde::{Deserialize, Serialize};

use crate::measure::scaling::Scaling;
use crate::model::Model;

/// Distance from the range of the training data at which a state is far outside, in widths of the range. Test trajectories leave the range
/// of the training set by a fraction of its width.
const FAR: f64 = 10.0;

/// Number of values that are compared with their bounds together.
const LANES: usize = 64;

/// A predicted trajectory far outside the range of the training data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excursion {
    /// Its index in the request.
    pub trajectory: usize,
    /// The first time at which it was outside, in the user's units.
    pub time: f64,
    /// The channel that is farthest outside, in widths of its range.
    pub channel: usize,
    /// The value farthest outside, in the user's units.
    pub value: f64,
    /// Smallest and largest value of the channel in the training data.
    pub range: [f64; 2],
}

impl Excursion {
    /// Returns the excursion with the trajectory's number elsewhere.
    pub(crate) fn numbered(&self, number: impl Fn(usize) -> usize) -> Self {
        Self { trajectory: number(self.trajectory), ..self.clone() }
    }

    /// Returns a warning that describes the first excursion and gives the number of others. `None` if there are none.
    pub fn warning(model: &Model, excursions: &[Self]) -> Option<String> {
        let Self { trajectory, time, channel, value, range: [low, high] } = excursions.first()?;
        let name = model.channel_names.get(*channel).filter(|name| !name.is_empty());
        let name = name.map_or_else(|| format!("channel {channel}"), |name| format!("`{name}`"));
        let others = match excursions.len() - 1 {
            0 => String::new(),
            1 => "; so does one more trajectory".into(),
            count => format!("; so do {count} more trajectories"),
        };
        Some(format!(
            "trajectory {trajectory} leaves the range of the training data at time {time}: {name} reaches {value:.2e}, the training data have {low:.2e} to {high:.2e}{others}"
        ))
    }
}

/// Bounds of values that are not far outside the range of the training data.
pub(super) struct Bounds {
    channels: usize,
    /// Smallest and largest value of each lane, for a whole number of points.
    low: Vec<f32>,
    high: Vec<f32>,
    range: Vec<[f64; 2]>,
    /// Offset to add to values and ranges for the user's units.
    offset: Offset,
}

/// The first output of a trajectory that is far outside, and its farthest channel and value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Farthest {
    pub(super) output: usize,
    channel: usize,
    value: f32,
    distance: f64,
}

impl Bounds {
    pub(super) fn new(scaling: &Scaling) -> Self {
        let (range, offset) = (scaling.range.clone(), scaling.offset());
        let channels = range.len().max(1);
        let lanes = channels * LANES.div_ceil(channels);
        let bound = |end: fn(&[f64; 2]) -> f64, side: f64| -> Vec<f32> {
            let of = |range: &[f64; 2]| (end(range) + side * FAR * width(range)) as f32;
            let clamped = range.iter().map(|range| of(range).clamp(f32::MIN, f32::MAX));
            clamped.cycle().take(if range.is_empty() { 0 } else { lanes }).collect()
        };
        Self {
            channels,
            low: bound(|range| range[0], -1.0),
            high: bound(|range| range[1], 1.0),
            range,
            offset,
        }
    }

    /// Returns whether all values of a state are finite and not far outside. The loop has no branch per value.
    pub(super) fn hold(&self, state: &[f32]) -> bool {
        let within = |group: &[f32]| {
            let bounds = group.iter().zip(&self.low).zip(&self.high);
            bounds.fold(true, |within, ((value, low), high)| within & (value >= low) & (value <= high))
        };
        self.low.is_empty() || state.chunks(self.low.len()).fold(true, |all, group| all & within(group))
    }

    /// Adds a finite state, which is output number `output`, to the previous result.
    pub(super) fn look(&self, state: &[f32], output: usize, found: &mut Option<Farthest>) {
        for point in state.chunks_exact(self.channels) {
            for (channel, (&value, range)) in point.iter().zip(&self.range).enumerate() {
                let beyond = (f64::from(value) - range[1]).max(range[0] - f64::from(value));
                let distance = beyond / width(range);
                if distance > FAR && found.is_none_or(|found| distance > found.distance) {
                    let output = found.map_or(output, |found| found.output);
                    *found = Some(Farthest { output, channel, value, distance });
                }
            }
        }
    }

    /// Converts the result for a trajectory to an excursion in the user's terms.
    pub(super) fn excursion(&self, trajectory: usize, time: f64, found: Farthest) -> Excursion {
        let Farthest { channel, value, .. } = found;
        let offset = self.offset.of(channel);
        let (value, range) = (f64::from(value) + offset, self.range[channel].map(|end| end + offset));
        Excursion { trajectory, time, channel, value, range }
    }
}

/// Returns the width of a channel's range. A constant channel has the unit of its scaling.
fn width([low, high]: &[f64; 2]) -> f64 {
    if high > low { high - low } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_far_out_of_the_range_are_found_with_their_farthest_channel() {
        for channels in [1, 3, 70] {
            let range: Vec<[f64; 2]> = (0..channels).map(|channel| [-1.0, 1.0 + channel as f64]).collect();
            let bounds = Bounds::new(&Scaling { range: range.clone(), ..Scaling::default() });
            let mut state = vec![0.5_f32; 40 * channels];
            assert!(bounds.hold(&state), "{channels}");
            // Within ten widths of the range.
            state[5 * channels] = 20.0;
            assert!(bounds.hold(&state), "{channels}");
            for bad in [f32::NAN, f32::INFINITY, -21.5, 22.0] {
                let mut state = state.clone();
                state[39 * channels] = bad;
                assert!(!bounds.hold(&state), "{channels} {bad}");
            }
            let mut found = None;
            bounds.look(&state, 3, &mut found);
            assert_eq!(found, None);
            state[7 * channels] = -30.0;
            bounds.look(&state, 4, &mut found);
            state[7 * channels] = 1e6;
            bounds.look(&state, 5, &mut found);
            let found = found.unwrap();
            assert_eq!(found.output, 4);
            let excursion = bounds.excursion(2, 0.5, found);
            assert_eq!((excursion.trajectory, excursion.channel, excursion.value), (2, 0, 1e6));
            assert_eq!(excursion.range, range[0]);
        }
    }
}
