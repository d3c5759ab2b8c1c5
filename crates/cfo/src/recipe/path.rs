//! The spline through the snapshots, and its noise.

use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::choice;
use crate::error::{CfoError, Result};
use crate::smoothing::Smoothing;

/// The spline and its noise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PathConfig {
    /// `linear`, `cubic`, `quintic`, or `hermite-N` with an odd degree N.
    #[serde(with = "choice")]
    #[schemars(schema_with = "choice::schema::<Spline>")]
    pub spline: Spline,
    /// Snapshots that estimate the derivatives at a knot.
    pub stencil: usize,
    /// Which points of a trajectory's path are drawn alike: `times`, as in the paper; `intervals` between snapshots, of which long ones then count no more than short
    /// ones, for snapshots that lie denser where more happens; `snapshots`, with the velocity that the stencil estimates there, for data so sparse that
    /// the path is wrong between them.
    #[serde(with = "choice", skip_serializing_if = "is_by_time")]
    #[schemars(schema_with = "choice::schema::<DrawBy>")]
    pub draw: DrawBy,
    /// Whether the network's output is multiplied by the root mean square of the path's velocity, channel by channel, and the loss
    /// taken in its units.
    pub scale_velocity: bool,
    /// If set, the output is also multiplied by the typical speed at each time, and the loss divides an error by that speed to this
    /// power: 0 weights errors equally at all times, 1 relative to the speed at their time. For networks that have time as an input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_balance: Option<f64>,
    /// If set, the network's time runs fast at first and ever slower, as a logarithm: at this share of the horizon at half its first speed. Paths,
    /// velocities and steps of solvers then follow fields that change fast at first and slowly later; at sparse times most. For networks that have
    /// time as an input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<f64>,
    /// If set, a velocity has less weight in the loss where snapshots are so far apart that its error, estimated from the data, exceeds
    /// this share of its size; velocities at similar times with smaller errors get more weight. For data so sparse that paths
    /// miss what happens between snapshots; on dense data 0.01 changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<f64>,
    /// Noise that is removed from the training snapshots before the path is fitted: `none`, `auto` for the noise that is estimated
    /// in each channel, or a standard deviation of the noise as a share of each channel's.
    pub smoothing: Smoothing,
    /// The noise between knots.
    pub noise: NoiseConfig,
}

impl Default for PathConfig {
    fn default() -> Self {
        Self {
            spline: Spline::Quintic,
            stencil: 3,
            draw: DrawBy::Time,
            scale_velocity: true,
            time_balance: None,
            clock: None,
            trust: None,
            smoothing: Smoothing::None,
            noise: NoiseConfig::default(),
        }
    }
}

/// Not written where it is the default: figures are known by the keys of their recipe, and most are older than this one.
fn is_by_time(draw: &DrawBy) -> bool {
    *draw == DrawBy::Time
}

impl PathConfig {
    /// The path that these keys describe.
    pub fn path(&self) -> Path {
        Path { spline: self.spline, stencil: self.stencil }
    }

    /// Refuses a stencil that cannot estimate what the spline needs, and numbers out of range.
    pub(super) fn check(&self) -> Result<()> {
        if !self.noise.amplitude.is_finite() || self.noise.amplitude < 0.0 {
            let problem = format!("{} must be 0 or positive", self.noise.amplitude);
            return Err(CfoError::invalid("path.noise.amplitude", problem));
        }
        if !self.noise.decay.is_finite() || self.noise.decay < 0.0 {
            let problem = format!("{} must be 0 or positive", self.noise.decay);
            return Err(CfoError::invalid("path.noise.decay", problem));
        }
        if self.spline != Spline::Linear {
            Path::new(self.spline, self.stencil)
                .map_err(|error| CfoError::invalid("path.stencil", error.to_string()))?;
        }
        self.smoothing.check()
    }

    /// The noise schedule that these keys describe.
    pub fn schedule(&self) -> NoiseSchedule {
        let NoiseConfig { amplitude, exponent, decay } = self.noise;
        NoiseSchedule { amplitude, exponent, decay }
    }
}

/// Amplitude and shape of the noise.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NoiseConfig {
    /// Its height, in normalised units.
    pub amplitude: f64,
    /// Its exponent; 0 is noise that does not vanish at the snapshots.
    pub exponent: u32,
    /// Rate at which it fades along the path, per unit of normalised time: the learned velocity leads states back to the path. For
    /// chaotic fields on fine grids.
    pub decay: f64,
}

impl Default for NoiseConfig {
    fn default() -> Self {
        Self { amplitude: 1e-5, exponent: 3, decay: 0.0 }
    }
}
