//! Whether one step an output is enough: some trajectories are rolled out once more with twice the evaluations. An error that falls is the
//! solver's, not the network's.

use serde::Serialize;

use super::Trained;
use crate::error::Result;
use crate::evaluate::Report;
use crate::objective::Motion;
use crate::ranks;
use crate::rollout::{Budget, Watch};
use crate::trajectories::Part;

/// Points in space up to which trajectories are rolled out again; those of larger fields take too long.
const MOST_POINTS: usize = 1024;

/// One in so many is rolled out again, one at least.
const ONE_IN: usize = 8;
/// And so many at most.
const MOST: usize = 8;

/// An error that falls to less than this share is the solver's.
const SHARE: f64 = 0.8;

/// What twice the evaluations make of an error.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ShorterSteps {
    /// Trajectories that were rolled out again.
    pub trajectories: usize,
    /// Those of them that diverged, before and now.
    pub diverged: [usize; 2],
    /// Mean relative L2 error of those that arrived both times, before and now.
    pub relative_l2: [Option<f64>; 2],
    /// Evaluations for one trajectory, before and now.
    pub evaluations: [usize; 2],
}

impl Trained {
    /// Rolls some trajectories of a part out again with twice the evaluations of a report on it. `None` where somebody chose the steps or tolerances, for models
    /// without a solver, for large fields, and where many processes share the work.
    ///
    /// # Errors
    /// If they cannot be read, or the watch ended it.
    pub fn shorter_steps(
        &self,
        part: &Part<'_>,
        found: &Report,
        watch: Watch<'_>,
    ) -> Result<Option<ShorterSteps>> {
        let shape = part.description().shape;
        let is_chosen = self.solver.budget != Budget::StepPerOutput;
        let is_solved = self.model.objective().motion() == Motion::Velocity;
        let is_large = shape.len() / shape.channels > MOST_POINTS;
        if is_chosen || !is_solved || is_large || ranks::job().is_some() || part.is_empty() {
            return Ok(None);
        }
        let numbers: Vec<usize> = part.numbers().collect();
        // Reports are in the order of the numbers.
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
}

impl ShorterSteps {
    /// What was found, in a sentence, where the steps were too long.
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

/// Places of the trajectories that are rolled out again, given the error of each: those that diverged first, then others evenly.
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
