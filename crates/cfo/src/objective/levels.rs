//! Noise levels: one random level per sample, and the numbers that belong to it.

use cfo_engine::{Graph, Node};

use super::Noise;
use crate::error::Result;

/// The random level of each sample of a batch, with equal probabilities: `[batch, levels]`, 1 at the level and 0 elsewhere.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    chosen: Node,
    shape: [usize; 2],
}

impl Levels {
    pub(super) fn draw(
        graph: &mut Graph,
        noise: &Noise,
        (batch, levels): (usize, usize),
        draw: u32,
    ) -> Result<Self> {
        let number = noise.uniform(graph, &[batch, 1], draw)?;
        let bound = |first: usize| -> Vec<f64> {
            (first..first + levels).map(|level| level as f64 / levels as f64).collect()
        };
        let f = graph.formula();
        let [lower, upper] = [0, 1].map(|first| f.constant([1, levels], bound(first)));
        let chosen = f.var(number).at_least(lower) - f.var(number).at_least(upper);
        Ok(Self { chosen: chosen.node()?, shape: [batch, levels] })
    }

    /// Appends the number that belongs to each sample's level: `[batch, 1, 1, 1]`.
    pub(super) fn pick(self, graph: &mut Graph, values: &[f64]) -> Result<Node> {
        let [batch, levels] = self.shape;
        let values = graph.formula().constant([1, levels], values.to_vec());
        Ok((self.chosen * values).sum(&[1]).reshape([batch, 1, 1, 1]).node()?)
    }
}
