//! The temporal spline `s(t; u)` as weights on snapshots.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use crate::hermite::{Basis, MAX_SMOOTHNESS};
use crate::stencil;
use crate::time_grid::Segment;

/// Smoothness of a path: the number `s` of derivatives matched at the knots. The degree on each segment is `2s + 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Spline {
    /// Degree 1, continuous; equation (linear spline) of the paper.
    Linear,
    /// Degree 3, continuous velocity.
    Cubic,
    /// Degree 5, continuous acceleration; the paper's default.
    #[default]
    Quintic,
    /// Degree `2 smoothness + 1`, with `smoothness` continuous derivatives (0 to 8).
    Hermite {
        /// Derivatives matched at the knots.
        smoothness: usize,
    },
}

impl Spline {
    /// The spline that matches `smoothness` derivatives; a named variant if there is one.
    pub fn with_smoothness(smoothness: usize) -> Self {
        match smoothness {
            0 => Self::Linear,
            1 => Self::Cubic,
            2 => Self::Quintic,
            _ => Self::Hermite { smoothness },
        }
    }

    /// Continuous derivatives `s`.
    pub fn smoothness(&self) -> usize {
        match *self {
            Self::Linear => 0,
            Self::Cubic => 1,
            Self::Quintic => 2,
            Self::Hermite { smoothness } => smoothness,
        }
    }

    /// Polynomial degree on a segment, `2s + 1`.
    pub fn degree(&self) -> usize {
        self.smoothness().saturating_mul(2).saturating_add(1)
    }
}

impl fmt::Display for Spline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::with_smoothness(self.smoothness()) {
            Self::Linear => f.pad("linear"),
            Self::Cubic => f.pad("cubic"),
            Self::Quintic => f.pad("quintic"),
            Self::Hermite { .. } => f.pad(&format!("hermite-{}", self.degree())),
        }
    }
}

impl FromStr for Spline {
    type Err = PathError;

    /// `linear`, `cubic`, `quintic` or `hermite-N` with an odd degree N.
    fn from_str(name: &str) -> Result<Self, PathError> {
        let unknown = || PathError::UnknownSpline(name.to_owned());
        match name {
            "linear" => Ok(Self::Linear),
            "cubic" => Ok(Self::Cubic),
            "quintic" => Ok(Self::Quintic),
            _ => {
                let degree: usize =
                    name.strip_prefix("hermite-").and_then(|n| n.parse().ok()).ok_or_else(unknown)?;
                if degree.is_multiple_of(2) || degree > 2 * MAX_SMOOTHNESS + 1 {
                    return Err(unknown());
                }
                Ok(Self::with_smoothness(degree / 2))
            }
        }
    }
}

/// Errors of creating a path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// A name of no spline.
    #[error(
        "unknown spline `{0}`; known are `linear`, `cubic`, `quintic` and `hermite-N` with odd N up to 17"
    )]
    UnknownSpline(String),
    /// A stencil with too few points for the derivatives that the spline matches.
    #[error("a {spline} spline needs stencils of {needed} points or more; found {found}")]
    StencilTooNarrow {
        /// The spline.
        spline: Spline,
        /// Points it needs.
        needed: usize,
        /// Points of the stencil.
        found: usize,
    },
    /// A stencil wider than supported.
    #[error("stencils have at most {most} points; found {0}", most = Path::MAX_STENCIL)]
    StencilTooWide(usize),
    /// A smoothness greater than supported.
    #[error("splines match at most {MAX_SMOOTHNESS} derivatives; found {0}")]
    TooSmooth(usize),
}

impl PathError {
    /// Advice on the error, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::StencilTooNarrow { needed, .. } => Some(format!("use stencils of {needed} points or more")),
            Self::StencilTooWide(_) => Some("3 points are the paper's choice".into()),
            Self::TooSmooth(_) => Some("`quintic` is the paper's choice".into()),
            Self::UnknownSpline(_) => None,
        }
    }
}

/// The path through the snapshots of a trajectory (section "Probability Path Formulation" of the paper).
///
/// Derivatives at the knots come from finite differences; each segment is the Hermite polynomial that matches them.
///
/// The result is linear in the snapshots; see [`Path::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Degree and smoothness.
    pub spline: Spline,
    /// Points of the stencil that estimates the derivatives at a knot, centred on it and one-sided at the ends (see
    /// [`stencil::window`]). The paper uses 3, which makes the velocity at the knots second-order accurate. Ignored by
    /// a linear path.
    pub stencil: usize,
}

impl Default for Path {
    /// The paper's path: quintic, three-point stencils.
    fn default() -> Self {
        Self { spline: Spline::Quintic, stencil: 3 }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.spline.smoothness() {
            0 => write!(f, "linear path"),
            _ => write!(f, "{} path with {}-point stencils", self.spline, self.stencil),
        }
    }
}

