//! Conversion of values, times and velocities between the user's units and the network's.

use std::sync::Arc;

use cfo_data::{InputNames, Normalization, Offset, scale, unscale};
use cfo_numerics::Clock;
use cfo_numerics::metric::Summary;
use serde::{Deserialize, Serialize};

use crate::measure::Question;
pub use crate::measure::profile::Profile;
use crate::measure::selection::{Selection, Times};
pub use crate::measure::smoothing::{Denoiser, RemovedNoise};
use crate::measure::survey::Survey;
use crate::trajectories::Trajectories;

/// The unit of a network's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The unit of the normalised state, divided by the unit of time for a velocity.
    State,
    /// The root mean square of the change from one snapshot to the next, channel by channel.
    Change,
    /// The root mean square of the path's velocity, channel by channel.
    Velocity,
    /// The root mean square of the path's velocity at each time, channel by channel.
    VelocityAtTime,
}

/// The conversion between the user's units and the network's, measured on the snapshots that training sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Offset of each channel, subtracted in double precision before values are stored in single precision; empty for most data. States
    /// that a model takes and returns are relative to it; see [`Scaling::relative`] and [`Scaling::absolute`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offset: Vec<f64>,
    /// Number subtracted from each channel after that: its mean, or its smallest value if it is scaled to a range.
    pub mean: Vec<f64>,
    /// Number by which each channel is divided: its standard deviation, its range, or 1 if it keeps its unit.
    pub deviation: Vec<f64>,
    /// Root mean square of the change between neighbouring snapshots of each channel, in normalised units.
    pub change: Vec<f64>,
    /// Root mean square of the path's velocity of each channel, in normalised units, by which the network's output is
    /// multiplied. Empty if the recipe turns this off, and for objectives that do not learn a velocity.
    pub velocity: Vec<f64>,
    /// The typical speed over time, if `path.unit` is a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// `path.clock`, if it is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<f64>,
    /// Time that is converted to 0: the first time of the training data.
    pub start: f64,
    /// Time that becomes one unit: from first to last time, or without time as an input the longest duration.
    pub span: f64,
    /// Time from `start` to the last time of training.
    pub duration: f64,
    /// Duration of the longest training trajectory, in the user's units.
    pub horizon: f64,
    /// Mean time between neighbouring snapshots before subsampling, in the user's units.
    pub interval: f64,
    /// Smallest and largest value of each channel of the data, in the user's units.
    pub range: Vec<[f64; 2]>,
    /// Mean and deviation of each PDE parameter.
    pub conditions: Vec<[f64; 2]>,
    /// Mean and deviation of each control.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub controls: Vec<[f64; 2]>,
    /// Mean and deviation of each static field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statics: Vec<[f64; 2]>,
}

impl Scaling {
    pub(crate) fn new(
        question: &Question,
        set: &Trajectories,
        selections: &[Selection],
        survey: &Survey,
    ) -> Self {
        let Normalization { mean, deviation } = survey.normalization(question.normalize);
        let span = if question.timed { survey.times.duration } else { survey.times.longest };
        let moves = survey.moves();
        let relative = |roots: &[f64], unit: f64| -> Vec<f64> {
            let scaled = roots.iter().zip(&deviation).map(|(root, deviation)| root * unit / deviation);
            scaled.zip(&moves).map(|(scale, &moves)| if moves { scale } else { 1.0 }).collect()
        };
        let change = relative(&survey.change, 1.0);
        let velocity = match question.unit {
            Unit::Velocity | Unit::VelocityAtTime => relative(&survey.velocity, span),
            Unit::State | Unit::Change => Vec::new(),
        };
        let inputs = || selections.iter().map(|one| &set.trajectories[one.trajectory].inputs);
        let InputNames { parameters, controls, statics } = &set.description.inputs;
        let conditions = (0..parameters.len())
            .map(|p| mean_and_deviation(inputs().map(|own| own.parameters[p])))
            .collect();
        let of_control = |control: usize| {
            let values = inputs().filter_map(|own| own.controls.as_ref()).map(|own| own.values());
            mean_and_deviation(values.flat_map(|own| own[control..].iter().step_by(controls.len()).copied()))
        };
        let controls = (0..controls.len()).map(of_control).collect();
        let of_static = |field: usize| {
            let mut fields: Vec<&Arc<[f32]>> = inputs().filter_map(|own| own.statics.as_ref()).collect();
            // Those that trajectories share count once.
            fields.dedup_by(|one, other| Arc::ptr_eq(one, other));
            let values = fields.into_iter().flat_map(|own| own[field..].iter().step_by(statics.len()));
            mean_and_deviation(values.map(|&value| f64::from(value)))
        };
        let statics = (0..statics.len()).map(of_static).collect();
        let profile = (question.unit == Unit::VelocityAtTime).then(|| survey.profile.profile());
        let Times { start, duration, interval, longest: horizon } = survey.times;
        let clock = question.clock.half();
        Self {
            offset: set.offset().channels().to_vec(),
            profile,
            clock,
            mean,
            deviation,
            change,
            velocity,
            start,
            span,
            duration,
            horizon,
            interval,
            range: survey.range(),
            conditions,
            controls,
            statics,
        }
    }

