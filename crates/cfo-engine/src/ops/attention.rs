//! Multi-head self-attention.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::Type;

/// `softmax(q k^T / sqrt(width of a head)) v` for each sample and head.
///
/// Input: `qkv [b, n, 3 d]`, the concatenation of queries, keys and values, each `heads` times `d / heads` wide.
/// Outputs: the result `[b, n, d]`, and the logarithms of the sums of exponentials `[b, heads, n]`. The backward
/// operation recomputes the probabilities from the latter.
#[derive(Clone, Debug)]
pub struct Attention {
    /// Number of heads.
    pub heads: usize,
}

/// Batch, tokens and width `d` of `[b, n, 3 d]`.
fn sizes(heads: usize, inputs: &Inputs<'_>) -> Result<[usize; 3]> {
    match *inputs[0].shape.axes() {
        [b, n, d] if heads > 0 && d > 0 && n > 0 && d.is_multiple_of(3 * heads) => Ok([b, n, d / 3]),
        _ => Err(inputs.bad_shape(format!("[batch, tokens, 3 * width] with a width in {heads} heads"))),
    }
}

impl Operation for Attention {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let [b, n, d] = sizes(self.heads, inputs)?;
        Ok(vec![Type::real([b, n, d]), Type::real([b, self.heads, n])])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        if at.cotangents[1].is_some() {
            return Err(EngineError::NotDifferentiable("attention log_sum_exp"));
        }
        let inputs = [at.inputs[0], at.outputs[0], at.outputs[1], at.cotangent()];
        let backward = AttentionBackward { heads: self.heads };
        Ok(vec![Some(at.graph.push_one(Op::AttentionBackward(backward), &inputs)?)])
    }

    fn attributes(&self) -> String {
        format!(" heads={}", self.heads)
    }
}

/// The cotangent of [`Attention`]'s input. Inputs: `qkv`, the result, `log_sum_exp`, the result's cotangent.
#[derive(Clone, Debug)]
pub struct AttentionBackward {
    /// Number of heads.
    pub heads: usize,
}

impl Operation for AttentionBackward {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        Ok(vec![inputs[0].clone()])
    }

    fn attributes(&self) -> String {
        format!(" heads={}", self.heads)
    }
}

impl Graph {
    /// Self-attention, from queries, keys and values `[batch, tokens, 3 * width]` to `[batch, tokens, width]`.
    ///
    /// # Errors
    /// If the heads do not divide the width.
    pub fn attention(&mut self, qkv: Node, heads: usize) -> Result<Node> {
        self.push_one(Op::Attention(Attention { heads }), &[qkv])
    }
}
