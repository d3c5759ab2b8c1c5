//! The amount of arithmetic in a graph.

use crate::graph::{Entry, Graph};
use crate::ops::{Activation, ConvPass, Op, Pointwise, Unary};

/// Number of multiplications that take as long as an activation with the normalisation before it.
const ACTIVATION: f64 = 20.0;

impl Graph {
    /// Returns the number of multiplications, each with an addition, in the products of all operations; an activation counts as 20. The
    /// time that the graph takes is roughly proportional to it.
    pub fn multiplications(&self) -> f64 {
        self.entries().iter().map(|entry| self.multiplications_of(entry)).sum()
    }

    fn multiplications_of(&self, entry: &Entry) -> f64 {
        let numbers = |input: usize| self.shape(entry.inputs[input]).len() as f64;
        let axis = |input: usize, axis: usize| self.shape(entry.inputs[input]).axes()[axis] as f64;
        let results = entry.outputs.first().map_or(0.0, |output| output.shape.len() as f64);
        let activated = |activation: Activation| match activation {
            Activation::Identity => 0.0,
            _ => ACTIVATION * results,
        };
        match &entry.op {
            Op::MatMul(product) => results * product.inner as f64 + activated(product.activation),
            // Each number of the convolution's result is a sum over one output channel of the weight `[outputs, height, width, inputs]`.
            Op::Conv(conv) => match conv.pass {
                ConvPass::Forward => results * numbers(1) / axis(1, 0),
                ConvPass::Input => numbers(0) * numbers(1) / axis(1, 0),
                ConvPass::Weight => numbers(1) * results / axis(1, 3),
            },
            // Queries with keys, probabilities with values.
            Op::Attention(_) => 2.0 * results * axis(0, 1),
            Op::GroupNorm(norm) => activated(norm.activation),
            Op::Pointwise(Pointwise::Unary(function)) if !matches!(function, Unary::Affine { .. }) => {
                ACTIVATION * results
            }
            _ => 0.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial::Initial;
    use crate::ops::PadMode;

    #[test]
    fn products_and_convolutions_are_counted() {
        let mut graph = Graph::new();
        let x = graph.input("x", [2, 8, 8, 3]).unwrap();
        let kernel = graph.parameter("kernel", [5, 3, 3, 3], Initial::ZEROS).unwrap();
        let y = graph.conv(x, kernel, [2, 2], PadMode::Zero, [1, 1]).unwrap();
        let convolved = 2.0 * 4.0 * 4.0 * 5.0 * 27.0;
        assert_eq!(graph.multiplications(), convolved);
        let weight = graph.parameter("weight", [5, 7], Initial::ZEROS).unwrap();
        graph.linear(y, weight, None, Activation::Silu).unwrap();
        assert_eq!(graph.multiplications(), convolved + 2.0 * 16.0 * 7.0 * (5.0 + ACTIVATION));
    }

    /// The backward pass of a layer makes two products of the size of the forward pass.
    #[test]
    fn gradients_take_two_more_products() {
        let mut graph = Graph::new();
        let x = graph.parameter("x", [2, 8, 8, 3], Initial::ZEROS).unwrap();
        let kernel = graph.parameter("kernel", [5, 3, 3, 3], Initial::ZEROS).unwrap();
        let y = graph.conv(x, kernel, [1, 1], PadMode::Zero, [1, 1]).unwrap();
        let forward = graph.multiplications();
        let loss = graph.sum_all(y).unwrap();
        graph.gradients(loss, &[x, kernel]).unwrap();
        assert_eq!(graph.multiplications(), 3.0 * forward);
    }
}
