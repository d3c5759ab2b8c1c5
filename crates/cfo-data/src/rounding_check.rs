//! Checks that single precision resolves the variation of each channel.

use crate::{Offset, Statistics};

/// Deviations below this fraction of the largest value have two significant digits or fewer.
const RESOLVED: f64 = 1e-5;

/// Variation within trajectories and largest value of each channel.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundingCheck {
    count: f64,
    /// Sums of squared distances from the mean of the trajectory.
    squares: Vec<f64>,
    /// Largest absolute value.
    largest: Vec<f64>,
}

impl RoundingCheck {
    /// Creates empty statistics.
    pub fn new(channels: usize) -> Self {
        Self { count: 0.0, squares: vec![0.0; channels], largest: vec![0.0; channels] }
    }

    /// Adds the statistics of a trajectory's values.
    pub fn add(&mut self, trajectory: &Statistics) {
        let count = trajectory.count() as f64;
        if count == 0.0 {
            return;
        }
        self.count += count;
        let deviations = trajectory.deviation().into_iter().zip(trajectory.range());
        for ((square, largest), (deviation, [low, high])) in
            self.squares.iter_mut().zip(&mut self.largest).zip(deviations)
        {
            *square += count * deviation * deviation;
            *largest = largest.max(f64::from(low).abs()).max(f64::from(high).abs());
        }
    }

    /// Adds the statistics of other trajectories.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.squares.iter_mut().zip(&other.squares).for_each(|(mine, theirs)| *mine += theirs);
        self.largest.iter_mut().zip(&other.largest).for_each(|(mine, theirs)| *mine = mine.max(*theirs));
    }

    /// Warnings about channels whose variation is lost in rounding. Values are relative to `offset`.
    pub fn warnings(&self, names: &[String], offset: &Offset) -> Vec<String> {
        let channels = self.squares.iter().zip(&self.largest).enumerate();
        let lost = channels.filter_map(|(channel, (squares, &largest))| {
            let deviation = (squares / self.count.max(1.0)).sqrt();
            (deviation > 0.0 && deviation < RESOLVED * largest).then(|| {
                let name = names.get(channel).cloned().unwrap_or_else(|| channel.to_string());
                let (about, advice) = match offset.of(channel) {
                    0.0 => (String::new(), "store it as float64, or its distance from a constant"),
                    offset => (format!(" about {offset}"), "store its distance from a value of each trajectory"),
                };
                format!(
                    "channel `{name}` varies by {deviation:.1e} within trajectories, but its numbers are as large as {largest:.1e}{about}: single \
                     precision keeps at most two digits of the variation; {advice}"
                )
            })
        });
        lost.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(value: impl Fn(usize, f64) -> f64, offset: f64) -> Vec<String> {
        let mut precision = RoundingCheck::new(1);
        for trajectory in 0..4 {
            let values: Vec<f32> =
                (0..100).map(|i| (value(trajectory, 0.1 * f64::from(i)) - offset) as f32).collect();
            let mut statistics = Statistics::new(1);
            statistics.add(&values);
            let mut one = RoundingCheck::new(1);
            one.add(&statistics);
            precision.merge(&one);
        }
        precision.warnings(&["p".into()], &Offset::new(vec![offset]))
    }

    #[test]
    fn a_signal_that_is_lost_is_said() {
        let pressure = |_, t: f64| 101_325.0 + 0.2 * t.sin();
        assert!(warnings(pressure, 0.0)[0].contains("store it as float64"));
        assert!(warnings(pressure, 101_325.0).is_empty());
        let levels = |trajectory: usize, t: f64| 1e9 * (1 + trajectory) as f64 + 100.0 * t.sin();
        assert!(warnings(levels, 2.5e9)[0].contains("each trajectory"));
        assert!(warnings(|_, t| t.sin(), 0.0).is_empty());
        assert!(warnings(|_, _| 5.0, 0.0).is_empty(), "constant");
    }
}
