//! Whether one step an output is enough: some trajectories are rolled out once more with twice the evaluations. An error that falls is the
//! solver's, not the network's.

use anyhow::Result;
use cfo::objective::Motion;
use cfo::{Budget, Part, Report, Trained, Trajectories, Watch};
use serde::Serialize;

use crate::interrupt;
use crate::report::scientific;

/// Points in space up to which trajectories are rolled out again; those of larger fields take too long.
const MOST_POINTS: usize = 1024;

/// One in so many is rolled out again, one at least.
const ONE_IN: usize = 8;
/// And so many at most.
const MOST: usize = 8;

/// An error that falls to less than this share is the solver's.
const SHARE: f64 = 0.8;

/// What twice the evaluations make of an error.
#[derive(Debug, Serialize)]
pub(super) struct ShorterSteps {
    /// Trajectories that were rolled out again.
    trajectories: usize,
    /// Those of them that diverged, before and now.
    diverged: [usize; 2],
    /// Mean relative L2 error of those that arrived both times, before and now.
    relative_l2: [Option<f64>; 2],
    /// Evaluations for one trajectory now.
    evaluations: usize,
}

impl ShorterSteps {
    /// Rolls some trajectories of a part out again. `None` where somebody chose the steps or tolerances, for models without a solver, for large fields, and
    /// where many processes share the work.
    ///
    /// # Errors
    /// If they cannot be read, or it was interrupted.
    pub(super) fn of(
        trained: &Trained,
        set: &Trajectories,
        part: &Part<'_>,
        found: &Report,
    ) -> Result<Option<Self>> {
        let points: usize = set.description.shape.len() / set.description.shape.channels;
        let is_chosen = trained.solver().budget != Budget::StepPerOutput;
        let is_solved = trained.model().objective().motion() == Motion::Velocity;
        if is_chosen || !is_solved || points > MOST_POINTS || cfo::ranks::world().is_some() {
            return Ok(None);
        }
        let error_of = |report: &Report, number: usize| {
            let place = report.relative_l2.indices.iter().position(|&index| index == number)?;
            report.relative_l2.per_trajectory[place]
        };
        let numbers: Vec<usize> = part.numbers().collect();
        let chosen = chosen(&numbers.iter().map(|&number| error_of(found, number)).collect::<Vec<_>>());
        if chosen.is_empty() {
            return Ok(None);
        }
        let evaluations = 2 * found.evaluations;
        let again = set.chosen(&chosen.iter().map(|&place| part.indices()[place]).collect::<Vec<_>>());
        let watch = Watch::default().with_interrupt(interrupt::flag()?);
        let finer = trained
            .with_solver(trained.solver().evaluations(evaluations))
            .evaluate_each(&again, false, watch)?;
        let pairs: Vec<[Option<f64>; 2]> = chosen
            .iter()
            .map(|&place| [found, &finer].map(|report| error_of(report, numbers[place])))
            .collect();
        let arrived: Vec<[f64; 2]> = pairs.iter().filter_map(|&[one, other]| Some([one?, other?])).collect();
        let mean = |time: usize| {
            (!arrived.is_empty())
                .then(|| arrived.iter().map(|errors| errors[time]).sum::<f64>() / arrived.len() as f64)
        };
        Ok(Some(Self {
            trajectories: chosen.len(),
            diverged: [0, 1].map(|time| pairs.iter().filter(|pair| pair[time].is_none()).count()),
            relative_l2: [mean(0), mean(1)],
            evaluations: finer.evaluations,
        }))
    }

    /// What to say where the steps were too long.
    pub(super) fn warning(&self, evaluations: usize) -> Option<String> {
        let Self { trajectories, diverged, relative_l2, evaluations: now } = self;
        let found = match (diverged, relative_l2) {
            ([before, after], _) if after < before => {
                format!("{} of {before} trajectories that diverged arrive", before - after)
            }
            (_, [Some(before), Some(after)]) if *after < SHARE * before => {
                let of = if *trajectories == 1 {
                    "one trajectory".into()
                } else {
                    format!("{trajectories} trajectories")
                };
                let [before, after] = [before, after].map(|error| scientific(*error));
                format!("the relative L2 error of {of} is {after} instead of {before}")
            }
            _ => return None,
        };
        Some(format!(
            "the solver's steps are too long: with {now} evaluations instead of {evaluations}, {found}; `--solver tsit5` chooses its steps, `--nfe {now}` \
             makes more of them, `evaluate.solver` and `evaluate.nfe` of the recipe also for validation"
        ))
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
        let found =
            |diverged, relative_l2| ShorterSteps { trajectories: 2, diverged, relative_l2, evaluations: 80 };
        assert!(found([0, 0], [Some(0.1), Some(0.095)]).warning(40).is_none());
        assert!(found([0, 0], [Some(0.1), Some(0.2)]).warning(40).is_none());
        assert!(found([1, 1], [None, None]).warning(40).is_none());
        let worse = found([0, 0], [Some(0.4), Some(0.1)]).warning(40).unwrap();
        assert!(worse.contains("1.00e-1 instead of 4.00e-1") && worse.contains("--nfe 80"), "{worse}");
        let arrived = found([2, 1], [None, None]).warning(40).unwrap();
        assert!(arrived.contains("1 of 2 trajectories that diverged arrive"), "{arrived}");
    }
}
