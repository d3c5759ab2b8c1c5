//! Layer normalisation of tokens, with an optional scale and shift for each sample.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::Type;

/// `y = (x - mean) * deviation_inverse * (1 + scale) + shift`, with mean and deviation over the last axis.
///
/// Inputs: `x [b, n, d]` and, if `modulated` is true, `shift [b, d]` and `scale [b, d]`. Outputs: `y`, `mean [b, n]`,
/// `deviation_inverse [b, n]`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// Constant added to variances.
    pub epsilon: f64,
    /// Whether there are a shift and a scale.
    pub modulated: bool,
}

/// Batch, tokens and width of `[b, n, d]`.
fn tokens(inputs: &Inputs<'_>) -> Result<[usize; 3]> {
    match *inputs[0].shape.axes() {
        [b, n, d] if d > 0 => Ok([b, n, d]),
        _ => Err(inputs.bad_shape("[batch, tokens, width]")),
    }
}

impl Operation for LayerNorm {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let [b, n, d] = tokens(inputs)?;
        if let Some(wrong) = inputs[1..].iter().find(|input| input.shape.axes() != [b, d]) {
            let needed = format!("shift and scale must have shape [{b}, {d}]");
            return Err(inputs.mismatch(&wrong.shape, needed));
        }
        let statistics = Type::real([b, n]);
        Ok(vec![inputs[0].clone(), statistics.clone(), statistics])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        if at.cotangents[1..].iter().any(Option::is_some) {
            return Err(EngineError::NotDifferentiable("layer_norm statistics"));
        }
        let scale = self.modulated.then(|| at.inputs[2]);
        let inputs: Vec<Node> = [at.inputs[0]]
            .into_iter()
            .chain(scale)
            .chain([at.outputs[1], at.outputs[2], at.cotangent()])
            .collect();
        let backward = LayerNormBackward { modulated: self.modulated };
        // The outputs have the order of the forward operation's inputs.
        Ok(at.graph.push(Op::LayerNormBackward(backward), &inputs)?.into_iter().map(Some).collect())
    }

    fn attributes(&self) -> String {
        format!(" epsilon={} modulated={}", self.epsilon, self.modulated)
    }
}

/// The cotangents of [`LayerNorm`]'s inputs.
///
/// Inputs: `x`, `scale` if modulated, `mean`, `deviation_inverse`, the cotangent of `y`. Outputs: those of `x` and, if
/// modulated, `shift` and `scale`.
#[derive(Clone, Debug)]
pub struct LayerNormBackward {
    /// Whether there are a shift and a scale.
    pub modulated: bool,
}

impl Operation for LayerNormBackward {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let [b, _, d] = tokens(inputs)?;
        let mut outputs = vec![inputs[0].clone()];
        if self.modulated {
            outputs.extend([Type::real([b, d]), Type::real([b, d])]);
        }
        Ok(outputs)
    }

    fn attributes(&self) -> String {
        format!(" modulated={}", self.modulated)
    }
}

impl Graph {
    /// Normalises tokens `[batch, tokens, width]` over their width. With a modulation `(shift, scale)`, both `[batch,
    /// width]`, the result is `normalised * (1 + scale) + shift`.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn layer_norm(&mut self, x: Node, modulation: Option<(Node, Node)>, epsilon: f64) -> Result<Node> {
        let op = LayerNorm { epsilon, modulated: modulation.is_some() };
        let mut inputs = vec![x];
        if let Some((shift, scale)) = modulation {
            inputs.extend([shift, scale]);
        }
        self.push_one(Op::LayerNorm(op), &inputs)
    }
}
