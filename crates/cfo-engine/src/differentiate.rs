//! Differentiation, graph to graph: from a value back to what it depends on, by each operation's own rule.

use std::collections::HashMap;

use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::ops::Derivative;

impl Graph {
    /// Gradients of a scalar with respect to values; zeros where it does not depend on one.
    ///
    /// # Errors
    /// If `loss` is not a scalar, or an operation on the way has no derivative.
    pub fn gradients(&mut self, loss: Node, with_respect_to: &[Node]) -> Result<Vec<Node>> {
        if self.shape(loss).len() != 1 {
            return Err(EngineError::LossNotScalar { found: self.shape(loss).clone() });
        }
        let one = self.constant(self.shape(loss).clone(), vec![1.0])?;
        let gradients = self.vector_jacobian(&[(loss, one)], with_respect_to)?;
        gradients
            .into_iter()
            .zip(with_respect_to)
            .map(|(gradient, &node)| match gradient {
                Some(gradient) => Ok(gradient),
                None => {
                    let shape = self.shape(node).clone();
                    let zeros = vec![0.0; shape.len()];
                    self.constant(shape, zeros)
                }
            })
            .collect()
    }

    /// The vector-Jacobian product: for values with their cotangents, the cotangents of other values; `None` where
    /// there is no dependence. This is the adjoint of a solver step.
    ///
    /// # Errors
    /// If a cotangent's shape is not its value's, or an operation on the way has no derivative.
    pub fn vector_jacobian(
        &mut self,
        values: &[(Node, Node)],
        with_respect_to: &[Node],
    ) -> Result<Vec<Option<Node>>> {
        let end = self.entries.len();
        let depends = self.dependents(with_respect_to, end);
        let mut arrived: HashMap<Node, Node> = HashMap::new();
        for &(value, cotangent) in values {
            if self.shape(value) != self.shape(cotangent) {
                return Err(EngineError::ShapeMismatch {
                    operation: "vector_jacobian",
                    left: self.shape(value).clone(),
                    right: self.shape(cotangent).clone(),
                    needed: "value and cotangent must have one shape".into(),
                });
            }
            self.arrive(&mut arrived, value, cotangent)?;
        }
        for id in (0..end).rev() {
            if depends[id] {
                self.pull_back(id, &depends, with_respect_to, &mut arrived)?;
            }
        }
        Ok(with_respect_to.iter().map(|node| arrived.get(node).copied()).collect())
    }

    /// Turns the cotangents that arrived at an operation's outputs into cotangents of its inputs.
    fn pull_back(
        &mut self,
        id: usize,
        depends: &[bool],
        targets: &[Node],
        arrived: &mut HashMap<Node, Node>,
    ) -> Result<()> {
        let outputs: Vec<Node> =
            (0..self.entries[id].outputs.len()).map(|output| Node::new(id, output)).collect();
        let cotangents: Vec<Option<Node>> = outputs.iter().map(|node| arrived.get(node).copied()).collect();
        let inputs = self.entries[id].inputs.clone();
        if inputs.is_empty() || cotangents.iter().all(Option::is_none) {
            return Ok(());
        }
        let wanted: Vec<bool> =
            inputs.iter().map(|input| depends[input.index()] || targets.contains(input)).collect();
        if !wanted.contains(&true) {
            return Ok(());
        }
        let op = self.entries[id].op.clone();
        let mut at = Derivative {
            graph: self,
            inputs: &inputs,
            outputs: &outputs,
            cotangents: &cotangents,
            wanted: &wanted,
        };
        let pulled = op.operation().derivative(&mut at)?;
        for ((input, cotangent), wanted) in inputs.into_iter().zip(pulled).zip(wanted) {
            if let (Some(cotangent), true) = (cotangent, wanted) {
                self.arrive(arrived, input, cotangent)?;
            }
        }
        Ok(())
    }

    /// Adds a cotangent to those that already arrived at a value.
    fn arrive(&mut self, arrived: &mut HashMap<Node, Node>, node: Node, cotangent: Node) -> Result<()> {
        let total = match arrived.get(&node) {
            Some(&earlier) => self.add(earlier, cotangent)?,
            None => cotangent,
        };
        arrived.insert(node, total);
        Ok(())
    }

    /// Which of the first `end` operations depend on one of the given values, those values' own operations included.
    fn dependents(&self, sources: &[Node], end: usize) -> Vec<bool> {
        let mut depends = vec![false; end];
        for source in sources {
            depends[source.index()] = true;
        }
        for id in 0..end {
            depends[id] |= self.entries[id].inputs.iter().any(|input| depends[input.index()]);
        }
        depends
    }
}
