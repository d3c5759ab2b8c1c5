//! The temporal spline `s(t; u)` as weights on snapshots.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use thiserror::Error;

use crate::hermite::{Basis, MAX_SMOOTHNESS};
use crate::stencil;
use crate::time_grid::Segment;

/// How smooth a path is: how many derivatives it matches at the knots. `s` of them need degree `2s + 1` on each segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Spline {
    /// Degree 1, continuous; equation (linear spline) of the paper.
    Linear,
    /// Degree 3, continuous velocity.
    Cubic,
    /// Degree 5, continuous acceleration; the paper's default.
    #[default]
    Quintic,
    /// Degree `2 smoothness + 1`, that many continuous derivatives (0 to 8).
    Hermite {
        /// Derivatives matched at the knots.
        smoothness: usize,
    },
}

impl Spline {
    /// The spline that matches that many derivatives, by its own name if it has one.
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
        let unknown = || PathError::UnknownSpline { name: name.to_owned() };
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

/// Why a path cannot be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PathError {
    /// A name that no spline has.
    #[error(
        "unknown spline `{name}`; known are `linear`, `cubic`, `quintic` and `hermite-N` with odd N up to 17"
    )]
    UnknownSpline {
        /// The name given.
        name: String,
    },
    /// A stencil with too few points for the derivatives that the spline matches.
    #[error("a {spline} spline needs stencils of {needed} points or more; found {found}")]
    StencilTooNarrow {
        /// The spline.
        spline: Spline,
        /// Points it needs.
        needed: usize,
        /// Points given.
        found: usize,
    },
    /// A stencil beyond what is supported.
    #[error("stencils have at most {} points; found {found}", Path::MAX_STENCIL)]
    StencilTooWide {
        /// Points given.
        found: usize,
    },
    /// A smoothness beyond what is supported.
    #[error("splines match at most {MAX_SMOOTHNESS} derivatives; found {found}")]
    TooSmooth {
        /// Derivatives asked for.
        found: usize,
    },
}

impl PathError {
    /// What to do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::StencilTooNarrow { needed, .. } => Some(format!("use stencils of {needed} points or more")),
            Self::StencilTooWide { .. } => Some("3 points are the paper's choice".into()),
            Self::TooSmooth { .. } => Some("`quintic` is the paper's choice".into()),
            Self::UnknownSpline { .. } => None,
        }
    }
}

/// Which path is laid through the snapshots of a trajectory (section "Probability Path Formulation" of the paper):
/// derivatives at the knots are estimated by finite differences, and each segment is the Hermite polynomial that matches
/// snapshots and estimates at its two knots.
///
/// The result is linear in the snapshots; see [`Path::weights`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Degree and smoothness.
    pub spline: Spline,
    /// Points of the stencil that estimates the derivatives at a knot, centred on it and one-sided at the ends (see
    /// [`stencil::window`]). 3 is the paper's choice: velocity at the knots to second order. A linear path uses none.
    pub stencil: usize,
}

impl Default for Path {
    /// The paper's: quintic, three-point stencils.
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

/// A trajectory is too short for a path, and this is what it gets instead. Its `Display` says so in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The path asked for.
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

    /// A path, if the stencil has enough points for the derivatives that the spline matches (`s + 1`; a linear
    /// spline takes any).
    pub fn new(spline: Spline, stencil: usize) -> Result<Self, PathError> {
        let smoothness = spline.smoothness();
        if smoothness > MAX_SMOOTHNESS {
            return Err(PathError::TooSmooth { found: smoothness });
        }
        if stencil > Self::MAX_STENCIL {
            return Err(PathError::StencilTooWide { found: stencil });
        }
        if smoothness > 0 && stencil <= smoothness {
            return Err(PathError::StencilTooNarrow { spline, needed: smoothness + 1, found: stencil });
        }
        Ok(Self { spline, stencil })
    }

    /// What a trajectory of that many snapshots can support: stencils no wider than the trajectory and no more
    /// derivatives than they can estimate. Two snapshots support a line, whatever was asked for.
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

    /// What happens to a trajectory of that many snapshots if it is too short for this path; `None` if it is not.
    pub fn fallback(&self, snapshots: usize) -> Option<Fallback> {
        let used = self.supported(snapshots);
        (used != *self).then_some(Fallback { requested: *self, used, snapshots })
    }

    /// The weights of the snapshots in `s(t)` and in its time derivative.
    ///
    /// `times` are strictly increasing (as in a [`TimeGrid`](crate::TimeGrid), not checked again). A trajectory too
    /// short for this path is treated as [`supported`](Self::supported) says; a single snapshot is a constant.
    /// Outside the grid the end segments' polynomials go on. A knot belongs to the segment at its right. Allocates nothing.
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

    /// As [`weights`](Self::weights), for a caller that has located the time already.
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

/// Any spline with any stencil on any segment.
fn general_weights(smoothness: usize, width: usize, times: &[f64], segment: Segment) -> PathWeights {
    let Segment { index, tau, length } = segment;
    let windows = [index, index + 1].map(|knot| stencil::window(knot, width, times.len()));
    let basis: Basis<{ MAX_SMOOTHNESS + 1 }> = Basis::new(smoothness, tau);
    let mut weights = PathWeights::zero(segment, windows[0].start, windows[1].end - windows[0].start);
    for (side, window) in windows.into_iter().enumerate() {
        let knot = index + side;
        weights.value[knot - weights.first] += basis.value[side][0];
        weights.velocity[knot - weights.first] += basis.rate[side][0];
        // Derivative weights in units of the segment: the k-th times `length^k`.
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

/// Cubic and quintic with three-point stencils away from the ends, where nearly every sample of a training batch falls: equation
/// (3-point stencil) of the paper at both knots, in units of the segment. With `a` and `c` the lengths of the segments at its left and right:
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

/// The path at one time as a linear map: snapshots `first..first + count` with a weight each in the value `s(t)` and in
/// the velocity `s'(t)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PathWeights {
    /// First snapshot with a weight.
    pub first: usize,
    /// Number of snapshots with a weight: 2 for a line, at most one more than the stencil's points otherwise.
    pub count: usize,
    /// Weights in the value, zero from `count` on. They sum to 1.
    pub value: [f64; Self::MAX],
    /// Weights in the velocity, zero from `count` on. They sum to 0.
    pub velocity: [f64; Self::MAX],
    /// Where the time lies; the noise schedule needs it.
    pub segment: Segment,
}

impl PathWeights {
    /// Most snapshots that can have a weight.
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

    /// A single snapshot: it stays.
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
