//! Sums and means over axes.

use super::{Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Shape, Type};

/// The sum over some axes, which are removed.
#[derive(Clone, Debug)]
pub struct Sum {
    /// Axes, strictly increasing.
    pub axes: Vec<usize>,
}

impl Operation for Sum {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let shape = &inputs[0].shape;
        let ordered = self.axes.windows(2).all(|pair| pair[0] < pair[1]);
        if !ordered || self.axes.last().is_some_and(|&axis| axis >= shape.rank()) {
            return Err(inputs.bad_shape(format!("axes {:?} must be increasing and exist", self.axes)));
        }
        let kept = (0..shape.rank()).filter(|axis| !self.axes.contains(axis)).map(|axis| shape.axes()[axis]);
        Ok(vec![Type::real(kept.collect::<Vec<_>>())])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let shape = at.graph.shape(at.inputs[0]).clone();
        let kept: Vec<usize> = shape
            .axes()
            .iter()
            .enumerate()
            .map(|(i, &n)| if self.axes.contains(&i) { 1 } else { n })
            .collect();
        let cotangent = at.graph.reshape(at.cotangent(), kept)?;
        Ok(vec![Some(at.graph.broadcast(cotangent, shape)?)])
    }

    fn attributes(&self) -> String {
        format!(" axes={:?}", self.axes)
    }
}

impl Graph {
    /// Sum over the given axes, which are removed from the shape.
    ///
    /// # Errors
    /// If an axis does not exist or the axes are not increasing.
    pub fn sum(&mut self, x: Node, axes: &[usize]) -> Result<Node> {
        if axes.is_empty() {
            return Ok(x);
        }
        self.push_one(Op::Sum(Sum { axes: axes.to_vec() }), &[x])
    }

    /// Sum of all elements, a scalar.
    ///
    /// # Errors
    /// If `x` does not hold real numbers.
    pub fn sum_all(&mut self, x: Node) -> Result<Node> {
        let axes: Vec<usize> = (0..self.shape(x).rank()).collect();
        self.sum(x, &axes)
    }

    /// Mean over the given axes, which are removed from the shape.
    ///
    /// # Errors
    /// If an axis does not exist or the axes are not increasing.
    pub fn mean(&mut self, x: Node, axes: &[usize]) -> Result<Node> {
        let sum = self.sum(x, axes)?;
        let count: usize = axes.iter().map(|&axis| self.shape(x).axes()[axis]).product();
        self.scale(sum, 1.0 / count as f64)
    }

    /// Mean of all elements, a scalar.
    ///
    /// # Errors
    /// If `x` does not hold real numbers.
    pub fn mean_all(&mut self, x: Node) -> Result<Node> {
        let axes: Vec<usize> = (0..self.shape(x).rank()).collect();
        self.mean(x, &axes)
    }

    /// Sums a value over the axes along which a value of shape `target` was broadcast.
    ///
    /// # Errors
    /// If `target` does not broadcast to the value's shape.
    pub fn sum_to(&mut self, x: Node, target: &Shape) -> Result<Node> {
        let shape = self.shape(x).clone();
        if shape == *target {
            return Ok(x);
        }
        if target.broadcast(&shape).as_ref() != Some(&shape) {
            let needed = "the second must broadcast to the first";
            return Err(EngineError::shape_mismatch("sum_to", &shape, target, needed));
        }
        let extra = shape.rank() - target.rank();
        let axes: Vec<usize> = (0..shape.rank())
            .filter(|&axis| axis < extra || (target.axes()[axis - extra] == 1 && shape.axes()[axis] != 1))
            .collect();
        let sum = self.sum(x, &axes)?;
        self.reshape(sum, target.clone())
    }
}