/// The replacement of a path for which a trajectory is too short. `Display` describes it in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The requested path.
    pub requested: Path,
    /// The path that [`Path::weights`] uses.
    pub used: Path,
    /// Snapshots of the trajectory.
    pub snapshots: usize,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, used, snapshots } = self;
        let noun = if *snapshots == 1 { "snapshot" } else { "snapshots" };
        write!(f, "{snapshots} {noun} cannot support a {requested}; using a {used}")
    }
}

impl Path {
    /// Widest stencil.
    pub const MAX_STENCIL: usize = PathWeights::MAX - 1;

    /// Creates a path. Stencils need `s + 1` points for `s` matched derivatives, linear splines any number.
    pub fn new(spline: Spline, stencil: usize) -> Result<Self, PathError> {
        let smoothness = spline.smoothness();
        if smoothness > MAX_SMOOTHNESS {
            return Err(PathError::TooSmooth(smoothness));
        }
        if stencil > Self::MAX_STENCIL {
            return Err(PathError::StencilTooWide(stencil));
        }
        if smoothness > 0 && stencil <= smoothness {
            return Err(PathError::StencilTooNarrow { spline, needed: smoothness + 1, found: stencil });
        }
        Ok(Self { spline, stencil })
    }

    /// The path used for a trajectory of `snapshots` snapshots. The stencil is no wider than the trajectory, and the
    /// spline matches no more derivatives than it can estimate. Two snapshots always give a straight line.
    pub fn supported(&self, snapshots: usize) -> Self {
        if self.spline.smoothness() == 0 {
            return *self;
        }
        let stencil = self.stencil.clamp(1, Self::MAX_STENCIL).min(snapshots);
        let estimated = if snapshots <= 2 { 0 } else { stencil - 1 };
        let spline = if self.spline.smoothness() > estimated {
            Spline::with_smoothness(estimated)
        } else {
            self.spline
        };
        Self { spline, stencil: if spline.smoothness() == 0 { self.stencil } else { stencil } }
    }

    /// The replacement of this path for a trajectory of `snapshots` snapshots; `None` if they are enough.
    pub fn fallback(&self, snapshots: usize) -> Option<Fallback> {
        let used = self.supported(snapshots);
        (used != *self).then_some(Fallback { requested: *self, used, snapshots })
    }

    /// The weights of the snapshots in `s(t)` and in its time derivative.
    ///
    /// `times` must increase strictly, as in a [`TimeGrid`](crate::TimeGrid); this is not checked again. For a
    /// trajectory too short for this path, [`supported`](Self::supported) is used. A single snapshot gives a constant.
    /// Outside the grid, the polynomials of the end segments continue. A knot belongs to the segment at its right.
    /// Allocates nothing.
    ///
    /// # Panics
    /// If `times` is empty.
    pub fn weights(&self, times: &[f64], t: f64) -> PathWeights {
        assert!(!times.is_empty(), "a path needs snapshots");
        if times.len() == 1 {
            return PathWeights::constant();
        }
        self.weights_in(times, Segment::locate(times, t))
    }

    /// The weights as in [`weights`](Self::weights), for a time that has been located already.
    ///
    /// # Panics
    /// If `times` has no such segment.
    pub fn weights_in(&self, times: &[f64], segment: Segment) -> PathWeights {
        let Self { spline, stencil: width } = self.supported(times.len());
        let smoothness = spline.smoothness();
        let inside = segment.index > 0 && segment.index + 2 < times.len();
        match (smoothness, width) {
            (0, _) => PathWeights::line(segment),
            (_, 3) if inside => interior_three_points(smoothness, times, segment),
            _ => general_weights(smoothness, width, times, segment),
        }
    }
}

/// Weights for any spline and stencil on any segment.
fn general_weights(smoothness: usize, width: usize, times: &[f64], segment: Segment) -> PathWeights {
    let Segment { index, tau, length } = segment;
    let windows = [index, index + 1].map(|knot| stencil::window(knot, width, times.len()));
    let basis: Basis<{ MAX_SMOOTHNESS + 1 }> = Basis::new(smoothness, tau);
    let mut weights = PathWeights::zero(segment, windows[0].start, windows[1].end - windows[0].start);
    for (side, window) in windows.into_iter().enumerate() {
        let knot = index + side;
        weights.value[knot - weights.first] += basis.value[side][0];
        weights.velocity[knot - weights.first] += basis.rate[side][0];
        // Derivative weights in units of the segment: the k-th ones times `length^k`.
        let mut table = [0.0; Path::MAX_STENCIL * (MAX_SMOOTHNESS + 1)];
        let table = &mut table[..width * (smoothness + 1)];
        stencil::table_in_unit(&times[window.clone()], times[knot], length, smoothness, table);
        for (k, row) in table.chunks_exact(width).enumerate().skip(1) {
            for (j, weight) in (window.start - weights.first..).zip(row) {
                weights.value[j] += basis.value[side][k] * weight;
                weights.velocity[j] += basis.rate[side][k] * weight;
            }
        }
    }
    for velocity in &mut weights.velocity[..weights.count] {
        *velocity /= length;
    }
    weights
}

