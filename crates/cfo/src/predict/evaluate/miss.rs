//! The miss: by how much forward solutions from each snapshot of a trajectory miss the next snapshot.

use std::collections::BTreeSet;

use cfo_data::Trajectory;
use cfo_engine::Memory;
use cfo_numerics::metric::ChannelErrors;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::first_frame;
use super::time_bins::TimeBins;
use crate::error::Result;
use crate::model::Model;
use crate::objective::MotionKind;
use crate::predict::rollout::{Budget, Request, Rollout, Watch};
use crate::ranks::from_all;
use crate::trajectories::Part;

/// Largest number of trajectories from which the miss is computed.
const MOST: usize = 64;

/// By how much the model, integrated forward from each snapshot over one interval, misses the next snapshot.
///
/// It is an error estimate that needs nothing but the snapshots, and unlike the error of a rollout it does not grow with time. At most 64
/// trajectories, evenly chosen, contribute; trajectories whose rollout diverges contribute too. An interval over which the solution
/// diverges is left out.
///
/// All numbers are root mean squares over space and snapshots, divided by the standard deviation of each channel over the snapshots that
/// were to be reached. This is [`ChannelReport::deviation`](super::ChannelReport::deviation) if all trajectories contribute and none
/// diverged, so that the miss and [`ChannelReport::relative`](super::ChannelReport::relative) have equal units.
///
/// The solver has the budget of the evaluation. Steps per output interval, steps of at most a length, and tolerances are those of a
/// rollout. A number of steps or of evaluations is that of the whole trajectory, and each interval has its share of the steps, rounded, at
/// least one. Outputs that a rollout interpolates inside a longer step are therefore ends of shorter steps here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Miss {
    /// Root mean square over the channels that are not constant.
    pub mean: f64,
    /// Miss of each channel, in their order; `None` for a constant channel.
    pub channels: Vec<Option<f64>>,
    /// Miss over time: at each snapshot but the first if all trajectories share their times, else in equal spans of time.
    pub per_time: Vec<TimeMiss>,
}

/// The miss at a time, over the trajectories that have a snapshot there.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeMiss {
    /// Mean time of the snapshots that were to be reached.
    pub time: f64,
    /// Root mean square over these snapshots and over the channels.
    pub miss: f64,
}

/// Misses so far. Trajectories may be added in portions.
pub(super) struct Misses<'a> {
    model: &'a Model,
    /// Indices of the trajectories that contribute.
    chosen: BTreeSet<usize>,
    errors: ChannelErrors,
    missed: Vec<Missed>,
}

/// The misses of one trajectory.
#[derive(Serialize, Deserialize)]
struct Missed {
    index: usize,
    times: Vec<f64>,
    /// Mean square error over space, for each snapshot but the first and each channel; empty if the solution diverged.
    squares: Vec<Vec<f64>>,
}

/// One interval of a trajectory.
struct Interval<'a> {
    trajectory: &'a Trajectory,
    /// Index of the trajectory's [`Missed`].
    place: usize,
    /// Index of the snapshot at the interval's end.
    end: usize,
    /// Time at which the solution is requested.
    time: f64,
    /// Number of equal steps, if the budget sets it.
    steps: Option<usize>,
}

impl<'a> Misses<'a> {
    /// Creates the misses of no trajectories of a part. Returns `None` for a model that does not move from a snapshot to the next.
    pub(super) fn new(model: &'a Model, part: &Part<'_>) -> Option<Self> {
        let numbers: Vec<usize> = part.numbers().collect();
        let chosen = evenly(numbers.len()).map(|place| numbers[place]).collect();
        let errors = ChannelErrors::new(model.shape().channels);
        has_miss(model).then(|| Self { model, chosen, errors, missed: Vec::new() })
    }

