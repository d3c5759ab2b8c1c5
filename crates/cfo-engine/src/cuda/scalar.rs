//! How each value of a graph is stored on the device.
//!
//! Without bf16 every real number is single. With it, activations are bf16; named tensors, statistics, sums, losses and
//! whatever only the optimiser reads stay single.

use std::collections::HashMap;

use crate::device::Precision;
use crate::graph::{Graph, Node};
use crate::ops::Op;
use crate::shape::Element;

/// The type of a stored element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Scalar {
    Single,
    /// bf16.
    Half,
    /// IEEE's 16 bits: operands of convolutions in programs of tf32.
    Short,
    Double,
    Index,
}

impl Scalar {
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Half | Self::Short => 2,
            Self::Single | Self::Index => 4,
            Self::Double => 8,
        }
    }

    /// Its name in kernels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "float",
            Self::Half => "bf16",
            Self::Short => "fp16",
            Self::Double => "double",
            Self::Index => "u32",
        }
    }
}

/// The number that 16 bits of IEEE's format stand for.
pub(super) fn short(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -size } else { size }
}

/// `scalars[operation][output]` for a fused graph.
pub(crate) fn assign(graph: &Graph, outputs: &[Node], precision: Precision) -> Vec<Vec<Scalar>> {
    let half = precision == Precision::Bf16;
    let uses = Uses::of(graph, outputs);
    let mut scalars: Vec<Vec<Scalar>> = Vec::with_capacity(graph.entries.len());
    for (id, entry) in graph.entries.iter().enumerate() {
        let of = |node: &Node| scalars[node.index()][node.output as usize];
        let any_half = entry.inputs.iter().any(|input| of(input) == Scalar::Half);
        let row = entry
            .outputs
            .iter()
            .enumerate()
            .map(|(output, value)| match value.element {
                Element::Double => Scalar::Double,
                Element::Index => Scalar::Index,
                Element::Real if matches!(entry.op, Op::Compact(_)) && output == 0 => Scalar::Short,
                Element::Real if !half => Scalar::Single,
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
                        && is_half(&entry.op, output, any_half, uses.products(node), uses.exact(node))
                    {
                        true => Scalar::Half,
                        false => Scalar::Single,
                    }
                }
            })
            .collect();
        scalars.push(row);
    }
    scalars
}

/// Whether an output is stored in bf16 in a program of that precision.
fn is_half(op: &Op, output: usize, any_half: bool, products: bool, exact: bool) -> bool {
    match op {
        Op::Tensor(_) | Op::Constant(_) | Op::SamplePath(_) | Op::Random(_) => false,
        Op::MeanSquaredError(_) | Op::GlobalNorm(_) => false,
        Op::Sum(_) => products,
        Op::Reshape(_) => any_half,
        Op::Expression(_) => products || (any_half && !exact),
        Op::MatMul(_) => products || !exact,
        _ => other(op, output, any_half, products),
    }
}

/// The rule for layers, and for what only moves or filters values.
fn other(op: &Op, output: usize, any_half: bool, products: bool) -> bool {
    match op {
        // The library wants one type for all.
        Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) | Op::AttentionBackward(_) => true,
        Op::Attention(_) => output == 0,
        Op::GroupNorm(_) => output == 0,
        // The result, and the sum that it normalises.
        Op::LayerNorm(_) => output == 0 || output == 3,
        Op::GroupNormBackward(op) => output == 0 || products || op.result() == Some(output),
        Op::LayerNormBackward(_) => output == 0 || products,
        _ => any_half || products,
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
            assert!(scalars.iter().flatten().all(|scalar| *scalar != Scalar::Half));
        }
        let scalars = assign(&fused, &outputs, Precision::Bf16);
        for (entry, row) in fused.entries.iter().zip(&scalars) {
            match &entry.op {
                Op::Tensor(_) | Op::MeanSquaredError(_) => assert_ne!(row[0], Scalar::Half),
                Op::Adam(adam) => {
                    for group in entry.inputs[adam.leading()..].chunks(adam.stride()) {
                        for node in group {
                            assert_eq!(scalars[node.index()][node.output as usize], Scalar::Single);
                        }
                    }
                }
                _ => {}
            }
        }
        assert!(scalars.iter().flatten().any(|scalar| *scalar == Scalar::Half));
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
        assert_eq!(scalars[value.index()][value.output as usize], Scalar::Single, "{fused}");
    }
}