/// Weights of cubic and quintic splines with three-point stencils away from the ends.
///
/// Nearly every sample of a training batch falls there. The formula is equation (3-point stencil) of the paper at both
/// knots, in units of the segment. With `a` and `c` the lengths of the segments at its left and right:
///
/// ```text
/// left knot    d = [-1/(a(1+a)), (1-a)/a, a/(1+a)]       a = 2 [1/(a(1+a)), -1/a, 1/(1+a)]
/// right knot   d = [-c/(1+c), (c-1)/c, 1/(c(1+c))]       a = 2 [1/(1+c), -1/c, 1/(c(1+c))]
/// ```
fn interior_three_points(smoothness: usize, times: &[f64], segment: Segment) -> PathWeights {
    let Segment { index, tau, length } = segment;
    let unit = 1.0 / length;
    let [before, left, right, after] = [index - 1, index, index + 1, index + 2].map(|i| times[i]);
    let (a, c) = ((left - before) * unit, (after - right) * unit);
    let (per_a, per_both_a) = (1.0 / a, 1.0 / (1.0 + a));
    let (per_c, per_both_c) = (1.0 / c, 1.0 / (1.0 + c));
    let (far_a, far_c) = (per_a * per_both_a, per_c * per_both_c);
    let left_slope = [-far_a, (1.0 - a) * per_a, a * per_both_a];
    let left_bend = [2.0 * far_a, -2.0 * per_a, 2.0 * per_both_a];
    let right_slope = [-c * per_both_c, (c - 1.0) * per_c, far_c];
    let right_bend = [2.0 * per_both_c, -2.0 * per_c, 2.0 * far_c];
    let contract = |[[l0, l1, l2], [r0, r1, r2]]: [[f64; 3]; 2]| {
        let left = |j: usize| l1 * left_slope[j] + l2 * left_bend[j];
        let right = |j: usize| r1 * right_slope[j] + r2 * right_bend[j];
        [left(0), l0 + left(1) + right(0), r0 + left(2) + right(1), right(2)]
    };
    let basis: Basis<3> = Basis::new(smoothness, tau);
    let mut weights = PathWeights::zero(segment, index - 1, 4);
    weights.value[..4].copy_from_slice(&contract(basis.value));
    weights.velocity[..4].copy_from_slice(&contract(basis.rate).map(|weight| weight * unit));
    weights
}

/// The path at one time as a linear map: weights of snapshots in the value `s(t)` and the velocity `s'(t)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathWeights {
    /// First snapshot with a weight.
    pub first: usize,
    /// Number of snapshots with a weight: 2 for a linear path, otherwise at most one more than the stencil's points.
    pub count: usize,
    /// Weights in the value, zero from `count` on. They sum to 1.
    pub value: [f64; Self::MAX],
    /// Weights in the velocity, zero from `count` on. They sum to 0.
    pub velocity: [f64; Self::MAX],
    /// Segment of the time; the noise schedule needs it.
    pub segment: Segment,
}

impl PathWeights {
    /// Largest number of snapshots with a weight.
    pub const MAX: usize = 10;

    fn zero(segment: Segment, first: usize, count: usize) -> Self {
        Self { first, count, value: [0.0; Self::MAX], velocity: [0.0; Self::MAX], segment }
    }

    /// Equation (linear spline) of the paper.
    fn line(segment: Segment) -> Self {
        let mut weights = Self::zero(segment, segment.index, 2);
        let rate = 1.0 / segment.length;
        (weights.value[0], weights.value[1]) = (1.0 - segment.tau, segment.tau);
        (weights.velocity[0], weights.velocity[1]) = (-rate, rate);
        weights
    }

    /// Weights of a single snapshot: a constant path.
    fn constant() -> Self {
        let mut weights = Self::zero(Segment { index: 0, tau: 0.0, length: f64::INFINITY }, 0, 1);
        weights.value[0] = 1.0;
        weights
    }

    /// The snapshots with a weight.
    pub fn range(&self) -> Range<usize> {
        self.first..self.first + self.count
    }

    /// The weights in the value, one for each snapshot of [`range`](Self::range).
    pub fn value(&self) -> &[f64] {
        &self.value[..self.count]
    }

    /// The weights in the velocity, one for each snapshot of [`range`](Self::range).
    pub fn velocity(&self) -> &[f64] {
        &self.velocity[..self.count]
    }
}

#[cfg(test)]
mod tests;
