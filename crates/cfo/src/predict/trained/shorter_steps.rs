//! Checks whether one step per output interval suffices: an error that decreases with shorter steps is the solver's.

use cfo_data::FieldShape;
use serde::Serialize;

use super::Trained;
use crate::error::Result;
use crate::objective::MotionKind;
use crate::predict::evaluate::Report;
use crate::predict::rollout::{Budget, Prediction, Request, Watch};
use crate::ranks;
use crate::trajectories::Part;

/// Largest number of points in space for which trajectories are repeated; larger fields take too long.
const MOST_POINTS: usize = 1024;

/// One trajectory out of this number is repeated, at least one.
const ONE_IN: usize = 8;
/// Largest number of trajectories that are repeated.
const MOST: usize = 8;

/// An error that decreases to less than this share is the solver's.
const SHARE: f64 = 0.8;

/// Largest number of steps of a trajectory that are repeated.
const INTERVALS: usize = 16;
/// Steps are too long if half the step changes their ends by more than this share of the change over a step. The error of networks is about
/// as large a share of the velocity.
const CHANGE: f64 = 0.01;

/// The effect of twice the number of evaluations on errors.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShorterSteps {
    /// Number of trajectories that were repeated.
    pub trajectories: usize,
    /// Number of these that diverged, with the original and with twice the number of evaluations.
    pub diverged: [usize; 2],
    /// Mean relative L2 error of the trajectories that arrived both times, originally and now.
    pub relative_l2: [Option<f64>; 2],
    /// Evaluations for one trajectory, originally and now.
    pub evaluations: [usize; 2],
}

impl Trained {
    /// Repeats the rollouts of some trajectories of a part with twice the evaluations of a report on it. Returns `None` if steps or
    /// tolerances were set, for models without a solver, for large fields, and with several ranks.
    ///
    /// # Errors
    /// If trajectories cannot be read, or the rollout is interrupted.
    pub fn shorter_steps(
        &self,
        part: &Part<'_>,
        found: &Report,
        watch: Watch<'_>,
    ) -> Result<Option<ShorterSteps>> {
        let shape = part.description().shape;
        if !self.takes_a_step_per_output(shape) || ranks::job().is_some() || part.is_empty() {
            return Ok(None);
        }
        let numbers: Vec<usize> = part.numbers().collect();
        // The errors of a report are in the order of the indices.
        let error_of = |report: &Report, number: usize| {
            let place = report.relative_l2.indices.iter().position(|&index| index == number)?;
            report.relative_l2.per_trajectory[place]
        };
        let places = chosen(&numbers.iter().map(|&number| error_of(found, number)).collect::<Vec<_>>());
        let finer = self.with_solver(self.solver.evaluations(2 * found.evaluations));
        let again = finer.evaluate_each(&part.at(&places), false, watch)?;
        let pairs: Vec<[Option<f64>; 2]> = places
            .iter()
            .map(|&place| [found, &again].map(|report| error_of(report, numbers[place])))
            .collect();
        let arrived: Vec<[f64; 2]> =
            pairs.iter().filter_map(|&[before, now]| Some([before?, now?])).collect();
        let mean = |time: usize| {
            let sum: f64 = arrived.iter().map(|errors| errors[time]).sum();
            (!arrived.is_empty()).then(|| sum / arrived.len() as f64)
        };
        Ok(Some(ShorterSteps {
            trajectories: places.len(),
            diverged: [0, 1].map(|time| pairs.iter().filter(|pair| pair[time].is_none()).count()),
            relative_l2: [0, 1].map(mean),
            evaluations: [found.evaluations, again.evaluations],
        }))
    }

    /// Repeats some steps of a prediction as two steps of half the length, each from a predicted state. Returns a warning if their ends
    /// change by too much. Returns `None` as for [`Trained::shorter_steps`].
    ///
    /// # Errors
    /// If the rollout is interrupted.
    pub fn too_long_steps(
        &self,
        request: &Request,
        found: &Prediction,
        watch: &Watch<'_>,
    ) -> Result<Option<String>> {
        let shape = self.model.shape();
        if !self.takes_a_step_per_output(shape) {
            return Ok(None);
        }
        let mut whole = Request::default();
        for trajectory in 0..found.times.len().min(MOST) {
            self.push_steps(request, found, trajectory, &mut whole);
        }
        let mut halves = whole.clone();
        for (start, times) in whole.start.iter().zip(&mut halves.times) {
            times.insert(0, 0.5 * (start + times[0]));
        }
        let [whole_ends, half_ends] =
            [self.predict_each(&whole, watch)?.states, self.predict_each(&halves, watch)?.states];
        let (mut error, mut change, size) = (0.0, 0.0, shape.len());
        for ((state, end), finer) in whole.states.iter().zip(&whole_ends).zip(&half_ends) {
            if end.len() == size && finer.len() == 2 * size {
                error += distance(&finer[size..], end, &self.model.scaling.range);
                change += distance(state, end, &self.model.scaling.range);
            }
        }
        let share = (error / change).sqrt();
        Ok((share > CHANGE).then(|| {
            let percent = 100.0 * share;
            format!(
                "the solver's steps are too long: half the step changes the end of a step by {percent:.1} % of the change over it"
            )
        }))
    }

