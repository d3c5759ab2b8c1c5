//! Gaps: intervals between snapshots that `[refine]` fills with states, and the rows of these states.

use std::ops::Range;

use cfo_numerics::Path;

use crate::error::Result;
use crate::measure::selection::{Selection, Times};
use crate::recipe::{Recipe, RefineSpacing};
use crate::trajectories::Trajectories;

/// Largest number of intervals into which a gap is divided.
const MOST_PARTS: f64 = 1000.0;
/// Share of the mean interval that is left after filling, if the data were not thinned.
const SHARE: f64 = 0.25;
/// Relative tolerance of a gap's length: rounding must not add a state.
const ROUNDING: f64 = 1e-6;

/// An interval between snapshots that is filled, in a portion of the training data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    /// Position of the trajectory in the portion.
    pub block: usize,
    /// Number of the trajectory.
    pub trajectory: usize,
    /// Number of the snapshot before the gap.
    pub knot: usize,
    /// Row of this snapshot, counted from the first of the trajectory.
    pub row: usize,
    /// Number of intervals between rows.
    pub parts: usize,
}

/// The rows of a training set with filled gaps. The rows of a trajectory are its snapshots with the filled states between them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gaps {
    /// For each trajectory, the rows of its snapshots, counted from its first row.
    knots: Vec<Vec<u32>>,
    /// Longest interval after filling, in the user's unit of time.
    pub(in crate::train) spacing: f64,
}

impl Gaps {
    /// Returns the gaps of a training set; `None` if `[refine]` is off.
    ///
    /// # Errors
    /// If the trajectories span no time.
    pub(in crate::train) fn of(recipe: &Recipe, set: &Trajectories, selections: &[Selection]) -> Result<Option<Self>> {
        if recipe.refine.rounds == 0 {
            return Ok(None);
        }
        let interval = Times::of(selections, set)?.interval;
        let spacing = match recipe.refine.spacing {
            RefineSpacing::Time(spacing) => spacing,
            RefineSpacing::Auto if recipe.data.keep_rate < 1.0 => interval,
            RefineSpacing::Auto => SHARE * interval,
        };
        let times = |one: &Selection| one.times(&set.trajectories[one.trajectory].times);
        Ok(Some(Self::within(selections.iter().map(times), spacing)))
    }

    /// Returns the gaps between some times of each trajectory.
    fn within(all: impl Iterator<Item = Vec<f64>>, spacing: f64) -> Self {
        let rows = |times: Vec<f64>| {
            let mut knots = vec![0];
            for pair in times.windows(2) {
                knots.push(knots[knots.len() - 1] + parts(pair[1] - pair[0], spacing));
            }
            knots
        };
        Self { knots: all.map(rows).collect(), spacing }
    }

    /// Returns the rows of a trajectory's snapshots, counted from its first row.
    pub(in crate::train) fn knots(&self, trajectory: usize) -> &[u32] {
        &self.knots[trajectory]
    }

    /// Returns the gaps of some trajectories, the longest first, so that those solved together have similar lengths.
    pub(super) fn of_portion(&self, trajectories: Range<usize>) -> Vec<Gap> {
        let mut gaps = Vec::new();
        for (block, trajectory) in trajectories.enumerate() {
            for (knot, pair) in self.knots[trajectory].windows(2).enumerate() {
                let (row, parts) = (pair[0] as usize, (pair[1] - pair[0]) as usize);
                if parts > 1 {
                    gaps.push(Gap { block, trajectory, knot, row, parts });
                }
            }
        }
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.parts));
        gaps
    }

    /// Returns the number of rows of a trajectory.
    pub(in crate::train) fn rows_of(&self, trajectory: usize) -> usize {
        self.knots[trajectory].last().map_or(0, |&last| last as usize + 1)
    }

    /// Returns the number of rows of all trajectories.
    pub(in crate::train) fn rows(&self) -> usize {
        (0..self.knots.len()).map(|trajectory| self.rows_of(trajectory)).sum()
    }

    /// Returns the times of a trajectory's rows: those of its snapshots, and equidistant ones between them.
    pub(in crate::train) fn times(&self, trajectory: usize, own: &[f64]) -> Vec<f64> {
        self.along(trajectory, own.len(), |knot, share| match share {
            0.0 => own[knot],
            share => own[knot] + share * (own[knot + 1] - own[knot]),
        })
    }

    /// Returns values at a trajectory's rows, linear in time between those of its snapshots, `width` for each.
    pub(in crate::train) fn spread(&self, trajectory: usize, own: &[f32], width: usize) -> Vec<f32> {
        let rows = self.along(trajectory, own.len() / width, |knot, share| (knot, share as f32));
        let value = |(knot, share): (usize, f32), j: usize| {
            let at = |knot: usize| own[(knot * width + j).min(own.len() - width + j)];
            (1.0 - share) * at(knot) + share * at(knot + 1)
        };
        rows.into_iter().flat_map(|row| (0..width).map(move |j| value(row, j))).collect()
    }

    /// Calls `value` with the snapshot before each row and the share of the interval after it.
    fn along<T>(&self, trajectory: usize, count: usize, value: impl Fn(usize, f64) -> T) -> Vec<T> {
        let knots = &self.knots[trajectory];
        let between = |knot: usize| {
            let parts = if knot + 1 < count { knots[knot + 1] - knots[knot] } else { 1 };
            (0..parts).map(move |part| (knot, f64::from(part) / f64::from(parts)))
        };
        (0..count).flat_map(between).map(|(knot, share)| value(knot, share)).collect()
    }

    /// Moves the snapshots of all trajectories, which are at the start of `values`, to their rows.
    pub(in crate::train) fn place(&self, values: &mut [f32], size: usize) {
        let mut packed = self.knots.iter().map(Vec::len).sum::<usize>();
        let mut row = self.rows();
        // From the last to the first, so that nothing is overwritten before it has moved.
        for knots in self.knots.iter().rev() {
            let first = row - knots.last().map_or(0, |&last| last as usize + 1);
            for &knot in knots.iter().rev() {
                packed -= 1;
                let from = packed * size;
                values.copy_within(from..from + size, (first + knot as usize) * size);
            }
            row = first;
        }
    }
}

