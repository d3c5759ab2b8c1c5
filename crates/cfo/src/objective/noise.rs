//! Random numbers for objectives, drawn on the device.

use cfo_engine::{Distribution, Graph, Node, Numbering};

use crate::error::Result;

/// The first of the streams that objectives draw from; those below belong to weights and batches.
const FIRST_STREAM: u32 = 0x4000_0000;

/// Where an objective's random numbers come from. They are counter-based: the same for the same seed, sample, step and draw on every device,
/// whoever else is in the batch, and in a run that is resumed.
///
/// In training a sample is one of a step's batch. In a rollout it is a trajectory, known by its first state: what is drawn for it depends
/// on `evaluate.seed`, on that state and on the number of the step.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    seed: u64,
    numbering: Numbering,
    counter: Node,
}

impl Noise {
    /// Of a training step; `counter` counts them, `first` is the number of the batch's first sample.
    pub(crate) fn of_step(seed: u64, counter: Node, first: u32) -> Self {
        Self { seed, numbering: Numbering::Rows { first }, counter }
    }

    /// Of samples that each have a step and a number, `index [batch, 2]`.
    /// The seed of a rollout is part of the numbers.
    pub(crate) fn of_samples(counters: Node) -> Self {
        Self { seed: 0, numbering: Numbering::Given, counter: counters }
    }

    /// Standard normal numbers of a shape whose first axis is the batch. Numbers that are to differ need another `draw`.
    ///
    /// # Errors
    /// If the first axis is not the batch.
    pub fn normal(&self, graph: &mut Graph, shape: &[usize], draw: u32) -> Result<Node> {
        self.numbers(graph, Distribution::Normal, shape, draw)
    }

    /// Numbers uniform in `[0, 1)`.
    ///
    /// # Errors
    /// If the first axis is not the batch.
    pub fn uniform(&self, graph: &mut Graph, shape: &[usize], draw: u32) -> Result<Node> {
        self.numbers(graph, Distribution::Uniform, shape, draw)
    }

    fn numbers(
        &self,
        graph: &mut Graph,
        distribution: Distribution,
        shape: &[usize],
        draw: u32,
    ) -> Result<Node> {
        let key = (self.seed, FIRST_STREAM + draw);
        Ok(graph.random_as(self.numbering, distribution, shape.to_vec(), key, self.counter)?)
    }
}