    /// Returns the offset of the model's states.
    pub fn offset(&self) -> Offset {
        Offset::new(self.offset.clone())
    }

    /// Converts states in the user's units to the relative states that a model takes.
    pub fn relative(&self, states: &[f64]) -> Vec<f32> {
        let mut relative = vec![0.0; states.len()];
        self.offset().relative(states, &mut relative);
        relative
    }

    /// Converts relative states of a model to the user's units.
    pub fn absolute(&self, states: &[f32]) -> Vec<f64> {
        self.offset().absolute(states)
    }

    /// Converts PDE parameters to the network's units.
    pub(crate) fn conditions(&self, parameters: &[f64]) -> Vec<f32> {
        let scaled = parameters.iter().zip(&self.conditions);
        scaled.map(|(value, [mean, deviation])| ((value - mean) / deviation) as f32).collect()
    }

    fn clock(&self) -> Clock {
        Clock::of(self.clock)
    }

    /// Converts a time to the network's units.
    pub fn time(&self, time: f64) -> f64 {
        self.clock().reading((time - self.start) / self.span)
    }

    /// Converts a time to the user's units.
    pub fn restore_time(&self, time: f64) -> f64 {
        self.clock().share(time) * self.span + self.start
    }

    /// Returns the derivative of the network's time by the user's time, by which velocities are multiplied.
    pub fn time_rate(&self, time: f64) -> f64 {
        self.clock().rate((time - self.start) / self.span) / self.span
    }

    /// Returns the horizon of the training data in the network's units.
    pub(crate) fn horizon(&self) -> f64 {
        self.time(self.start + self.horizon)
    }

    /// Returns the largest step, in the network's units, that is at most `length` of the user's time up to `latest`.
    pub(crate) fn step(&self, length: f64, latest: f64) -> f64 {
        length * self.clock().rate(self.clock().share(latest)) / self.span
    }

    /// Returns the last time of the training data.
    pub fn last(&self) -> f64 {
        self.start + self.duration
    }

    /// Converts values, relative to the offset, to the network's units.
    pub fn normalize(&self, values: &[f32]) -> Vec<f32> {
        let mut scaled = values.to_vec();
        self.normalize_in_place(&mut scaled);
        scaled
    }

    pub(crate) fn normalize_in_place(&self, values: &mut [f32]) {
        scale(values, &self.mean, &self.deviation);
    }

    /// Converts values to the user's units, relative to the offset.
    pub fn restore(&self, values: &[f32]) -> Vec<f32> {
        let mut restored = values.to_vec();
        unscale(&mut restored, &self.mean, &self.deviation);
        restored
    }
}

/// Returns mean and standard deviation of numbers; the deviation is 1 if they are equal.
fn mean_and_deviation(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let Summary { mean, deviation, .. } = Summary::of(&values.collect::<Vec<f64>>());
    [mean, if deviation > 0.0 { deviation } else { 1.0 }]
}
