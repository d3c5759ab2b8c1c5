//! Solutions of the network from given states, for many gaps at once.

use std::sync::Arc;

use cfo_data::TrajectoryInputs;
use cfo_engine::Memory;
use cfo_numerics::ode::RK4;

use crate::error::Result;
use crate::model::Model;
use crate::predict::evaluate::batch;
use crate::predict::rollout::{Request, Rollout, Watch};
use crate::ranks;
use crate::recipe::Budget;

/// Distance from the range of the training data, in widths of the range, beyond which a solution is not used.
const REACH: f32 = 1.0;
/// Number of solutions that are computed together on the CPU.
const TOGETHER: usize = 32;

/// A solution to compute, in the network's units.
#[derive(Clone, Debug)]
pub(super) struct Task<'a> {
    /// The state at the first time.
    pub state: &'a [f32],
    /// The times, increasing or decreasing; the solution has a state at each but the first.
    pub times: Vec<f64>,
    /// Inputs of the trajectory, in the user's units.
    pub inputs: &'a TrajectoryInputs,
}

/// Solves with weights of its own.
pub(super) struct GapSolver<'a> {
    pub model: Arc<Model>,
    /// The weights, in the precision of rollouts.
    pub memory: Memory,
    pub watch: Watch<'a>,
    pub rollout: Option<Rollout>,
}

impl GapSolver<'_> {
    /// Computes solutions with at most `rows` times in a step; `None` for those that are not finite or far from the data. With several ranks
    /// each computes a part. Tasks with about equally many times should be neighbours.
    pub fn solve(&mut self, tasks: &[Task<'_>], rows: usize) -> Result<Vec<Option<Vec<f32>>>> {
        let own: Vec<usize> = ranks::own_part(&(0..tasks.len()).collect::<Vec<_>>());
        let (model, size) = (Arc::clone(&self.model), self.model.shape().len());
        if self.rollout.is_none() {
            let most = if self.memory.is_asynchronous() { usize::MAX } else { TOGETHER };
            let (count, prefix) = (batch(&model, &self.memory, most), model.weight_prefix());
            self.rollout = Some(Rollout::new(&model, &mut self.memory, count, RK4, prefix)?);
        }
        let rollout = self.rollout.as_mut().expect("it was just compiled");
        let mut request = Request::default();
        for task in own.iter().map(|&task| &tasks[task]) {
            let mut times: Vec<f64> =
                task.times.iter().map(|&time| model.scaling.restore_time(time)).collect();
            request.start.push(times[0]);
            request.states.push(model.decode(task.state));
            request.times.push(times.split_off(1));
            request.inputs.push(task.inputs.clone());
        }
        let reached =
            rollout.predict_each(&mut self.memory, &request, Budget::OutputsPerStep(rows), &self.watch)?;
        let usable = |(states, &task): (Vec<f32>, &usize)| {
            let whole = states.len() == (tasks[task].times.len() - 1) * size;
            (whole && is_near(&model, &states)).then(|| model.encode(&states))
        };
        let found = reached.states.into_iter().zip(&own).map(usable).collect();
        ranks::joined_parts(found)
    }
}

/// Returns whether states, in the user's units, are near the range of the training data.
fn is_near(model: &Model, states: &[f32]) -> bool {
    let bounds = model.scaling.range.iter().map(|&[low, high]| {
        let margin = REACH * (high - low) as f32;
        low as f32 - margin..=high as f32 + margin
    });
    let bounds: Vec<_> = bounds.collect();
    let is_inside = |point: &[f32]| point.iter().zip(&bounds).all(|(value, bound)| bound.contains(value));
    states.chunks(bounds.len().max(1)).all(is_inside)
}
