//! Reverse-mode differentiation, graph to graph: every operation has its own rule.

use std::collections::{BTreeMap, HashMap};

use crate::error::{EngineError, Result};
use crate::graph::{Graph, Node};
use crate::ops::{Derivative, Op};

impl Graph {
    /// Appends the gradients of a scalar with respect to values; zeros for those on which it does not depend.
    ///
    /// # Errors
    /// If `loss` is not a scalar, or an operation on the way has no derivative.
    pub fn gradients(&mut self, loss: Node, with_respect_to: &[Node]) -> Result<Vec<Node>> {
        if self.shape(loss).len() != 1 {
            return Err(EngineError::LossNotScalar(self.shape(loss).clone()));
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

    /// Appends the vector-Jacobian product: given cotangents of some values, the cotangents of other values. `None`
    /// where there is no dependence. This is the adjoint of a solver step.
    ///
    /// # Errors
    /// If a cotangent's shape is not its value's, or an operation on the way has no derivative.
    pub fn vector_jacobian(
        &mut self,
        values: &[(Node, Node)],
        with_respect_to: &[Node],
    ) -> Result<Vec<Option<Node>>> {
        self.vector_jacobian_since(0, values, with_respect_to)
    }

    /// Appends the vector-Jacobian product through the operations from `first` on; earlier ones are constants.
    ///
    /// `first` is `entries().len()` before the operations were appended. A part of a graph can be appended again on a
    /// stored value, and so recomputed instead of kept. Long chains of steps are differentiated in this way with little
    /// memory.
    ///
    /// # Errors
    /// If a cotangent's shape is not its value's, or an operation on the way has no derivative.
    pub fn vector_jacobian_since(
        &mut self,
        first: usize,
        values: &[(Node, Node)],
        with_respect_to: &[Node],
    ) -> Result<Vec<Option<Node>>> {
        let end = self.entries.len();
        let depends = self.dependents(with_respect_to, end);
        let mut arrived: HashMap<Node, Vec<Node>> = HashMap::new();
        for &(value, cotangent) in values {
            if self.shape(value) != self.shape(cotangent) {
                let (left, right) = (self.shape(value), self.shape(cotangent));
                let needed = "value and cotangent must have one shape";
                return Err(EngineError::shape_mismatch("vector_jacobian", left, right, needed));
            }
            arrived.entry(value).or_default().push(cotangent);
        }
        for id in (first..end).rev() {
            if depends[id] {
                self.pull_back(id, &depends, with_respect_to, &mut arrived)?;
            }
        }
        with_respect_to.iter().map(|&node| self.total(&mut arrived, node)).collect()
    }

    /// Appends the cotangents of an operation's inputs, given those of its outputs.
    fn pull_back(
        &mut self,
        id: usize,
        depends: &[bool],
        targets: &[Node],
        arrived: &mut HashMap<Node, Vec<Node>>,
    ) -> Result<()> {
        let outputs: Vec<Node> =
            (0..self.entries[id].outputs.len()).map(|output| Node::new(id, output)).collect();
        let inputs = self.entries[id].inputs.clone();
        if inputs.is_empty() || !outputs.iter().any(|node| arrived.contains_key(node)) {
            return Ok(());
        }
        let cotangents =
            outputs.iter().map(|&node| self.total(arrived, node)).collect::<Result<Vec<Option<Node>>>>()?;
        let wanted: Vec<bool> =
            inputs.iter().map(|input| depends[input.index()] || targets.contains(input)).collect();
        if !wanted.contains(&true) {
            return Ok(());
        }
        let op = self.entries[id].op.clone();
        let mut at = Derivative {
            operation: op.name(),
            graph: self,
            inputs: &inputs,
            outputs: &outputs,
            cotangents: &cotangents,
            wanted: &wanted,
        };
        let pulled = op.operation().derivative(&mut at)?;
        for ((input, cotangent), wanted) in inputs.into_iter().zip(pulled).zip(wanted) {
            if let (Some(cotangent), true) = (cotangent, wanted) {
                arrived.entry(input).or_default().push(cotangent);
            }
        }
        Ok(())
    }

    /// Appends the sum of a value's cotangents and replaces them by it.
    fn total(&mut self, arrived: &mut HashMap<Node, Vec<Node>>, node: Node) -> Result<Option<Node>> {
        let Some(parts) = arrived.get(&node).cloned() else {
            return Ok(None);
        };
        let total = match self.tile(&parts)? {
            Some(whole) => whole,
            None => self.sum_of(&parts)?,
        };
        arrived.insert(node, vec![total]);
        Ok(Some(total))
    }

    fn sum_of(&mut self, parts: &[Node]) -> Result<Node> {
        let mut total = parts[0];
        for &part in &parts[1..] {
            total = self.add(total, part)?;
        }
        Ok(total)
    }

    /// Concatenates cotangents of slices that tile an axis, instead of adding padded ones. `None` for others.
    fn tile(&mut self, parts: &[Node]) -> Result<Option<Node>> {
        let mut pieces: BTreeMap<(usize, usize), Vec<Node>> = BTreeMap::new();
        let mut along = None;
        for &part in parts {
            let entry = self.entry(part);
            let Op::Embed(embed) = &entry.op else { return Ok(None) };
            if *along.get_or_insert((embed.axis, embed.whole)) != (embed.axis, embed.whole) {
                return Ok(None);
            }
            let length = self.shape(entry.inputs[0]).axes()[embed.axis];
            pieces.entry((embed.start, length)).or_default().push(entry.inputs[0]);
        }
        let Some((axis, whole)) = along.filter(|_| pieces.len() > 1) else { return Ok(None) };
        let ends = pieces.keys().map(|(start, length)| start + length);
        let starts = pieces.keys().map(|(start, _)| *start).chain([whole]);
        if !std::iter::once(0).chain(ends).eq(starts) {
            return Ok(None);
        }
        let sums = pieces.values().map(|piece| self.sum_of(piece)).collect::<Result<Vec<Node>>>()?;
        self.concat(&sums, axis).map(Some)
    }

    /// For each of the first `end` operations, whether it depends on one of the given values (or produces one).
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
