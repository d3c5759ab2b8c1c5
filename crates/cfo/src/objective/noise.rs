//! Random numbers for objectives, drawn on the device.

use cfo_engine::{Distribution, Graph, Node, Numbering};

use crate::error::Result;

/// The first random stream of objectives; weights and batches use lower streams.
const FIRST_STREAM: u32 = 0x4000_0000;

/// A source of random numbers for objectives. The numbers are counter-based: they depend only on seed, sample, step and draw. They are
/// equal on all devices, in all batches and in resumed runs.
///
/// In training, a sample is a position in a step's batch. In a rollout it is a trajectory, identified by its first state. Its numbers
/// depend on `evaluate.seed`, on that state and on the number of the step.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    seed: u64,
    numbering: Numbering,
    counter: Node,
}

impl Noise {
    /// Creates the source of a training step. `counter` counts the steps, `first` is the number of the batch's first sample.
    pub(crate) fn of_step(seed: u64, counter: Node, first: u32) -> Self {
        Self { seed, numbering: Numbering::Rows { first }, counter }
    }

    /// Creates the source of samples with a step and a number each, `counters [batch, 2]`. The numbers contain the seed of the rollout.
    pub(crate) fn of_samples(counters: Node) -> Self {
        Self { seed: 0, numbering: Numbering::Given, counter: counters }
    }

    /// Appends standard normal numbers. The first axis of `shape` is the batch. Each `draw` gives other numbers.
    ///
    /// # Errors
    /// If the first axis is not the batch.
    pub fn normal(&self, graph: &mut Graph, shape: &[usize], draw: u32) -> Result<Node> {
        self.numbers(graph, Distribution::Normal, shape, draw)
    }

    /// Appends numbers uniform in `[0, 1)`. The first axis of `shape` is the batch. Each `draw` gives other numbers.
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
