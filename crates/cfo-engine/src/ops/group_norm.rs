//! Group normalisation fused with the convolution's bias before it, and an activation and a time term after it.

use super::{Activation, Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

/// Constant that [`Graph::group_norm`] adds to variances.
const EPSILON: f64 = 1e-5;

/// `y = activation(((x + offset) - mean) * deviation_inverse * scale + bias) + shift`. Mean and deviation of `x +
/// offset` are computed per sample and group over height, width and the group's channels.
///
/// Inputs: `x [b, h, w, c]`, `scale [c]`, `bias [c]`, `offset [c]` if `offset` is true, `shift [b, c]` if `shift` is
/// true. Outputs: `y`, `mean [b, groups]`, `deviation_inverse [b, groups]`.
#[derive(Clone, Debug)]
pub struct GroupNorm {
    /// Number of groups of neighbouring channels.
    pub groups: usize,
    /// Constant added to variances.
    pub epsilon: f64,
    /// Function applied to the normalised, scaled value.
    pub activation: Activation,
    /// Whether there is an offset.
    pub offset: bool,
    /// Whether there is a shift.
    pub shift: bool,
}

impl GroupNorm {
    /// Checks that the groups divide the field's channels; returns its batch and channels.
    fn check(&self, inputs: &Inputs<'_>) -> Result<(usize, usize)> {
        let needed = || format!("[batch, height, width, channels] with channels in {} groups", self.groups);
        match *inputs[0].shape.axes() {
            [b, h, w, c] if self.groups > 0 && c > 0 && c % self.groups == 0 && h * w > 0 => Ok((b, c)),
            _ => Err(inputs.bad_shape(needed())),
        }
    }
}

impl Operation for GroupNorm {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let (b, c) = self.check(inputs)?;
        let channels = 2 + usize::from(self.offset);
        for (i, input) in inputs[1..].iter().enumerate() {
            let needed = if i < channels { Shape::from([c]) } else { Shape::from([b, c]) };
            if input.shape != needed {
                let needed = format!("operand {} must have shape {needed}", i + 1);
                return Err(inputs.mismatch(&input.shape, needed));
            }
        }
        let statistics = Type::real([b, self.groups]);
        Ok(vec![inputs[0].clone(), statistics.clone(), statistics])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        if at.cotangents[1..].iter().any(Option::is_some) {
            return Err(EngineError::NotDifferentiable("group_norm statistics"));
        }
        let mut inputs = vec![at.inputs[0], at.inputs[1], at.inputs[2], at.outputs[1], at.outputs[2]];
        if self.offset {
            inputs.push(at.inputs[3]);
        }
        inputs.push(at.cotangent());
        let backward = GroupNormBackward { forward: self.clone() };
        // The outputs have the order of the forward operation's inputs.
        Ok(at.graph.push(Op::GroupNormBackward(backward), &inputs)?.into_iter().map(Some).collect())
    }

    fn attributes(&self) -> String {
        let Self { groups, activation, offset, shift, .. } = self;
        format!(" groups={groups} {activation:?} offset={offset} shift={shift}")
    }
}

/// The cotangents of [`GroupNorm`]'s inputs.
///
/// Inputs: `x`, `scale`, `bias`, `mean`, `deviation_inverse`, `offset` if there is one, the cotangent of `y`.
/// Outputs: those of `x`, `scale`, `bias`, `offset` if there is one, `shift` if there is one.
#[derive(Clone, Debug)]
pub struct GroupNormBackward {
    /// The forward operation.
    pub forward: GroupNorm,
}

impl Operation for GroupNormBackward {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let (b, c) = self.forward.check(inputs)?;
        let mut outputs = vec![inputs[0].clone(), Type::real([c]), Type::real([c])];
        if self.forward.offset {
            outputs.push(Type::real([c]));
        }
        if self.forward.shift {
            outputs.push(Type::real([b, c]));
        }
        Ok(outputs)
    }

    fn attributes(&self) -> String {
        self.forward.attributes()
    }
}

/// Inputs of [`Graph::group_norm`] besides the field.
#[derive(Clone, Copy, Debug)]
pub struct GroupNormInputs {
    /// Factor of each channel, `[channels]`.
    pub scale: Node,
    /// Term of each channel, `[channels]`.
    pub bias: Node,
    /// Added to each channel before it is normalised, `[channels]`: the bias of the convolution before.
    pub offset: Option<Node>,
    /// Added after the activation, `[batch, channels]`: the time term.
    pub shift: Option<Node>,
}

impl Graph {
    /// `activation(normalise(x + offset) * scale + bias) + shift`: fields `[batch, height, width, channels]` are
    /// normalised per sample and group of neighbouring channels. Forward and backward each take one pass over memory.
    ///
    /// # Errors
    /// If the shapes do not fit or the groups do not divide the channels.
    pub fn group_norm(
        &mut self,
        x: Node,
        inputs: GroupNormInputs,
        groups: usize,
        activation: Activation,
    ) -> Result<Node> {
        let GroupNormInputs { scale, bias, offset, shift } = inputs;
        let op = GroupNorm {
            groups,
            epsilon: EPSILON,
            activation,
            offset: offset.is_some(),
            shift: shift.is_some(),
        };
        let nodes: Vec<Node> = [x, scale, bias].into_iter().chain(offset).chain(shift).collect();
        self.push_one(Op::GroupNorm(op), &nodes)
    }
}