    /// Adds the intervals of the contributing ones of indexed trajectories. Only a batch of them is in memory at a time.
    pub(super) fn add(
        &mut self,
        (rollout, memory): (&mut Rollout, &mut Memory),
        budget: Budget,
        trajectories: &[(usize, &Trajectory)],
        watch: &Watch<'_>,
    ) -> Result<()> {
        let mut intervals = Vec::new();
        for &(index, trajectory) in trajectories.iter().filter(|(index, _)| self.chosen.contains(index)) {
            intervals.extend(self.intervals(rollout, budget, trajectory)?);
            let times = trajectory.times[first_frame(self.model)..].to_vec();
            let squares = vec![Vec::new(); times.len() - 1];
            self.missed.push(Missed { index, times, squares });
        }
        intervals.sort_by_key(|interval| interval.steps);
        for equal in intervals.chunk_by(|a, b| a.steps == b.steps) {
            for batch in equal.chunks(rollout.batch()) {
                let budget = batch[0].steps.map_or(budget, Budget::Steps);
                let found = rollout.predict_each(memory, &self.request(batch), budget, watch)?;
                self.compare(batch, &found.states);
            }
        }
        Ok(())
    }

    /// Returns the intervals of the trajectory that is added next.
    fn intervals<'t>(
        &self,
        rollout: &Rollout,
        budget: Budget,
        trajectory: &'t Trajectory,
    ) -> Result<Vec<Interval<'t>>> {
        let (first, scaling, place) = (first_frame(self.model), &self.model.scaling, self.missed.len());
        let times = &trajectory.times[first..];
        let way = |from: f64, to: f64| (scaling.time(to) - scaling.time(from)).abs();
        let whole = way(times[0], times[times.len() - 1]);
        let steps = rollout.equal_steps(budget, whole)?;
        // A model with fixed steps predicts one such step, which may differ from the interval by rounding.
        let fixed = (self.model.motion().kind() == MotionKind::Step).then(|| times[1] - times[0]);
        let interval = |(before, pair): (usize, &[f64])| Interval {
            trajectory,
            place,
            end: first + before + 1,
            time: fixed.map_or(pair[1], |step| pair[0] + step),
            steps: steps
                .map(|count| (count as f64 * way(pair[0], pair[1]) / whole).round().max(1.0) as usize),
        };
        Ok(times.windows(2).enumerate().map(interval).collect())
    }

    /// Returns the request for the ends of intervals.
    fn request(&self, intervals: &[Interval<'_>]) -> Request {
        let (mut request, size) = (Request::default(), self.model.shape().len());
        for Interval { trajectory, end, time, .. } in intervals {
            request.start.push(trajectory.times[end - 1]);
            request.states.push(trajectory.values[(end - 1) * size..end * size].to_vec());
            request.times.push(vec![*time]);
            request.inputs.push(trajectory.inputs.clone());
        }
        request
    }

    /// Compares the states reached with the snapshots at the ends of intervals. Differences do not depend on the model's offset.
    fn compare(&mut self, intervals: &[Interval<'_>], reached: &[Vec<f32>]) {
        let (first, shape) = (first_frame(self.model), self.model.shape());
        let judge = |(interval, reached): (&Interval<'_>, &Vec<f32>)| {
            let goal = &interval.trajectory.values[interval.end * shape.len()..][..shape.len()];
            (reached.len() == goal.len()).then(|| {
                let mut errors = ChannelErrors::new(shape.channels);
                errors.push(reached, goal);
                errors
            })
        };
        let judged: Vec<_> = intervals.par_iter().zip(reached).map(judge).collect();
        for (interval, errors) in intervals.iter().zip(judged) {
            let Some(errors) = errors else { continue };
            let squares = errors.report().iter().map(|channel| channel.rmse.powi(2)).collect();
            self.missed[interval.place].squares[interval.end - first - 1] = squares;
            self.errors.merge(&errors);
        }
    }

    /// Adds the misses of all other ranks.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(super) fn join(&mut self) -> Result<()> {
        let channels = self.model.shape().channels;
        let own = (
            std::mem::replace(&mut self.errors, ChannelErrors::new(channels)),
            std::mem::take(&mut self.missed),
        );
        for (errors, missed) in from_all(&own)? {
            self.errors.merge(&errors);
            self.missed.extend(missed);
        }
        Ok(())
    }

    /// Returns the miss, or `None` if no solution arrived or all channels are constant.
    pub(super) fn report(mut self) -> Option<Miss> {
        // The order of the ranks does not change the sums over time.
        self.missed.sort_by_key(|one| one.index);
        let found = self.errors.report();
        let channels: Vec<Option<f64>> = found.iter().map(|channel| channel.relative).collect();
        let mean = mean(channels.iter().flatten().map(|miss| miss.powi(2)))?.sqrt();
        let deviations: Vec<f64> = found.iter().map(|channel| channel.deviation).collect();
        Some(Miss { mean, channels, per_time: per_time(&self.missed, &deviations) })
    }
}

