//! Ranges and times of the controls of a file.

use cfo_data::StoredTrajectory;

use crate::report;

/// The controls of the trajectories that were read.
#[derive(Default)]
pub(super) struct ControlScan {
    /// Smallest and largest value of each control.
    pub ranges: Vec<[f64; 2]>,
    /// The first and the last time at which controls are known.
    pub times: Option<[f64; 2]>,
    /// Number of trajectories whose controls do not cover their times.
    uncovered: usize,
}

impl ControlScan {
    pub fn of(trajectory: &StoredTrajectory) -> Self {
        let Some(controls) = &trajectory.inputs.controls else { return Self::default() };
        let mut ranges = vec![[f64::INFINITY, f64::NEG_INFINITY]; controls.channels()];
        for row in controls.values().chunks(controls.channels()) {
            ranges.iter_mut().zip(row).for_each(|(range, &value)| *range = joined(*range, [value; 2]));
        }
        let ends = trajectory.times.first().zip(trajectory.times.last());
        let is_uncovered = ends.is_some_and(|(&first, &last)| controls.uncovered([first, last]).is_some());
        Self { ranges, times: Some(controls.range()), uncovered: usize::from(is_uncovered) }
    }

    pub fn merge(&mut self, other: Self) {
        self.ranges.iter_mut().zip(other.ranges).for_each(|(range, theirs)| *range = joined(*range, theirs));
        self.times = self.times.zip(other.times).map(|(own, theirs)| joined(own, theirs));
        self.uncovered += other.uncovered;
    }

    /// A warning about trajectories whose controls do not cover their times.
    pub fn warning(&self) -> Option<String> {
        (self.uncovered > 0).then(|| {
            let which = report::count(self.uncovered, "trajectory", "trajectories");
            format!(
                "the controls of {which} do not cover the times of the snapshots: training needs them from the first to the last"
            )
        })
    }
}

fn joined([low, high]: [f64; 2], [other_low, other_high]: [f64; 2]) -> [f64; 2] {
    [low.min(other_low), high.max(other_high)]
}
