//! How each value of a graph is stored on the device, and where it is rounded.
//!
//! Without bf16 every real number is single. With it, activations are bf16; named tensors, statistics, sums, losses and
//! whatever only the optimiser reads stay single.

use std::collections::HashMap;

use crate::cuda::program::scalar::Scalar;
use crate::device::Precision;
use crate::graph::{Entry, Graph, Node};
use crate::ops::{Expression, Instruction, Op, View};
use crate::shape::Element;

/// `scalars[operation][output]` for a fused graph.
pub(crate) fn assign(graph: &Graph, outputs: &[Node], precision: Precision) -> Vec<Vec<Scalar>> {
    let half = precision == Precision::Bf16;
    let uses = Uses::of(graph, outputs);
    let mut scalars: Vec<Vec<Scalar>> = Vec::with_capacity(graph.entries.len());
    for (id, entry) in graph.entries.iter().enumerate() {
        let of = |node: &Node| scalars[node.index()][node.output as usize];
        let any_bf16 = entry.inputs.iter().any(|input| of(input) == Scalar::Bf16);
        let row = entry
            .outputs
            .iter()
            .enumerate()
            .map(|(output, value)| match value.element {
                Element::Double => Scalar::F64,
                Element::Index => Scalar::Index,
                Element::Real if matches!(entry.op, Op::Compact(_)) && output == 0 => Scalar::F16,
                Element::Real if !half => Scalar::F32,
                Element::Real => {
                    // The value before an activation is stored like the one after it.
                    let output = match &entry.op {
                        Op::MatMul(op) if !op.extras.totals => 0,
                        _ => output,
                    };
                    let node = Node::new(id, output);
                    // A tensor that outlives the run gets all digits, whoever else reads the value.
                    let stored = matches!(entry.op, Op::Expression(_)) && uses.stored(node);
                    match !stored
                        && is_bf16(&entry.op, output, any_bf16, uses.products(node), uses.exact(node))
                    {
                        true => Scalar::Bf16,
                        false => Scalar::F32,
                    }
                }
            })
            .collect();
        scalars.push(row);
    }
    scalars
}

/// Whether an output is stored in bf16 in a program of that precision.
fn is_bf16(op: &Op, output: usize, any_bf16: bool, products: bool, exact: bool) -> bool {
    match op {
        Op::Tensor(_) | Op::Constant(_) | Op::SamplePath(_) | Op::Random(_) => false,
        Op::MeanSquaredError(_) | Op::GlobalNorm(_) => false,
        Op::Sum(_) => products,
        Op::Reshape(_) => any_bf16,
        Op::Expression(_) => products || (any_bf16 && !exact),
        Op::MatMul(_) => products || !exact,
        _ => other(op, output, any_bf16, products),
    }
}

/// The rule for layers, and for what only moves or filters values.
fn other(op: &Op, output: usize, any_bf16: bool, products: bool) -> bool {
    match op {
        // The library wants one type for all.
        Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) | Op::AttentionBackward(_) => true,
        Op::Attention(_) => output == 0,
        Op::GroupNorm(_) => output == 0,
        // The result, and the sum that it normalises.
        Op::LayerNorm(_) => output == 0 || output == 3,
        Op::GroupNormBackward(op) => output == 0 || products || op.result() == Some(output),
        Op::LayerNormBackward(_) => output == 0 || products,
        _ => any_bf16 || products,
    }
}

/// Who reads a value.
struct Uses {
    readers: HashMap<Node, Vec<Reader>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// Takes bf16 operands only.
    Product,
    /// Wants all digits: the optimiser, a loss, the caller.
    Exact,
    /// Wants all digits for a tensor.
    Stored,
    Other,
}

impl Uses {
    fn of(graph: &Graph, outputs: &[Node]) -> Self {
        let mut readers: HashMap<Node, Vec<Reader>> = HashMap::new();
        for entry in graph.entries.iter().rev() {
            for &input in &entry.inputs {
                readers.entry(input).or_default().push(kind(&entry.op));
            }
        }
        for &output in outputs {
            readers.entry(output).or_default().push(Reader::Exact);
        }
        // What reads a reshaped value reads the value.
        for (id, entry) in graph.entries.iter().enumerate().rev() {
            if let Op::Reshape(_) = entry.op {
                let through = readers.get(&Node::new(id, 0)).cloned().unwrap_or_default();
                let own = readers.entry(entry.inputs[0]).or_default();
                if let Some(position) = own.iter().position(|reader| *reader == Reader::Other) {
                    own.swap_remove(position);
                }
                own.extend(through);
            }
        }
        Self { readers }
    }

    fn products(&self, node: Node) -> bool {
        self.readers.get(&node).is_some_and(|readers| readers.contains(&Reader::Product))
    }

    fn exact(&self, node: Node) -> bool {
        let exact = |reader: &Reader| matches!(reader, Reader::Exact | Reader::Stored);
        self.readers.get(&node).is_some_and(|readers| readers.iter().all(exact))
    }

    fn stored(&self, node: Node) -> bool {
        self.readers.get(&node).is_some_and(|readers| readers.contains(&Reader::Stored))
    }
}

fn kind(op: &Op) -> Reader {
    match op {
        // What an expression reads is not what is summed.
        Op::Sum(sum) if sum.of.is_some() => Reader::Other,
        Op::Adam(_) | Op::GlobalNorm(_) | Op::MeanSquaredError(_) | Op::Sum(_) => Reader::Exact,
        Op::Assign(_) => Reader::Stored,
        Op::MatMul(_) | Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) => Reader::Product,
        Op::Attention(_) | Op::AttentionBackward(_) => Reader::Product,
        _ => Reader::Other,
    }
}

