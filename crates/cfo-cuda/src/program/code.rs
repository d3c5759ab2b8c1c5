//! A program as CUDA instructions, which the passes rewrite.

use std::fmt;

use super::instruction::Instruction;
use cfo_engine::{Graph, Node};
use cfo_engine::{Shape, Type};

/// An instruction with its inputs and outputs.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) op: Instruction,
    pub(crate) inputs: Vec<Node>,
    pub(crate) outputs: Vec<Type>,
}

/// Instructions in an order in which they can run. Values are identified as in a graph: by instruction and output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Code {
    pub(crate) entries: Vec<Entry>,
    /// Instructions that change tensors at the end of a run.
    pub(crate) effects: Vec<usize>,
    /// The values that the caller requested.
    pub(crate) requested: Vec<Node>,
}

impl Code {
    /// The instructions of a fused graph, one for each operation.
    pub(crate) fn new(graph: &Graph, requested: Vec<Node>) -> Self {
        let entry = |entry: &cfo_engine::backend::Entry| Entry {
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

    pub(crate) fn entry(&self, node: Node) -> &Entry {
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
        for (id, entry) in self.entries.iter().enumerate() {
            let effect = if self.effects.contains(&id) { "effect " } else { "" };
            write!(f, "%{id} = {effect}{}", entry.op)?;
            for (i, input) in entry.inputs.iter().enumerate() {
                write!(f, "{}%{}", if i == 0 { " " } else { ", " }, input.index())?;
                if input.output() > 0 {
                    write!(f, ".{}", input.output())?;
                }
            }
            for (i, output) in entry.outputs.iter().enumerate() {
                write!(f, "{}{output}", if i == 0 { " : " } else { ", " })?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
