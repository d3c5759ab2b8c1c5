//! Checks of uniform time grids, for objectives that predict the next snapshot.

use cfo_data::{Split, Trajectory};

use crate::error::{CfoError, Result};
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// Returns an error if the steps of training or validation data are not equal. They may differ between trajectories if the step is a
/// parameter of the network. `name` is the objective's.
pub(super) fn check_uniform(name: &str, data: &Trajectories, recipe: &Recipe) -> Result<()> {
    let first = usize::from(recipe.data.drop_first);
    let mut steps = Vec::new();
    for (index, trajectory) in seen(data, recipe) {
        let times = trajectory.times.get(first..).unwrap_or_default();
        // Training refuses trajectories that are shorter.
        if times.len() > 1 {
            steps.push((index, uniform_step(name, index, times, recipe.data.keep_rate)?));
        }
    }
    check_steps(name, &steps, data, recipe.data.condition)
}

/// Returns the trajectories that a training reads: those for training, and those that validation uses.
pub(super) fn seen<'a>(
    data: &'a Trajectories,
    recipe: &Recipe,
) -> impl Iterator<Item = (usize, &'a Trajectory)> {
    let most = match recipe.train.validate_every {
        0 => 0,
        _ => recipe.train.validate_trajectories.unwrap_or(usize::MAX),
    };
    data.part(Split::Train).chain(data.part(Split::Validation).take(most))
}

/// Largest relative difference of steps that count as equal; times may be rounded.
pub(crate) const EQUAL: f64 = 1e-3;

/// Returns the step of a trajectory, or an error if its steps are not equal.
fn uniform_step(name: &str, index: usize, times: &[f64], keep_rate: f64) -> Result<f64> {
    let expected = times[1] - times[0];
    let uneven = times.windows(2).find(|pair| ((pair[1] - pair[0]) / expected - 1.0).abs() > EQUAL);
    match uneven {
        None if keep_rate >= 1.0 => Ok(expected),
        None => Err(CfoError::invalid(
            "data.keep_rate",
            format!("{keep_rate} leaves irregular times, and `{name}` needs a uniform grid"),
        )),
        Some(pair) => Err(CfoError::bad_data(
            format!(
                "trajectory {index} has a step of {} after time {}, but `{name}` needs steps of {expected} throughout",
                pair[1] - pair[0],
                pair[0]
            ),
            "use `objective.kind = \"flow-matching\"`, which takes irregular times",
        )),
    }
}

/// Returns an error if steps differ between trajectories and no parameter of the network is the step.
fn check_steps(name: &str, steps: &[(usize, f64)], data: &Trajectories, told: bool) -> Result<()> {
    let Some(&(first, expected)) = steps.first() else { return Ok(()) };
    let same = |found: f64, expected: f64| (found / expected - 1.0).abs() <= EQUAL;
    let Some(&(index, step)) = steps.iter().find(|(_, step)| !same(*step, expected)) else { return Ok(()) };
    let is_step =
        |p: usize| steps.iter().all(|&(i, step)| same(data.trajectories[i].inputs.parameters[p], step));
    if told && (0..data.description.inputs.parameters.len()).any(is_step) {
        return Ok(());
    }
    Err(CfoError::bad_data(
        format!(
            "trajectory {first} has steps of {expected}, trajectory {index} of {step}; `{name}` needs the step as a parameter"
        ),
        "store each trajectory's step among the `/parameters` and set `data.condition = true`, or use `objective.kind = \"flow-matching\"`",
    ))
}