/// The value whose memory a value shares.
pub(crate) fn owner(graph: &Graph, mut node: Node) -> Node {
    while let Op::Reshape(_) = graph.entry(node).op {
        node = graph.entry(node).inputs[0];
    }
    node
}

pub(crate) fn is_leaf(op: &Op) -> bool {
    matches!(op, Op::Tensor(_) | Op::Constant(_))
}

/// Whether an operation takes an input in bf16 only, in a program of that precision.
pub(crate) fn takes_bf16(op: &Op, input: usize, output: Scalar) -> bool {
    match op {
        Op::MatMul(_) => input < 2 || output == Scalar::Bf16,
        Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) | Op::Attention(_) => true,
        Op::AttentionBackward(_) => input != 2,
        _ => false,
    }
}

/// The graph with values that are stored in single precision rounded before products read them. Leaves are not
/// touched: they are rounded together when a run starts.
pub(crate) fn with_rounding(graph: Graph, outputs: Vec<Node>) -> (Graph, Vec<Node>) {
    let scalars = assign(&graph, &outputs, Precision::Bf16);
    let mut rounded = Graph::new();
    let mut place: Vec<usize> = Vec::with_capacity(graph.entries.len());
    let mut copies: HashMap<Node, Node> = HashMap::new();
    let effects = graph.effects.clone();
    for (id, entry) in graph.entries.iter().enumerate() {
        let mut inputs = Vec::with_capacity(entry.inputs.len());
        for (index, &input) in entry.inputs.iter().enumerate() {
            let moved = Node::new(place[input.index()], input.output as usize);
            let output = scalars[id].first().copied().unwrap_or(Scalar::F32);
            let plain = is_leaf(&graph.entry(owner(&graph, input)).op);
            let single = scalars[input.index()][input.output as usize] == Scalar::F32;
            if !single || plain || !takes_bf16(&entry.op, index, output) {
                inputs.push(moved);
                continue;
            }
            let copy = *copies.entry(moved).or_insert_with(|| {
                let value = graph.value_type(input).clone();
                let length = value.shape.len();
                let view = View { offset: 0, strides: vec![1] };
                let op = Op::Expression(Expression {
                    shape: [length].into(),
                    views: vec![view],
                    code: vec![Instruction::Load(0)],
                });
                rounded.entries.push(Entry { op, inputs: vec![moved], outputs: vec![value] });
                Node::new(rounded.entries.len() - 1, 0)
            });
            inputs.push(copy);
        }
        place.push(rounded.entries.len());
        if effects.contains(&id) {
            rounded.effects.push(rounded.entries.len());
        }
        rounded.entries.push(Entry { op: entry.op.clone(), inputs, outputs: entry.outputs.clone() });
    }
    let outputs = outputs.iter().map(|node| Node::new(place[node.index()], node.output as usize)).collect();
    (rounded, outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuse::fuse;
    use crate::ops::Activation;
    use crate::{AdamConfig, Initial};

    #[test]
    fn activations_are_half_and_what_the_optimiser_reads_is_single() {
        let mut graph = Graph::new();
        let x = graph.input("x", [4, 8]).unwrap();
        let w = graph.parameter("w", [8, 8], Initial::ONES).unwrap();
        let v = graph.parameter("v", [8, 8], Initial::ONES).unwrap();
        let y = graph.linear(x, w, None, Activation::Silu).unwrap();
        let z = graph.linear(y, v, None, Activation::Identity).unwrap();
        let target = graph.input("target", [4, 8]).unwrap();
        let loss = graph.mean_squared_error(z, target).unwrap();
        let counter = graph.counter("step").unwrap();
        graph.adam(loss, counter, AdamConfig::default()).unwrap();
        let (fused, outputs) = fuse(&graph, &[loss]);
        for precision in [Precision::F32, Precision::Tf32] {
            let scalars = assign(&fused, &outputs, precision);
            assert!(scalars.iter().flatten().all(|scalar| *scalar != Scalar::Bf16));
        }
        let scalars = assign(&fused, &outputs, Precision::Bf16);
        for (entry, row) in fused.entries.iter().zip(&scalars) {
            match &entry.op {
                Op::Tensor(_) | Op::MeanSquaredError(_) => assert_ne!(row[0], Scalar::Bf16),
                Op::Adam(adam) => {
                    for group in entry.inputs[adam.leading()..].chunks(adam.stride()) {
                        for node in group {
                            assert_eq!(scalars[node.index()][node.output as usize], Scalar::F32);
                        }
                    }
                }
                _ => {}
            }
        }
        assert!(scalars.iter().flatten().any(|scalar| *scalar == Scalar::Bf16));
    }

    #[test]
    fn what_is_stored_keeps_its_digits_whoever_else_reads_it() {
        let mut graph = Graph::new();
        let x = graph.input("x", [4, 8]).unwrap();
        let stored = graph.input("stored", [4, 8]).unwrap();
        let w = graph.parameter("w", [8, 8], Initial::ONES).unwrap();
        let slope = graph.linear(x, w, None, Activation::Silu).unwrap();
        let next = graph.add(x, slope).unwrap();
        graph.assign(stored, next).unwrap();
        let square = graph.square(next).unwrap();
        let sum = graph.mean(square, &[1]).unwrap();
        let root = graph.sqrt(sum).unwrap();
        let (fused, outputs) = fuse(&graph, &[root]);
        let scalars = assign(&fused, &outputs, Precision::Bf16);
        let written = fused.entries.iter().find(|entry| matches!(entry.op, Op::Assign(_))).unwrap();
        let value = written.inputs[1];
        assert_eq!(scalars[value.index()][value.output as usize], Scalar::F32, "{fused}");
    }
}
