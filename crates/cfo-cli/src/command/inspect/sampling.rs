//! The audit of the sampling as it is reported: errors, a recommendation and a verdict.

use cfo_data::store::TrajectoryFile;
use cfo_data::{DataError, SamplingAudit};
use cfo_numerics::Path;
use serde::Serialize;

/// How well snapshots that are left out are rebuilt from their neighbours.
#[derive(Debug, Serialize)]
pub(super) struct Sampling {
    pub trajectories: usize,
    pub knots: usize,
    pub splines: Vec<Rebuilt>,
    /// The spline with the smallest error.
    pub recommended: String,
    /// Its stencil; a linear spline has none.
    pub recommended_stencil: Option<usize>,
    pub verdict: Verdict,
}

#[derive(Debug, Serialize)]
pub(super) struct Rebuilt {
    pub spline: String,
    pub stencil: Option<usize>,
    /// Root mean square, each channel in units of its deviation.
    pub error: f64,
    pub relative_l2: f64,
}

/// Whether the times are dense enough, by the error of the recommended spline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Verdict {
    /// Below a hundredth of the deviation: other errors will dominate.
    Dense,
    /// Below a tenth: the spline's error will show in what is learned.
    Coarse,
    /// Above: snapshots are too far apart to interpolate between.
    TooSparse,
}

impl Verdict {
    fn new(error: f64) -> Self {
        match error {
            error if error < 1e-2 => Self::Dense,
            error if error < 1e-1 => Self::Coarse,
            _ => Self::TooSparse,
        }
    }

    /// The verdict in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Dense => "dense enough: snapshots left out are rebuilt to 1 % of the deviation",
            Self::Coarse => "coarse: snapshots left out are rebuilt to 10 % of the deviation, not to 1 %",
            Self::TooSparse => "too sparse: snapshots left out are not rebuilt to 10 % of the deviation",
        }
    }
}

impl Sampling {
    /// The audit of `file`; nothing if its trajectories are too short to leave a snapshot out.
    pub fn new(file: &TrajectoryFile, deviation: &[f64]) -> Result<Option<Self>, DataError> {
        let audit = SamplingAudit::new(file, deviation)?;
        let Some(recommended) = audit.recommended() else { return Ok(None) };
        let splines = audit.paths.iter().map(|rebuilt| Rebuilt {
            spline: rebuilt.path.spline.to_string(),
            stencil: stencil(rebuilt.path),
            error: rebuilt.error,
            relative_l2: rebuilt.relative_l2,
        });
        Ok(Some(Self {
            trajectories: audit.trajectories,
            knots: audit.knots,
            splines: splines.collect(),
            recommended: recommended.path.spline.to_string(),
            recommended_stencil: stencil(recommended.path),
            verdict: Verdict::new(recommended.error),
        }))
    }
}

/// Points of the path's stencil, if it has one.
fn stencil(path: Path) -> Option<usize> {
    (path.spline.smoothness() > 0).then_some(path.stencil)
}
