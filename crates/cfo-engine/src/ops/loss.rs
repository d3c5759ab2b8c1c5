//! Losses.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

/// Mean of the squared difference of two values over all elements; a scalar.
#[derive(Clone, Debug)]
pub struct MeanSquaredError;

impl Operation for MeanSquaredError {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        if inputs[0].shape != inputs[1].shape {
            return Err(inputs.mismatch(&inputs[1].shape, "both must be equal"));
        }
        Ok(vec![Type::real(Shape::scalar())])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let count = at.graph.shape(at.inputs[0]).len();
        let difference = at.graph.subtract(at.inputs[0], at.inputs[1])?;
        let scaled = at.graph.scale(difference, 2.0 / count as f64)?;
        let first = at.graph.multiply(scaled, at.cotangent())?;
        let second = at.wanted[1].then(|| at.graph.scale(first, -1.0));
        Ok(vec![Some(first), second.transpose()?])
    }
}

impl Graph {
    /// Mean over all elements of `(prediction - target)^2`.
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn mean_squared_error(&mut self, prediction: Node, target: Node) -> Result<Node> {
        self.push_one(Op::MeanSquaredError(MeanSquaredError), &[prediction, target])
    }
}
