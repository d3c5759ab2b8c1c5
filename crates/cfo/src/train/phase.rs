//! The phases of a training: the objective's steps, then those of fine-tuning.

use crate::error::{CfoError, Result};
use crate::measure::selection::Selection;
use crate::model::{Method, Model};
use crate::objective::{Draw, MotionKind, NeuralOde};
use crate::trajectories::Trajectories;

/// Steps of a training with one recipe, and their snapshots, before any value is read.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    /// The recipe of these steps.
    pub method: Method,
    /// Number of steps before the first one.
    pub first: u32,
    /// Number of steps after the last one.
    pub end: u32,
    /// The model, without its scaling.
    pub model: Model,
    /// The snapshots of the training trajectories.
    pub selections: Vec<Selection>,
}

impl Phase {
    /// Returns the phases of a training in order, one or two.
    ///
    /// # Errors
    /// If a recipe does not fit the data. Values are not read.
    pub fn all(method: &Method, set: &Trajectories) -> Result<Vec<Self>> {
        let (first, total) = (method.recipe.train.steps, method.recipe.total_steps());
        let mut phases = vec![Self::new(method.clone(), set, [0, first])?];
        if total > first {
            phases.push(Self::new(method.tuning(), set, [first, total])?);
            for Self { model, .. } in &phases {
                if model.motion().kind() != MotionKind::Velocity {
                    let name = model.objective().name();
                    let problem = format!("`{name}` learns no velocity that a solver could integrate");
                    return Err(CfoError::invalid("finetune.steps", problem));
                }
            }
        }
        Ok(phases)
    }

    fn new(method: Method, set: &Trajectories, [first, end]: [u32; 2]) -> Result<Self> {
        let model = Model::unmeasured(&method, set)?;
        model.objective().check(set, &method.recipe)?;
        let selections = Selection::of_set(&method.recipe, set)?;
        if method.recipe.refine.rounds > 0 && !matches!(model.objective().draw(), Draw::PathPoint { .. }) {
            let problem = format!("`{}` learns no velocity along a path", model.objective().name());
            return Err(CfoError::invalid("refine.rounds", problem));
        }
        check_windows(model.objective().draw(), &selections)?;
        if let Some(NeuralOde { through, .. }) = model.neural_ode() {
            let section = if method.tuning { "finetune" } else { "objective" };
            through.check_graph(section, model.graph()?.entries().len())?;
        }
        Ok(Self { method, first, end, model, selections })
    }

    /// Returns whether another phase precedes this one.
    pub fn is_later(&self) -> bool {
        self.first > 0
    }
}

/// Returns an error if a trajectory is shorter than a window.
fn check_windows(draw: Draw, selections: &[Selection]) -> Result<()> {
    let Draw::Window { intervals, .. } = draw else { return Ok(()) };
    let Some(short) = selections.iter().find(|selection| selection.len() <= intervals) else { return Ok(()) };
    Err(CfoError::bad_data(
        format!(
            "trajectory {} has {} snapshots for training, and a window of {intervals} intervals has {}",
            short.trajectory,
            short.len(),
            intervals + 1
        ),
        "shorten the window, remove the trajectory, or keep more snapshots (`data.keep_rate`)",
    ))
}