/// Returns the number of equal parts of an interval that are not longer than `spacing`.
fn parts(length: f64, spacing: f64) -> u32 {
    (length / spacing * (1.0 - ROUNDING)).ceil().clamp(1.0, MOST_PARTS) as u32
}

/// Writes the values of a path at the rows of a gap, which begins at snapshot `knot`. `own` are the times of
/// the snapshots, `times` those of all rows.
pub(in crate::train) fn write_path(
    path: Path,
    (knots, own, knot): (&[u32], &[f64], usize),
    times: &[f64],
    rows: &mut [f32],
) {
    let size = rows.len() / times.len();
    let mut state = vec![0.0_f64; size];
    for row in inside(knots, knot) {
        let weights = path.weights(own, times[row]);
        state.fill(0.0);
        for (other, &weight) in weights.range().zip(weights.value()) {
            let from = knots[other] as usize * size;
            let values = &rows[from..from + size];
            state.iter_mut().zip(values).for_each(|(sum, &value)| *sum += weight * f64::from(value));
        }
        let place = &mut rows[row * size..(row + 1) * size];
        place.iter_mut().zip(&state).for_each(|(place, &value)| *place = value as f32);
    }
}

/// Returns the filled rows of the gap that begins at snapshot `knot`.
pub(in crate::train) fn inside(knots: &[u32], knot: usize) -> Range<usize> {
    knots[knot] as usize + 1..knots[knot + 1] as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that snapshots keep their times and values, and that no interval is longer than the spacing.
        #[test]
        fn filled_rows_lie_between_snapshots(
            lengths in prop::collection::vec(prop::collection::vec(0.01..3.0_f64, 1..6), 1..5),
            spacing in 0.05..2.0_f64,
        ) {
            let all: Vec<Vec<f64>> = lengths.iter().map(|gaps| {
                let mut times = vec![0.3];
                gaps.iter().for_each(|gap| times.push(times[times.len() - 1] + gap));
                times
            }).collect();
            let gaps = Gaps::within(all.iter().cloned(), spacing);
            let packed: Vec<f32> = (0..all.iter().map(Vec::len).sum::<usize>() * 2).map(|i| i as f32).collect();
            let mut values = packed.clone();
            values.resize(gaps.rows() * 2, f32::NAN);
            gaps.place(&mut values, 2);
            let (mut first, mut taken) = (0, 0);
            for (trajectory, own) in all.iter().enumerate() {
                let times = gaps.times(trajectory, own);
                prop_assert_eq!(times.len(), gaps.rows_of(trajectory));
                prop_assert!(times.windows(2).all(|pair| pair[1] > pair[0] && pair[1] - pair[0] < spacing * (1.0 + 1e-5)));
                let spread = gaps.spread(trajectory, &packed[2 * taken..2 * (taken + own.len())], 2);
                for (i, &row) in gaps.knots(trajectory).iter().enumerate() {
                    prop_assert_eq!(times[row as usize], own[i]);
                    let (at, from) = (2 * (first + row as usize), 2 * (taken + i));
                    prop_assert_eq!(&values[at..at + 2], &packed[from..from + 2]);
                    prop_assert_eq!(&spread[2 * row as usize..2 * row as usize + 2], &packed[from..from + 2]);
                }
                let block = &mut values[2 * first..2 * (first + times.len())];
                let path = Path { spline: cfo_numerics::Spline::Linear, stencil: 2 };
                (0..own.len() - 1).for_each(|knot| write_path(path, (gaps.knots(trajectory), own, knot), &times, block));
                for (found, expected) in block.iter().zip(&spread) {
                    prop_assert!((found - expected).abs() < 1e-3, "{} for {}", found, expected);
                }
                first += times.len();
                taken += own.len();
            }
        }
    }
}
