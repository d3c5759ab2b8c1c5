//! Times at which the errors of several trajectories are averaged.

/// The snapshots of all trajectories if they share their times, else as many equal spans as the longest has.
pub(super) struct TimeBins {
    shared: bool,
    start: f64,
    span: f64,
    count: usize,
}

impl TimeBins {
    /// Creates the bins for the times of trajectories, each with at least one time. Returns `None` without trajectories.
    pub(super) fn of<'a>(trajectories: impl Iterator<Item = &'a [f64]> + Clone) -> Option<Self> {
        let longest = trajectories.clone().max_by_key(|times| times.len())?;
        let ends = trajectories.clone().flat_map(|times| [times[0], times[times.len() - 1]]);
        let [start, end] =
            ends.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], t| [low.min(t), high.max(t)]);
        let span = end - start;
        let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * span;
        let shared = trajectories.clone().all(|times| times.iter().zip(longest).all(near));
        Some(Self { shared, start, span, count: longest.len() })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bin of a trajectory's snapshot with this index and time.
    pub(super) fn bin(&self, frame: usize, time: f64) -> usize {
        let share = ((time - self.start) / self.span * self.count as f64) as usize;
        if self.shared { frame } else { share.min(self.count - 1) }
    }
}
