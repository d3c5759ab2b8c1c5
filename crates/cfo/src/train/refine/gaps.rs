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
/// Smallest number of rows of a segment, unless its trajectory has fewer.
const SEGMENT: u32 = 32;

/// An interval between snapshots that is filled.
#[derive(Clone, Copy, Debug)]
pub(super) struct WideGap {
    /// Position of the segment among those that are filled together.
    pub block: usize,
    /// Number of the segment.
    pub segment: usize,
    /// Row of the snapshot before the gap, counted from the first of the segment.
    pub row: usize,
    /// Number of intervals between rows.
    pub parts: usize,
}

/// Consecutive snapshots of a trajectory. Short segments of many trajectories have more information than few whole trajectories.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::train) struct SnapshotSegment {
    /// Number of the trajectory.
    pub trajectory: usize,
    /// The snapshots. Those at the ends belong to the neighbouring segments, too.
    pub snapshots: Range<usize>,
    /// Their rows, counted from the first of the segment; rows between them are filled.
    knots: Vec<u32>,
}

/// The rows of a training set with filled gaps.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Gaps {
    segments: Vec<SnapshotSegment>,
}

impl Gaps {
    /// Returns the gaps of a training set.
    ///
    /// # Errors
    /// If the trajectories span no time.
    pub(in crate::train) fn of(
        recipe: &Recipe,
        set: &Trajectories,
        selections: &[Selection],
    ) -> Result<Self> {
        let interval = Times::of(selections, set)?.interval;
        let spacing = match recipe.refine.spacing {
            RefineSpacing::Time(spacing) => spacing,
            RefineSpacing::Auto if recipe.data.keep_rate < 1.0 => interval,
            RefineSpacing::Auto => SHARE * interval,
        };
        let times = |one: &Selection| one.times(&set.trajectories[one.trajectory].times);
        Ok(Self::within(selections.iter().map(times), spacing))
    }

    /// Returns the gaps between some times of each trajectory. No interval after filling is longer than `spacing`.
    fn within(all: impl Iterator<Item = Vec<f64>>, spacing: f64) -> Self {
        let mut segments = Vec::new();
        for (trajectory, times) in all.enumerate() {
            let mut rows = vec![0];
            for pair in times.windows(2) {
                rows.push(rows[rows.len() - 1] + parts(pair[1] - pair[0], spacing));
            }
            let (mut first, end) = (0, rows[rows.len() - 1]);
            for last in 1..rows.len() {
                let is_whole = rows[last] - rows[first] >= SEGMENT && end - rows[last] >= SEGMENT;
                if is_whole || last + 1 == rows.len() {
                    let knots = rows[first..=last].iter().map(|row| row - rows[first]).collect();
                    segments.push(SnapshotSegment { trajectory, snapshots: first..last + 1, knots });
                    first = last;
                }
            }
        }
        Self { segments }
    }

    /// Returns a segment.
    pub(in crate::train) fn segment(&self, segment: usize) -> &SnapshotSegment {
        &self.segments[segment]
    }

    /// Returns the rows of a segment's snapshots, counted from its first row.
    pub(in crate::train) fn knots(&self, segment: usize) -> &[u32] {
        &self.segments[segment].knots
    }

    /// Returns the gaps of some segments, the longest first, so that those solved together have similar lengths.
    pub(super) fn of_segments(&self, segments: &[usize]) -> Vec<WideGap> {
        let mut gaps = Vec::new();
        for (block, &segment) in segments.iter().enumerate() {
            for pair in self.knots(segment).windows(2) {
                let (row, parts) = (pair[0] as usize, (pair[1] - pair[0]) as usize);
                if parts > 1 {
                    gaps.push(WideGap { block, segment, row, parts });
                }
            }
        }
        gaps.sort_by_key(|gap| std::cmp::Reverse(gap.parts));
        gaps
    }

    /// Returns the number of rows of a segment.
    pub(in crate::train) fn rows_of(&self, segment: usize) -> usize {
        self.knots(segment).last().map_or(0, |&last| last as usize + 1)
    }

    /// Returns the number of segments.
    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Returns the number of parts of all gaps that are filled.
    pub(super) fn parts(&self) -> usize {
        let pairs = self.segments.iter().flat_map(|segment| segment.knots.windows(2));
        pairs.map(|pair| (pair[1] - pair[0]) as usize).filter(|&parts| parts > 1).sum()
    }

