//! Next-step prediction, the paper's baseline: from each snapshot of a uniform grid to the next one.

use cfo_data::Split;
use cfo_engine::{Graph, Node};

use super::{Batch, Draw, Motion, Objective, ObjectiveConfig, Unit};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// To predict the next snapshot of a uniform grid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Autoregressive {
    /// Whether the change is predicted rather than the next state.
    pub residual: bool,
}

impl Autoregressive {
    pub(super) const NAME: &'static str = "autoregressive";
}

impl Objective for Autoregressive {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::Neighbours
    }

    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let output = model.network(graph, batch.time, batch.state, batch.conditions)?;
        let target = match self.residual {
            true => {
                let change = graph.subtract(batch.target, batch.state)?;
                model.in_units(graph, batch.time, change)?
            }
            false => batch.target,
        };
        batch.mean_squared_error(graph, output, target)
    }

    fn motion(&self) -> Motion {
        Motion::Step
    }

    fn unit(&self) -> Unit {
        if self.residual { Unit::Change } else { Unit::State }
    }

    /// Steps must be equal, the same in all trajectories or told.
    fn check(&self, data: &Trajectories, recipe: &Recipe) -> Result<()> {
        let first = usize::from(recipe.data.drop_first);
        let mut steps = Vec::new();
        for (index, trajectory) in data.part(Split::Train) {
            let times = trajectory.times.get(first..).unwrap_or_default();
            // Training refuses trajectories that are shorter.
            if times.len() > 1 {
                steps.push((index, uniform_step(index, times, recipe.data.keep_rate)?));
            }
        }
        check_steps(&steps, data, recipe.data.condition)
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        recipe.objective = ObjectiveConfig::Autoregressive { residual: self.residual };
        true
    }
}

/// Steps that differ by less than this share are equal: times may be rounded.
const EQUAL: f64 = 1e-3;

/// The step of a trajectory, all of whose steps must be equal.
fn uniform_step(index: usize, times: &[f64], keep_rate: f64) -> Result<f64> {
    let expected = times[1] - times[0];
    let uneven = times.windows(2).find(|pair| ((pair[1] - pair[0]) / expected - 1.0).abs() > EQUAL);
    match uneven {
        None if keep_rate >= 1.0 => Ok(expected),
        None => Err(CfoError::invalid(
            "data.keep_rate",
            format!("{keep_rate} leaves irregular times, and `autoregressive` needs a uniform grid"),
        )),
        Some(pair) => Err(CfoError::BadData {
            problem: format!(
                "trajectory {index} steps by {} after time {}, but `autoregressive` needs steps of {expected} throughout",
                pair[1] - pair[0],
                pair[0]
            ),
            hint: "use `objective.kind = \"flow-matching\"`, which takes irregular times".into(),
        }),
    }
}

/// The network must know by how much it steps: by the same in all trajectories, or it is told, by a parameter that is the step.
fn check_steps(steps: &[(usize, f64)], data: &Trajectories, told: bool) -> Result<()> {
    let Some(&(first, expected)) = steps.first() else { return Ok(()) };
    let same = |found: f64, expected: f64| (found / expected - 1.0).abs() <= EQUAL;
    let Some(&(index, step)) = steps.iter().find(|(_, step)| !same(*step, expected)) else { return Ok(()) };
    let is_step = |p: usize| steps.iter().all(|&(i, step)| same(data.trajectories[i].parameters[p], step));
    if told && (0..data.description.parameter_names.len()).any(is_step) {
        return Ok(());
    }
    Err(CfoError::BadData {
        problem: format!(
            "trajectory {first} steps by {expected} and trajectory {index} by {step}, which `autoregressive` must be told"
        ),
        hint: "store each trajectory's step among the `/parameters` and set `data.condition = true`, or use `objective.kind = \"flow-matching\"`".into(),
    })
}
