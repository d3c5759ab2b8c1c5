//! Sums over all machines that train together.

use super::{Derivative, Op, Operation, require};
use crate::error::Result;
use crate::graph::{Graph, Node};
use crate::shape::{Element, Type};

/// The sum of a value over all ranks; every rank gets it. Where there is one rank it is the value itself, in the same memory
/// where nobody else reads that.
#[derive(Clone, Debug)]
pub struct AllReduce;

impl Operation for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("all_reduce", inputs, Element::Real)?;
        Ok(vec![inputs[0].clone()])
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        let cotangent = at.cotangent();
        Ok(vec![Some(at.graph.all_reduce(cotangent)?)])
    }
}

impl Graph {
    /// The sum of a value over all machines that run the same program, between a loss's gradients and the optimiser that
    /// takes them. One machine: the value itself.
    ///
    /// # Errors
    /// If the value does not hold real numbers.
    pub fn all_reduce(&mut self, x: Node) -> Result<Node> {
        self.push_one(Op::AllReduce(AllReduce), &[x])
    }
}