    /// Returns the times of a segment's rows: those of its snapshots, and equidistant ones between them.
    pub(in crate::train) fn times(&self, segment: usize, own: &[f64]) -> Vec<f64> {
        self.along(segment, own.len(), |knot, share| match share {
            0.0 => own[knot],
            share => own[knot] + share * (own[knot + 1] - own[knot]),
        })
    }

    /// Returns values at a segment's rows, linear in time between those of its snapshots, `width` for each.
    pub(in crate::train) fn spread(&self, segment: usize, own: &[f32], width: usize) -> Vec<f32> {
        let rows = self.along(segment, own.len() / width, |knot, share| (knot, share as f32));
        let value = |(knot, share): (usize, f32), j: usize| {
            let at = |knot: usize| own[(knot * width + j).min(own.len() - width + j)];
            (1.0 - share) * at(knot) + share * at(knot + 1)
        };
        rows.into_iter().flat_map(|row| (0..width).map(move |j| value(row, j))).collect()
    }

    /// Returns the values of a path through the snapshots at the filled rows of a gap. `times` and `rows` are those of the segment.
    pub(super) fn path_states(&self, path: Path, gap: WideGap, times: &[f64], rows: &[f32]) -> Vec<f32> {
        let (size, knots) = (rows.len() / times.len(), self.knots(gap.segment));
        let own: Vec<f64> = knots.iter().map(|&row| times[row as usize]).collect();
        let mut states = Vec::with_capacity((gap.parts - 1) * size);
        let mut state = vec![0.0_f64; size];
        for &time in &times[gap.row + 1..gap.row + gap.parts] {
            let weights = path.supported(own.len()).weights(&own, time);
            state.fill(0.0);
            for (other, &weight) in weights.range().zip(weights.value()) {
                let values = &rows[knots[other] as usize * size..][..size];
                state.iter_mut().zip(values).for_each(|(sum, &value)| *sum += weight * f64::from(value));
            }
            states.extend(state.iter().map(|&value| value as f32));
        }
        states
    }

    /// Returns the weight of an error at each row of some segments, `width` for each, from the weights without filled states (empty: equal
    /// ones). A path in a wide gap is mostly the network's own solution, so a sample there has less information: its weight is the
    /// inverse of the gap's number of parts. The squares have a mean of 1 over time.
    pub(in crate::train) fn weights(
        &self,
        chosen: &[usize],
        times: &[f64],
        (own, width): (&[f32], usize),
    ) -> Vec<f32> {
        let mut weights = Vec::with_capacity(times.len());
        let (mut sum, mut duration) = (0.0, 0.0);
        for &segment in chosen {
            let times = &times[weights.len()..][..self.rows_of(segment)];
            let mut inverse = 0.0;
            for pair in self.knots(segment).windows(2) {
                let before = std::mem::replace(&mut inverse, 1.0 / f64::from(pair[1] - pair[0]));
                let at_knot = if pair[0] == 0 { inverse } else { 0.5 * (before + inverse) };
                weights.push(at_knot);
                weights.extend((pair[0] + 1..pair[1]).map(|_| inverse));
                let length = times[pair[1] as usize] - times[pair[0] as usize];
                (sum, duration) = (sum + inverse * length, duration + length);
            }
            weights.push(inverse);
        }
        let scaled = |(row, weight): (usize, f64), j: usize| {
            let own = own.get(row * width + j).copied().unwrap_or(1.0);
            own * (weight * duration / sum).sqrt() as f32
        };
        weights.into_iter().enumerate().flat_map(|row| (0..width).map(move |j| scaled(row, j))).collect()
    }

    /// Returns the number of rows of that many longest segments.
    pub(super) fn rows_of_longest(&self, count: usize) -> usize {
        let mut rows: Vec<usize> = (0..self.len()).map(|segment| self.rows_of(segment)).collect();
        rows.sort_unstable_by(|one, other| other.cmp(one));
        rows.iter().take(count).sum()
    }

    /// Calls `value` with the snapshot before each row and the share of the interval after it.
    fn along<T>(&self, segment: usize, count: usize, value: impl Fn(usize, f64) -> T) -> Vec<T> {
        let knots = self.knots(segment);
        let between = |knot: usize| {
            let parts = if knot + 1 < count { knots[knot + 1] - knots[knot] } else { 1 };
            (0..parts).map(move |part| (knot, f64::from(part) / f64::from(parts)))
        };
        (0..count).flat_map(between).map(|(knot, share)| value(knot, share)).collect()
    }
}

