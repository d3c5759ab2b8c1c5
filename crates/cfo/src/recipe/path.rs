//! The section `[path]`: the spline through the snapshots, and its noise.

use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice::WordOrNumber;
use super::ranges::not_negative;
use super::{Smoothing, choice};
use crate::error::{CfoError, Result};

/// The spline through the snapshots, the noise around it, and how training points are sampled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// Spline: `linear`, `cubic`, `quintic`, or `hermite-N` with an odd degree N.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<Spline>")]
    pub spline: Spline,
    /// Number of snapshots from which the derivatives at a snapshot are estimated (finite differences).
    pub stencil: usize,
    /// How training points are sampled. `times`: uniformly in time, as in the paper. `intervals`: each interval between snapshots has the
    /// same probability; for snapshots that are denser where the state changes faster. `snapshots`: only at snapshots, with the velocity
    /// that the stencil estimates there; for data so sparse that the spline is wrong between snapshots.
    #[serde(with = "choice", skip_serializing_if = "is_by_time")]
    #[schemars(schema_with = "choice::schema::<DrawBy>")]
    pub draw: DrawBy,
    /// Unit of the network's output and of the loss: `velocity`, the root mean square of the spline's velocity, channel by channel;
    /// `state`, the unit of the normalised state. A number b from 0 to 1 also multiplies the output by the typical speed at each time, and
    /// divides each error in the loss by that speed to the power b. With 0, errors have equal weight at all times; with 1 they are relative
    /// to the speed at their time. A number needs a network with time as an input.
    #[serde(deserialize_with = "choice::word_or_number")]
    pub unit: OutputUnit,
    /// If set, time is transformed logarithmically, which stretches early times. The value is the share of the horizon after which the
    /// transformed time runs at half its initial rate. Splines, velocities and solver steps use the transformed time. For fields that
    /// change fast at first and slowly later, above all at sparse times. Needs a network with time as an input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<f64>,
    /// If set, a spline velocity has less weight in the loss where its estimated error exceeds this share of its size. Velocities at
    /// similar times with smaller errors get more weight. For data so sparse that the spline misses changes between snapshots; on dense
    /// data 0.01 has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<f64>,
    /// Measurement noise to remove from the training snapshots before the spline is fitted: `none`, `auto` (estimated for each channel),
    /// or the standard deviation of the noise as a share of each channel's standard deviation.
    #[serde(deserialize_with = "choice::word_or_number")]
    pub smoothing: Smoothing,
    /// Noise added to training points between snapshots.
    pub noise: NoiseConfig,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            spline: Spline::Quintic,
            stencil: 3,
            draw: DrawBy::Time,
            unit: OutputUnit::Velocity,
            clock: None,
            trust: None,
            smoothing: Smoothing::None,
            noise: NoiseConfig::default(),
        }
    }
}

/// The default is not written, so that recipes with it keep the digest under which their results are stored.
fn is_by_time(draw: &DrawBy) -> bool {
    *draw == DrawBy::Time
}

impl PathConfig {
    /// Returns the path that these keys describe.
    pub fn path(&self) -> Path {
        Path { spline: self.spline, stencil: self.stencil }
    }

    pub(super) fn check(&self) -> Result<()> {
        not_negative("path.noise.amplitude", self.noise.amplitude)?;
        not_negative("path.noise.decay", self.noise.decay)?;
        if self.spline != Spline::Linear {
            Path::new(self.spline, self.stencil)
                .map_err(|error| CfoError::invalid("path.stencil", error.to_string()))?;
        }
        self.smoothing.check()
    }

    /// Returns the noise schedule that these keys describe.
    pub fn schedule(&self) -> NoiseSchedule {
        let NoiseConfig { amplitude, exponent, decay } = self.noise;
        NoiseSchedule { amplitude, exponent, decay }
    }
}

/// The unit of the output of a network that learns a velocity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OutputUnit {
    /// The unit of the normalised state, divided by that of time.
    State,
    /// The root mean square of the spline's velocity, channel by channel.
    #[default]
    Velocity,
    /// The root mean square of the spline's velocity at each time, channel by channel. The loss divides each error by the typical speed at
    /// its time to this power.
    #[serde(untagged)]
    AtTime(f64),
}

impl OutputUnit {
    /// Returns the power of the typical speed by which the loss divides errors, if the unit depends on time.
    pub(crate) fn balance(self) -> Option<f64> {
        match self {
            Self::AtTime(balance) => Some(balance),
            Self::State | Self::Velocity => None,
        }
    }
}

impl WordOrNumber for OutputUnit {
    const WORDS: &'static [&'static str] = &["state", "velocity"];
    const EXPECTED: &'static str = "`state`, `velocity` or a number from 0 to 1";
}

/// Amplitude and shape of the noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoiseConfig {
    /// Amplitude of the noise, in normalised units.
    pub amplitude: f64,
    /// Exponent of the noise profile between two snapshots; with 0 the noise does not vanish at the snapshots.
    pub exponent: u32,
    /// Rate k at which noise fades along the spline, per unit of normalised time. The learned field then damps perturbations that do not
    /// look like data at rate k. For chaotic fields on fine grids.
    pub decay: f64,
}

impl Default for NoiseConfig {
    fn default() -> Self {
        Self { amplitude: 1e-5, exponent: 3, decay: 0.0 }
    }
}
