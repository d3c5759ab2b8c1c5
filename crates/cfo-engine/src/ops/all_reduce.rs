//! Sums over all ranks.

use cfo_ranks::Shards;

use super::{Derivative, Inputs, Op, Operation};
use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::shape::Type;

/// The sums of values over all ranks, on every rank. With one rank the first may reuse its input's memory.
#[derive(Clone, Debug, Default)]
pub struct AllReduce {
    /// The shards of this rank, if shards fix the order of additions. The inputs are then the values of one shard after
    /// another; those of a rank without shards are ignored.
    pub shards: Option<Shards>,
}

impl AllReduce {
    /// Groups of inputs, each with as many inputs as there are outputs.
    pub fn groups(&self) -> usize {
        self.shards.map_or(1, |shards| shards.count.max(1))
    }
}

impl Operation for AllReduce {
    fn infer(&self, inputs: &Inputs<'_>) -> Result<Vec<Type>> {
        inputs.reals()?;
        let count = inputs.len() / self.groups();
        if let Some(index) = (count..inputs.len()).find(|&index| inputs[index] != inputs[index % count]) {
            let (left, right) = (&inputs[index % count].shape, &inputs[index].shape);
            let needed = "shards must have values of the same shapes";
            return Err(EngineError::shape_mismatch(inputs.operation, left, right, needed));
        }
        Ok(inputs[..count].iter().map(|&input| input.clone()).collect())
    }

    fn derivative(&self, at: &mut Derivative<'_>) -> Result<Vec<Option<Node>>> {
        match (self.shards, at.cotangents) {
            (None, [Some(cotangent)]) => Ok(vec![Some(at.graph.all_reduce(*cotangent)?)]),
            _ => Err(EngineError::NotDifferentiable("all_reduce")),
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
    /// Appends the sum of a value over all ranks that run the same program; with one rank, the value itself.
    ///
    /// # Errors
    /// If the value does not hold real numbers.
    pub fn all_reduce(&mut self, x: Node) -> Result<Node> {
        self.push_one(Op::AllReduce(AllReduce::default()), &[x])
    }

    /// Appends the sums of several values in one message, which is sent as soon as all of them are computed.
    ///
    /// # Errors
    /// If a value does not hold real numbers.
    pub fn all_reduce_each(&mut self, values: &[Node]) -> Result<Vec<Node>> {
        self.push(Op::AllReduce(AllReduce::default()), values)
    }

    /// Appends the sums over all shards of all ranks. `values` has the values of each shard of this rank.
    ///
    /// The shards fix the order of additions, so the bits do not depend on how shards are divided over ranks.
    ///
    /// # Errors
    /// If shards have values of different shapes, or of other numbers than the first.
    pub fn all_reduce_shards(&mut self, shards: Shards, values: &[Vec<Node>]) -> Result<Vec<Node>> {
        let op = AllReduce { shards: Some(shards) };
        let fits = values.len() == op.groups() && values.iter().all(|shard| shard.len() == values[0].len());
        if !fits {
            let problem = format!("{} groups of values were given for {} shards", values.len(), op.groups());
            return Err(EngineError::bad_attribute("all_reduce", problem));
        }
        self.push(Op::AllReduce(op), &values.concat())
    }
}