/// Returns the number of equal parts of an interval that are not longer than `spacing`.
fn parts(length: f64, spacing: f64) -> u32 {
    (length / spacing * (1.0 - ROUNDING)).ceil().clamp(1.0, MOST_PARTS) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Checks that snapshots keep their times and values, and that no interval is longer than the spacing.
        #[test]
        fn filled_rows_lie_between_snapshots(
            lengths in prop::collection::vec(prop::collection::vec(0.01..3.0_f64, 1..20), 1..5),
            spacing in 0.05..2.0_f64,
        ) {
            let all: Vec<Vec<f64>> = lengths.iter().map(|gaps| {
                let mut times = vec![0.3];
                gaps.iter().for_each(|gap| times.push(times[times.len() - 1] + gap));
                times
            }).collect();
            let gaps = Gaps::within(all.iter().cloned(), spacing);
            let (path, mut times) = (Path { spline: cfo_numerics::Spline::Linear, stencil: 2 }, Vec::new());
            let mut next = (0, 0);
            for segment in 0..gaps.len() {
                let SnapshotSegment { trajectory, snapshots, .. } = gaps.segment(segment).clone();
                // Segments are contiguous.
                prop_assert_eq!((trajectory, snapshots.start), next);
                let is_last = snapshots.end == all[trajectory].len();
                next = if is_last { (trajectory + 1, 0) } else { (trajectory, snapshots.end - 1) };
                let own = &all[trajectory][snapshots];
                let found = gaps.times(segment, own);
                prop_assert_eq!(found.len(), gaps.rows_of(segment));
                prop_assert!(found.windows(2).all(|pair| pair[1] > pair[0] && pair[1] - pair[0] < spacing * (1.0 + 1e-5)));
                // A function that is linear in time.
                let at = |time: f64| [time as f32, 1.0 - 2.0 * time as f32];
                let snapshots: Vec<f32> = own.iter().flat_map(|&time| at(time)).collect();
                let spread = gaps.spread(segment, &snapshots, 2);
                let mut rows = vec![f32::NAN; 2 * found.len()];
                for (&row, (own, snapshot)) in gaps.knots(segment).iter().zip(own.iter().zip(snapshots.chunks(2))) {
                    prop_assert_eq!(found[row as usize], *own);
                    rows[2 * row as usize..][..2].copy_from_slice(snapshot);
                }
                let filled = gaps.of_segments(&[segment]);
                for &gap in &filled {
                    let states = gaps.path_states(path, gap, &found, &rows);
                    rows[2 * (gap.row + 1)..][..states.len()].copy_from_slice(&states);
                }
                for (row, &time) in found.iter().enumerate() {
                    for (i, expected) in at(time).into_iter().enumerate() {
                        // Values of up to 128 in single precision.
                        prop_assert!((spread[2 * row + i] - expected).abs() < 1e-4);
                        prop_assert!((rows[2 * row + i] - expected).abs() < 1e-4);
                    }
                }
                times.extend(found);
            }
            prop_assert_eq!(next, (all.len(), 0));
            check_weights(&gaps, &times);
        }
    }

    /// Checks that the square of a weight is the inverse of the gap's parts, with a mean of 1 over time.
    fn check_weights(gaps: &Gaps, times: &[f64]) {
        let chosen: Vec<usize> = (0..gaps.len()).collect();
        let weights = gaps.weights(&chosen, times, (&[], 1));
        let (mut first, mut sum, mut duration, mut inside) = (0, 0.0, 0.0, Vec::new());
        for &segment in &chosen {
            for pair in gaps.knots(segment).windows(2) {
                let [before, after] = [pair[0], pair[1]].map(|row| first + row as usize);
                let length = times[after] - times[before];
                (sum, duration) = (sum + length / (after - before) as f64, duration + length);
                if let Some(row) = (before + 1..after).next() {
                    inside.push((after - before, f64::from(weights[row]).powi(2)));
                }
            }
            first += gaps.rows_of(segment);
        }
        for (parts, square) in inside {
            let expected = duration / sum / parts as f64;
            // Single precision.
            assert!((square / expected - 1.0).abs() < 1e-5, "{square} {expected}");
        }
    }
}