/// Returns whether a model moves from a snapshot to the next.
fn has_miss(model: &Model) -> bool {
    !matches!(model.motion().kind(), MotionKind::Trajectory { .. })
}

/// Returns the number of intervals of a part that contribute.
pub(super) fn intervals(model: &Model, part: &Part<'_>) -> usize {
    let frames: Vec<usize> = part.frames().collect();
    let ends = |place: usize| frames[place].saturating_sub(first_frame(model) + 1);
    if has_miss(model) { evenly(frames.len()).map(ends).sum() } else { 0 }
}

/// Returns the miss over time, given the standard deviation of each channel.
fn per_time(missed: &[Missed], deviations: &[f64]) -> Vec<TimeMiss> {
    let Some(bins) = TimeBins::of(missed.iter().map(|one| &one.times[..])) else { return Vec::new() };
    let mut found: Vec<Vec<(f64, f64)>> = vec![Vec::new(); bins.count()];
    for one in missed {
        for (before, squares) in one.squares.iter().enumerate() {
            let (frame, time) = (before + 1, one.times[before + 1]);
            let varied = squares.iter().zip(deviations).filter(|&(_, &deviation)| deviation > 0.0);
            let square = mean(varied.map(|(square, deviation)| square / deviation.powi(2)));
            found[bins.bin(frame, time)].extend(square.map(|square| (time, square)));
        }
    }
    let summary = |bin: &Vec<(f64, f64)>| {
        let miss = mean(bin.iter().map(|&(_, square)| square))?.sqrt();
        Some(TimeMiss { time: mean(bin.iter().map(|&(time, _)| time))?, miss })
    };
    found.iter().filter_map(summary).collect()
}

/// Returns the mean of numbers, if there are any.
fn mean(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let (count, sum) = numbers.fold((0.0, 0.0), |(count, sum), number| (count + 1.0, sum + number));
    (count > 0.0).then(|| sum / count)
}

/// Returns positions of at most [`MOST`] of `count` trajectories, evenly spaced.
fn evenly(count: usize) -> impl Iterator<Item = usize> {
    let most = count.min(MOST);
    (0..most).map(move |number| number * count / most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_trajectories_all_contribute_and_of_many_evenly_chosen_ones() {
        assert_eq!(evenly(0).count(), 0);
        assert!(evenly(MOST).eq(0..MOST));
        let many: Vec<usize> = evenly(1000).collect();
        assert_eq!((many.len(), many[0], many[1], many[MOST - 1]), (MOST, 0, 15, 984));
    }

    #[test]
    fn intervals_that_diverged_and_constant_channels_are_left_out_over_time() {
        let missed = |times: &[f64], squares: &[&[f64]]| Missed {
            index: 0,
            times: times.to_vec(),
            squares: squares.iter().map(|squares| squares.to_vec()).collect(),
        };
        let missed = [
            missed(&[0.0, 1.0, 2.0], &[&[4.0, 9.0, 7.0], &[]]),
            missed(&[0.0, 1.0, 2.0], &[&[16.0, 9.0, 7.0], &[]]),
        ];
        let found = per_time(&missed, &[2.0, 3.0, 0.0]);
        // The squares relative to the deviations are 1 and 1, then 4 and 1.
        assert_eq!(found, [TimeMiss { time: 1.0, miss: (0.5 * (1.0 + 2.5_f64)).sqrt() }]);
    }
}
