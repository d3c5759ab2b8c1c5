//! A program as CUDA instructions, which the passes rewrite.

use std::fmt;

use super::Instruction;
use cfo_engine::{Graph, Node, Shape, Type, backend};

pub(crate) type CodeEntry = backend::Entry<Instruction>;

/// Instructions in an order in which they can run. Values are identified as in a graph: by instruction and output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub(crate) entries: Vec<CodeEntry>,
    /// Instructions that change tensors at the end of a run.
    pub(crate) effects: Vec<usize>,
    pub(crate) requested: Vec<Node>,
}

impl Code {
    /// The instructions of a fused graph, one for each operation.
    pub(crate) fn new(graph: &Graph, requested: Vec<Node>) -> Self {
        let entry = |entry: &backend::Entry| CodeEntry {
            op: entry.op.clone().into(),
            inputs: entry.inputs.clone(),
            outputs: entry.outputs.clone(),
        };
        Self {
            entries: graph.entries().iter().map(entry).collect(),
            effects: graph.effects().to_vec(),
            requested,
        }
    }

    pub(crate) fn entry(&self, node: Node) -> &CodeEntry {
        &self.entries[node.index()]
    }

    pub(crate) fn value_type(&self, node: Node) -> &Type {
        &self.entry(node).outputs[node.output()]
    }

    pub(crate) fn shape(&self, node: Node) -> &Shape {
        &self.value_type(node).shape
    }

    /// The value that owns a value's memory: the original of a reshaped value, otherwise the value itself.
    pub(crate) fn owner(&self, node: Node) -> Node {
        let reshaped = |node: Node| matches!(self.entry(node).op, Instruction::Reshape(_));
        node.owner(|node| reshaped(node).then(|| self.entry(node).inputs[0]))
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        backend::list(f, &self.entries, &self.effects)
    }
}