    /// Returns whether the default budget integrates a velocity of fields that are small enough to repeat rollouts.
    fn takes_a_step_per_output(&self, shape: FieldShape) -> bool {
        self.solver.budget == Budget::StepPerOutput
            && self.model.motion().kind() == MotionKind::Velocity
            && shape.len() / shape.channels <= MOST_POINTS
    }

    /// Adds steps of one trajectory of a prediction to `steps`: the first step of some output intervals, from the state there.
    fn push_steps(&self, request: &Request, found: &Prediction, trajectory: usize, steps: &mut Request) {
        let (start, size) = (request.start[trajectory], self.model.shape().len());
        let (times, states) = (&found.times[trajectory], &found.states[trajectory]);
        let outputs = times.iter().copied().zip(states.chunks_exact(size));
        let is_ahead = times.iter().any(|&time| time > start);
        let mut way: Vec<(f64, &[f32])> = vec![(start, &request.states[trajectory])];
        way.extend(outputs.filter(|&(time, _)| if is_ahead { time > start } else { time < start }));
        way.sort_by(|(a, _), (b, _)| (a - start).abs().total_cmp(&(b - start).abs()));
        let intervals: Vec<(f64, &[f32], f64)> =
            way.windows(2).map(|pair| (pair[0].0, pair[0].1, pair[1].0)).collect();
        for &(from, state, to) in intervals.iter().step_by(intervals.len().div_ceil(INTERVALS).max(1)) {
            let count = ((to - from).abs() / self.model.scaling.interval).round().max(1.0);
            steps.start.push(from);
            steps.states.push(state.to_vec());
            steps.times.push(vec![from + (to - from) / count]);
            steps.inputs.push(request.inputs.get(trajectory).cloned().unwrap_or_default());
        }
    }
}

/// Returns the squared distance of two states, with each channel in units of its range.
fn distance(a: &[f32], b: &[f32], range: &[[f64; 2]]) -> f64 {
    let pairs = a.iter().zip(b).zip(range.iter().cycle()).filter(|(_, [low, high])| high > low);
    pairs.map(|((a, b), [low, high])| (f64::from(a - b) / (high - low)).powi(2)).sum()
}

impl ShorterSteps {
    /// Returns a description of the problem, or `None` if the steps are short enough.
    pub fn problem(&self) -> Option<String> {
        let Self { trajectories, diverged: [before, after], relative_l2, evaluations: [few, many] } = self;
        let found = match relative_l2 {
            _ if after < before => {
                format!("{} of {before} trajectories that diverged arrive", before - after)
            }
            [Some(before), Some(after)] if *after < SHARE * before => {
                let of = if *trajectories == 1 {
                    "one trajectory".into()
                } else {
                    format!("{trajectories} trajectories")
                };
                format!("the relative L2 error of {of} is {after:.2e} instead of {before:.2e}")
            }
            _ => return None,
        };
        Some(format!("the solver's steps are too long: with {many} evaluations instead of {few}, {found}"))
    }
}

/// Returns the positions of the trajectories that are repeated: those that diverged first, then evenly spaced others.
fn chosen(errors: &[Option<f64>]) -> Vec<usize> {
    let most = errors.len().div_ceil(ONE_IN).min(MOST);
    let mut chosen: Vec<usize> =
        (0..errors.len()).filter(|&place| errors[place].is_none()).take(most).collect();
    let others: Vec<usize> = (0..errors.len()).filter(|&place| errors[place].is_some()).collect();
    let left = (most - chosen.len()).min(others.len());
    chosen.extend((0..left).map(|number| others[number * others.len() / left]));
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_trajectories_stand_for_all() {
        assert!(chosen(&[]).is_empty());
        assert_eq!(chosen(&[Some(0.1)]), [0]);
        assert_eq!(chosen(&[Some(0.1); 20]), [0, 6, 13]);
        assert_eq!(chosen(&[Some(0.1); 1000]).len(), MOST);
        let mut errors = [Some(0.1); 24];
        errors[17] = None;
        assert_eq!(chosen(&errors), [17, 0, 11]);
        assert_eq!(chosen(&[None; 9]), [0, 1]);
    }

    #[test]
    fn only_steps_that_cost_accuracy_are_spoken_of() {
        let problem = |diverged, relative_l2| {
            ShorterSteps { trajectories: 2, diverged, relative_l2, evaluations: [40, 80] }.problem()
        };
        assert!(problem([0, 0], [Some(0.1), Some(0.095)]).is_none());
        assert!(problem([0, 0], [Some(0.1), Some(0.2)]).is_none());
        assert!(problem([1, 1], [None, None]).is_none());
        let worse = problem([0, 0], [Some(0.4), Some(0.1)]).unwrap();
        assert!(worse.contains("1.00e-1 instead of 4.00e-1") && worse.contains("80 evaluations"), "{worse}");
        let arrived = problem([2, 1], [None, None]).unwrap();
        assert!(arrived.contains("1 of 2 trajectories that diverged arrive"), "{arrived}");
    }
}
