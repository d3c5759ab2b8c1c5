//! One pass over the trajectories of a file: times, ranges, defects.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};

use anyhow::Result;
use cfo_data::store::TrajectoryFile;
use cfo_data::{DataError, Defect, RoundingCheck, Statistics};
use cfo_numerics::{groups, nearness};
use rayon::prelude::*;
use serde::Serialize;

use super::controls::ControlScan;
use super::order::TrajectoryOrder;
use crate::progress::TerminalProgress;

/// Most values that are read without `--full` (4 GiB of `f32`).
const MOST_VALUES: usize = 1 << 30;

/// Times are uniform up to this relative deviation of an interval; rounding to `f32` stays below it.
const UNIFORM: f64 = 1e-3;

/// An interval is a gap from this multiple of the trajectory's mean interval on.
const GAP: f64 = 5.0;

pub(super) struct Scan {
    pub trajectories: usize,
    /// A hash of the values of each distinct trajectory.
    pub digests: HashSet<u64>,
    pub frames: (usize, usize),
    pub times: TimesReport,
    pub statistics: Statistics,
    pub precision: RoundingCheck,
    pub parameters: Vec<[f64; 2]>,
    pub controls: ControlScan,
    /// Smallest and largest value of each static field.
    pub statics: Vec<[f64; 2]>,
    pub order: TrajectoryOrder,
    pub non_finite: usize,
    /// The first of each trajectory, with their places in the file.
    pub defects: Vec<Defect>,
}

/// When the snapshots were taken.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TimesReport {
    pub first: f64,
    pub last: f64,
    /// Whether every trajectory has equal intervals.
    pub uniform: bool,
    /// Whether all trajectories have the same times.
    pub shared: bool,
    pub smallest_interval: f64,
    pub largest_interval: f64,
    /// Snapshots nearly at the time of the previous one, with which training merges them.
    pub nearly_equal: usize,
    /// Intervals much longer than the trajectory's mean interval.
    pub gaps: usize,
    pub longest_gap: Option<Gap>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Gap {
    pub trajectory: usize,
    /// The snapshot before the gap.
    pub frame: usize,
    pub from: f64,
    pub to: f64,
    /// Length in units of the trajectory's mean interval.
    pub ratio: f64,
}

impl Scan {
    /// Reads all trajectories; of a large file only some, unless `full`.
    pub fn new(file: &TrajectoryFile, full: bool) -> Result<Self, DataError> {
        let chosen = chosen(file, full)?;
        let first_times = file.audit(chosen[0])?.0.times;
        let mut progress = TerminalProgress::new("reading", chosen.len() as u64);
        let batch = 4 * rayon::current_num_threads();
        let mut scan: Option<Self> = None;
        for indices in chosen.chunks(batch) {
            let parts: Vec<Self> = indices
                .par_iter()
                .map(|&index| Self::of_trajectory(file, index, &first_times))
                .collect::<Result<_, _>>()?;
            for part in parts {
                progress.advance();
                match &mut scan {
                    Some(scan) => scan.merge(part),
                    None => scan = Some(part),
                }
            }
        }
        Ok(scan.expect("an open file has a trajectory"))
    }

    fn of_trajectory(file: &TrajectoryFile, index: usize, first_times: &[f64]) -> Result<Self, DataError> {
        let (trajectory, defects) = file.audit(index)?;
        let channels = file.description().shape.channels;
        let mut statistics = Statistics::new(channels);
        if defects.values == 0 {
            statistics.add(&trajectory.values);
        } else {
            let finite: Vec<f32> = trajectory
                .values
                .chunks_exact(channels)
                .filter(|point| point.iter().all(|value| value.is_finite()))
                .flatten()
                .copied()
                .collect();
            statistics.add(&finite);
        }
        let mut precision = RoundingCheck::new(channels);
        precision.add(&statistics);
        Ok(Self {
            trajectories: 1,
            precision,
            digests: HashSet::from([digest(&trajectory.values)]),
            frames: (trajectory.times.len(), trajectory.times.len()),
            times: TimesReport::new(index, &trajectory.times, first_times),
            statistics,
            parameters: trajectory.inputs.parameters.iter().map(|&value| [value, value]).collect(),
            controls: ControlScan::of(&trajectory),
            statics: ranges(trajectory.inputs.statics.as_deref(), file.description().inputs.statics.len()),
            order: TrajectoryOrder::of(&trajectory.inputs.parameters),
            non_finite: defects.values,
            defects: defects.first.into_iter().map(|defect| defect.in_trajectory(index)).collect(),
        })
    }

    fn merge(&mut self, other: Self) {
        self.trajectories += other.trajectories;
        self.digests.extend(other.digests);
        self.frames = (self.frames.0.min(other.frames.0), self.frames.1.max(other.frames.1));
        self.times.merge(other.times);
        self.statistics.merge(&other.statistics);
        self.precision.merge(&other.precision);
        for (range, theirs) in self.parameters.iter_mut().zip(other.parameters) {
            *range = [range[0].min(theirs[0]), range[1].max(theirs[1])];
        }
        self.controls.merge(other.controls);
        for (range, theirs) in self.statics.iter_mut().zip(other.statics) {
            *range = [range[0].min(theirs[0]), range[1].max(theirs[1])];
        }
        self.order.merge(other.order);
        self.non_finite += other.non_finite;
        self.defects.extend(other.defects);
    }
}

