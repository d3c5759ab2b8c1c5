//! The audit of the sampling for the report: errors, a recommendation and a verdict.

use cfo_data::store::TrajectoryFile;
use cfo_data::{DataError, SamplingAudit, Verdict};
use cfo_numerics::Path;
use serde::{Serialize, Serializer};

/// Errors of left-out snapshots that are interpolated from their neighbours.
#[derive(Debug, Serialize)]
pub(super) struct Sampling {
    pub trajectories: usize,
    pub knots: usize,
    pub splines: Vec<RebuiltReport>,
    /// The spline with the smallest error.
    pub recommended: String,
    /// Its stencil; a linear spline has none.
    pub recommended_stencil: Option<usize>,
    /// `auto` where there is noise to smooth, else `none`.
    pub recommended_smoothing: &'static str,
    /// The clock (`path.clock`) that rebuilds left-out snapshots much better than an even one, if there is one.
    pub recommended_clock: Option<f64>,
    #[serde(serialize_with = "name")]
    pub verdict: Verdict,
}

#[derive(Debug, Serialize)]
pub(super) struct RebuiltReport {
    pub spline: String,
    pub stencil: Option<usize>,
    /// Root mean square, each channel in units of its deviation.
    pub error: f64,
    /// The error without the contribution of the noise.
    pub curve_error: f64,
    pub relative_l2: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct NoiseReport {
    pub name: String,
    /// Standard deviation in the channel's units.
    pub deviation: f64,
    /// Standard deviation in units of the channel's deviation.
    pub relative: f64,
    /// Whether it could be separated from the effect of sparse times; if not, it is an upper bound.
    pub resolved: bool,
    /// Whether the channel moves in steps and is constant between them, as controls do.
    pub stepwise: bool,
    /// A lower bound of the noise.
    #[serde(skip)]
    certain: f64,
    /// Whether smoothing is worth while.
    #[serde(skip)]
    pub matters: bool,
}

impl NoiseReport {
    /// Estimates the noise of each channel of `file`.
    pub fn of(file: &TrajectoryFile, deviation: &[f64], names: &[String]) -> Result<Vec<Self>, DataError> {
        let channels = cfo_data::noise_of_file(file, deviation)?.into_iter().zip(names);
        let noise = channels.map(|(noise, name)| Self {
            name: name.clone(),
            deviation: noise.fit.deviation,
            relative: noise.relative,
            resolved: noise.resolved,
            stepwise: noise.stepwise,
            certain: noise.certain(),
            matters: noise.matters(),
        });
        Ok(noise.collect())
    }
}

fn name<S: Serializer>(verdict: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(verdict.name())
}

impl Sampling {
    /// The audit of `file`; nothing if its trajectories are too short to leave a snapshot out.
    pub fn new(
        file: &TrajectoryFile,
        deviation: &[f64],
        noise: &[NoiseReport],
    ) -> Result<Option<Self>, DataError> {
        let certain: Vec<f64> = noise.iter().map(|noise| noise.certain).collect();
        let audit = SamplingAudit::new(file, deviation, &certain)?;
        let Some(recommended) = audit.recommended() else { return Ok(None) };
        let smoothing = noise.iter().any(|noise| noise.matters);
        let Some(verdict) = audit.verdict(smoothing) else { return Ok(None) };
        let path = if smoothing { SamplingAudit::SMOOTHED } else { recommended.path };
        let splines = audit.paths.iter().map(|rebuilt| RebuiltReport {
            spline: rebuilt.path.spline.to_string(),
            stencil: stencil(rebuilt.path),
            error: rebuilt.error,
            curve_error: rebuilt.curve_error,
            relative_l2: rebuilt.relative_l2,
        });
        Ok(Some(Self {
            trajectories: audit.trajectories,
            knots: audit.knots,
            splines: splines.collect(),
            recommended: path.spline.to_string(),
            recommended_stencil: stencil(path),
            recommended_smoothing: if smoothing { "auto" } else { "none" },
            recommended_clock: audit.recommended_clock().filter(|_| !smoothing),
            verdict,
        }))
    }
}

/// Points of the path's stencil, if it has one.
fn stencil(path: Path) -> Option<usize> {
    (path.spline.smoothness() > 0).then_some(path.stencil)
}
