//! Batches of training samples.

use cfo_engine::{Graph, Node, WindowTimes};

use super::{Noise, Point};
use crate::error::Result;
use crate::operator::Context;

/// A batch of training samples, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// Times and PDE parameters.
    pub context: Context,
    /// `[batch, rows, width, channels]`.
    pub state: Node,
    /// The target: a velocity or the next snapshot, shaped like the state; see [`Draw`](super::Draw). For a window, it contains all
    /// snapshots after the first, `[intervals * batch, rows, width, channels]`; [`Batch::snapshot`] returns one. For a whole trajectory
    /// it is `[batch, frames, points, channels]`.
    pub target: Node,
    /// `[batch, 1, 1, channels]`: weight of each error, smaller where the velocity is less certain. `None` unless noise was removed or
    /// `path.trust` is set.
    pub trust: Option<Node>,
    /// The times of a window: `times [intervals + 1, batch]` of the snapshots, and `lengths [intervals, batch]` of the intervals between
    /// them.
    pub window: Option<WindowTimes>,
    /// Random numbers of this step.
    pub noise: Noise,
    /// Weight of these samples' mean in the mean over the whole batch; 1 with one process.
    pub weight: f64,
}

impl Batch {
    /// Appends `mean` multiplied by [`Batch::weight`]. The sum over all ranks is the mean over the whole batch.
    ///
    /// # Errors
    /// If `mean` is not a scalar.
    pub fn weigh(&self, graph: &mut Graph, mean: Node) -> Result<Node> {
        if self.weight == 1.0 { Ok(mean) } else { Ok(graph.scale(mean, self.weight)?) }
    }

    /// Returns the point for a state at a time `[batch]`, with the PDE parameters and random numbers of this batch.
    pub fn at(&self, time: Node, state: Node) -> Point {
        Point { context: Context { time, ..self.context }, state, given: None, noise: self.noise }
    }

    /// Appends a snapshot of a window, counted from 0: `[batch, rows, width, channels]`.
    ///
    /// # Errors
    /// If the window has no such snapshot.
    pub fn snapshot(&self, graph: &mut Graph, number: usize) -> Result<Node> {
        let batch = graph.shape(self.state).axes()[0];
        match number {
            0 => Ok(self.state),
            _ => Ok(graph.slice(self.target, 0, (number - 1) * batch, batch)?),
        }
    }

    /// Appends the mean squared difference of output and target, with the weights in [`Batch::trust`].
    ///
    /// # Errors
    /// If they have different shapes.
    pub fn mean_squared_error(&self, graph: &mut Graph, output: Node, target: Node) -> Result<Node> {
        let [output, target] = match self.trust {
            Some(trust) => [graph.multiply(output, trust)?, graph.multiply(target, trust)?],
            None => [output, target],
        };
        Ok(graph.mean_squared_error(output, target)?)
    }
}