/// Returns the smallest and largest value of each of some fields `[points, fields]`.
fn ranges(fields: Option<&[f32]>, count: usize) -> Vec<[f64; 2]> {
    let mut ranges = vec![[f64::INFINITY, f64::NEG_INFINITY]; count];
    for point in fields.unwrap_or_default().chunks(count.max(1)) {
        for (range, &value) in ranges.iter_mut().zip(point) {
            *range = [range[0].min(f64::from(value)), range[1].max(f64::from(value))];
        }
    }
    ranges
}

/// Returns all trajectories, or an even selection that stays within the budget.
fn chosen(file: &TrajectoryFile, full: bool) -> Result<Vec<usize>, DataError> {
    let size = file.description().shape.len() * file.frame_count(0)?;
    let affordable = (MOST_VALUES / size.max(1)).max(1);
    let count = file.len();
    if full || count <= affordable {
        return Ok((0..count).collect());
    }
    Ok((0..affordable).map(|i| (i as u128 * count as u128 / affordable as u128) as usize).collect())
}

/// A hash of the values: equal values have equal hashes, others collide with probability 2^-64 per pair. The parameters
/// do not count: a dam of another radius that covers the same cells is the same trajectory.
fn digest(values: &[f32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    // Two values at a time: twice as fast as one.
    for pair in values.chunks(2) {
        let low = pair[0].to_bits();
        let high = pair.get(1).map_or(0, |value| value.to_bits());
        hasher.write_u64(u64::from(high) << 32 | u64::from(low));
    }
    hasher.write_usize(values.len());
    hasher.finish()
}

impl TimesReport {
    fn new(trajectory: usize, times: &[f64], first_times: &[f64]) -> Self {
        let (first, last) = (times[0], times[times.len() - 1]);
        let mean = (last - first) / (times.len().max(2) - 1) as f64;
        let intervals = || times.windows(2).map(|pair| pair[1] - pair[0]);
        let is_gap = |interval: f64| interval > GAP * mean;
        let longest = intervals()
            .enumerate()
            .filter(|&(_, interval)| is_gap(interval))
            .max_by(|one, other| one.1.total_cmp(&other.1))
            .map(|(frame, interval)| Gap {
                trajectory,
                frame,
                from: times[frame],
                to: times[frame + 1],
                ratio: interval / mean,
            });
        Self {
            first,
            last,
            uniform: intervals().all(|interval| (interval - mean).abs() <= UNIFORM * mean),
            shared: times == first_times,
            smallest_interval: intervals().fold(f64::INFINITY, f64::min),
            largest_interval: intervals().fold(0.0, f64::max),
            nearly_equal: times.len() - groups(times, nearness(times)).len(),
            gaps: intervals().filter(|&interval| is_gap(interval)).count(),
            longest_gap: longest,
        }
    }

    fn merge(&mut self, other: Self) {
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
        self.uniform &= other.uniform;
        self.shared &= other.shared;
        self.smallest_interval = self.smallest_interval.min(other.smallest_interval);
        self.largest_interval = self.largest_interval.max(other.largest_interval);
        self.nearly_equal += other.nearly_equal;
        self.gaps += other.gaps;
        let ratio = |gap: &Option<Gap>| gap.as_ref().map_or(0.0, |gap| gap.ratio);
        if ratio(&other.longest_gap) > ratio(&self.longest_gap) {
            self.longest_gap = other.longest_gap;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(count: usize) -> Vec<f64> {
        (0..count).map(|i| f64::from(i as f32 * 0.005)).collect()
    }

    #[test]
    fn times_rounded_to_single_precision_are_uniform() {
        let times = uniform(1001);
        let found = TimesReport::new(0, &times, &times);
        assert!(found.uniform && found.shared && found.gaps == 0, "{found:?}");
    }

    #[test]
    fn a_missing_stretch_is_a_gap_with_its_place() {
        let mut times = uniform(101);
        times.drain(40..52);
        let found = TimesReport::new(7, &times, &times);
        assert!(!found.uniform);
        assert_eq!(found.gaps, 1);
        let gap = found.longest_gap.unwrap();
        assert_eq!((gap.trajectory, gap.frame), (7, 39));
    }

    #[test]
    fn merged_times_cover_both() {
        let mut one = TimesReport::new(0, &[0.0, 1.0, 2.0], &[0.0, 1.0, 2.0]);
        one.merge(TimesReport::new(1, &[-1.0, 0.5], &[0.0, 1.0, 2.0]));
        assert_eq!((one.first, one.last, one.shared, one.uniform), (-1.0, 2.0, false, true));
        assert_eq!((one.smallest_interval, one.largest_interval), (1.0, 1.5));
    }
}
