//! What a training step draws for an objective.

use cfo_engine::{Graph, Node, WindowTimes};

use super::{Noise, Point};
use crate::error::Result;

/// A drawn batch, in normalised units.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    /// `[batch]`: times, 0 at the first that training sees.
    pub time: Node,
    /// `[batch, height, width, channels]`.
    pub state: Node,
    /// Shaped like the state: a velocity or the next snapshot, as [`Draw`](super::Draw) says. Of a window all snapshots after the first,
    /// `[intervals * batch, height, width, channels]`; [`Batch::snapshot`] yields one. Of a whole
    /// trajectory `[batch, frames, points, channels]`.
    pub target: Node,
    /// `[batch, conditions]`, if the network is conditioned on PDE parameters.
    pub conditions: Option<Node>,
    /// `[batch, 1, 1, channels]`: what an error counts where noise was taken off the snapshots or paths are wrong between them, the less is known
    /// of the velocity, the less.
    pub trust: Option<Node>,
    /// The times of a window: `times [intervals + 1, batch]` of the snapshots and `lengths [intervals, batch]` between them.
    pub window: Option<WindowTimes>,
    /// Random numbers of this step.
    pub noise: Noise,
    /// What the mean over these samples counts in the mean over the batch: 1 where one process draws all of it.
    pub weight: f64,
}

impl Batch {
    /// Appends what a mean over these samples counts in the mean over the whole batch, of which other ranks draw the rest.
    ///
    /// # Errors
    /// If it is not a number.
    pub fn weigh(&self, graph: &mut Graph, mean: Node) -> Result<Node> {
        if self.weight == 1.0 { Ok(mean) } else { Ok(graph.scale(mean, self.weight)?) }
    }

    /// Where a state is to be moved during training: at a time `[batch]`, with this batch's conditions and random numbers.
    pub fn at(&self, time: Node, state: Node) -> Point {
        Point { time, state, conditions: self.conditions, given: None, noise: self.noise }
    }

    /// Appends a snapshot of a window, counted from 0: `[batch, height, width, channels]`.
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

    /// Appends the mean squared difference of output and target, each error weighted by what it counts.
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
