//! Sums over all machines that train together.

use cfo_ranks::Shards;

use super::{Derivative, Op, Operation, require};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::{Element, Type};

/// The sums of values over all ranks; every rank gets them. Where there is one rank they are the values themselves, the first in
/// the same memory where nobody else reads that.
#[derive(Clone, Debug, Default)]
pub struct AllReduce {
    /// Where the order of the additions is fixed by shards: those of this rank. The inputs are then the values of one shard
    /// after another; those of a rank without shards count nothing.
    pub shards: Option<Shards>,
}

impl AllReduce {
    /// Groups of inputs, each with as many as there are outputs.
    pub fn groups(&self) -> usize {
        self.shards.map_or(1, |shards| shards.count.max(1))
    }
}

impl Operation for AllReduce {
    fn name(&self) -> &'static str {
        "all_reduce"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>> {
        require("all_reduce", inputs, Element::Real)?;
        let count = inputs.len() / self.groups();
        if let Some(index) = (count..inputs.len()).find(|&index| inputs[index] != inputs[index % count]) {
            return Err(EngineError::ShapeMismatch {
                operation: "all_reduce",
                left: inputs[index % count].shape.clone(),
                right: inputs[index].shape.clone(),
                needed: "shards must have values of the same shapes".into(),
            });
        }
        Ok(inputs[..count].iter().map(|&input| input.clone()).collect())
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        match (self.shards, at.cotangents) {
            (None, [Some(cotangent)]) => Ok(vec![Some(at.graph.all_reduce(*cotangent)?)]),
            _ => Err(EngineError::NotDifferentiable { operation: "all_reduce" }),
        }
    }

    fn attributes(&self) -> String {
        match self.shards {
            None => String::new(),
            Some(Shards { first, count, total }) => format!(" shards={first}..{} of {total}", first + count),
        }
    }
}

impl Graph {
    /// The sum of a value over all machines that run the same program, between a loss's gradients and the optimiser that
    /// takes them. One machine: the value itself.
    ///
    /// # Errors
    /// If the value does not hold real numbers.
    pub fn all_reduce(&mut self, x: Node) -> Result<Node> {
        self.push_one(Op::AllReduce(AllReduce::default()), &[x])
    }

    /// The same for several values in one message, which leaves as soon as all of them are there.
    ///
    /// # Errors
    /// If a value does not hold real numbers.
    pub fn all_reduce_each(&mut self, values: &[Node]) -> Result<Vec<Node>> {
        self.push(Op::AllReduce(AllReduce::default()), values)
    }

    /// The sums over all shards of all machines, added in an order that the shards fix and not the machines: for each shard of
    /// this one its values. The bits do not depend on how shards are divided over machines.
    ///
    /// # Errors
    /// If shards have values of different shapes, or of other numbers than the first.
    pub fn all_reduce_shards(&mut self, shards: Shards, values: &[Vec<Node>]) -> Result<Vec<Node>> {
        let op = AllReduce { shards: Some(shards) };
        let fits = values.len() == op.groups() && values.iter().all(|shard| shard.len() == values[0].len());
        if !fits {
            let problem = format!("{} groups of values were given for {} shards", values.len(), op.groups());
            return Err(EngineError::BadAttribute { operation: "all_reduce", problem });
        }
        self.push(Op::AllReduce(op), &values.concat())
    }
}
