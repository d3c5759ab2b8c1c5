//! Storage types of a program's values, and where they are rounded.
//!
//! Without bf16 every real number is single precision. With it, activations are bf16. Named tensors, statistics, sums,
//! losses and values that only the optimiser reads stay in single precision.

use std::collections::HashMap;

use crate::passes::rewrite::Rewrite;
use crate::program::{Code, CodeEntry, Instruction, Scalar};
use cfo_engine::ops::{Expression, Line, View};
use cfo_engine::{Element, Node, Precision, Type};

/// `scalars[operation][output]` for code.
pub(crate) fn assign(code: &Code, precision: Precision) -> Vec<Vec<Scalar>> {
    let half = precision == Precision::Bf16;
    let uses = Uses::of(code);
    let mut scalars: Vec<Vec<Scalar>> = Vec::with_capacity(code.entries.len());
    for (id, entry) in code.entries.iter().enumerate() {
        let of = |node: &Node| scalars[node.index()][node.output()];
        let any_bf16 = entry.inputs.iter().any(|input| of(input) == Scalar::Bf16);
        // A state that a solver advances by increments that may be below the resolution of bf16.
        let advances = |value: &Type| {
            let single = |input: &&Node| of(input) == Scalar::F32;
            let long = |input: &Node| code.value_type(*input).shape.len() == value.shape.len();
            entry.inputs.iter().filter(single).any(long)
        };
        let row = entry
            .outputs
            .iter()
            .enumerate()
            .map(|(output, value)| match value.element {
                Element::Double => Scalar::F64,
                Element::Index => Scalar::Index,
                Element::Real if matches!(entry.op, Instruction::ScaleF16(_)) && output == 0 => Scalar::F16,
                Element::Real if !half => Scalar::F32,
                Element::Real => {
                    // The value before an activation has the type of the value after it.
                    let output = match &entry.op {
                        Instruction::MatMul(op) if !op.extras.totals => 0,
                        _ => output,
                    };
                    let node = Node::new(id, output);
                    // A tensor that is kept after the run is stored in full precision, regardless of other readers.
                    let kept = || uses.stored(node) || (advances(value) && !uses.only_products(node));
                    match !(matches!(entry.op, Instruction::Expression(_)) && kept())
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

/// Whether an output is stored in bf16 in a program of the given precision.
fn is_bf16(op: &Instruction, output: usize, any_bf16: bool, products: bool, exact: bool) -> bool {
    match op {
        Instruction::Tensor(_)
        | Instruction::Constant(_)
        | Instruction::SamplePath(_)
        | Instruction::Random(_) => false,
        // Sums over ranks use full precision.
        Instruction::MeanSquaredError(_) | Instruction::GlobalNorm(_) | Instruction::AllReduce(_) => false,
        Instruction::Sum(_) => products,
        Instruction::Reshape(_) => any_bf16,
        Instruction::Expression(_) => products || (any_bf16 && !exact),
        Instruction::MatMul(_) => products || !exact,
        _ => other(op, output, any_bf16, products),
    }
}

/// The rule for layers, and for instructions that only move or filter values.
fn other(op: &Instruction, output: usize, any_bf16: bool, products: bool) -> bool {
    match op {
        // The library requires one type for all.
        Instruction::Conv(_) | Instruction::AttentionBackward(_) => true,
        Instruction::Attention(_) => output == 0,
        Instruction::GroupNorm(_) => output == 0,
        // The result, and the sum that it normalises.
        Instruction::LayerNorm(_) => output == 0 || output == 3,
        Instruction::GroupNormBackward(op) => output == 0 || products || op.result() == Some(output),
        Instruction::LayerNormBackward(_) => output == 0 || products,
        _ => any_bf16 || products,
    }
}

struct Uses {
    readers: HashMap<Node, Vec<Reader>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// Reads bf16 operands only.
    Product,
    /// Needs full precision: the optimiser, a loss, the caller.
    Exact,
    /// Needs full precision for a tensor.
    Stored,
    Other,
}

impl Uses {
    fn of(code: &Code) -> Self {
        let mut readers: HashMap<Node, Vec<Reader>> = HashMap::new();
        for entry in code.entries.iter().rev() {
            for &input in &entry.inputs {
                readers.entry(input).or_default().push(kind(&entry.op));
            }
        }
        for &output in &code.requested {
            readers.entry(output).or_default().push(Reader::Exact);
        }
        // Readers of a reshaped value read the value.
        for (id, entry) in code.entries.iter().enumerate().rev() {
            if let Instruction::Reshape(_) = entry.op {
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

    fn only_products(&self, node: Node) -> bool {
        let product = |reader: &Reader| *reader == Reader::Product;
        self.readers.get(&node).is_some_and(|readers| readers.iter().all(product))
    }

    fn exact(&self, node: Node) -> bool {
        let exact = |reader: &Reader| matches!(reader, Reader::Exact | Reader::Stored);
        self.readers.get(&node).is_some_and(|readers| readers.iter().all(exact))
    }

    fn stored(&self, node: Node) -> bool {
        self.readers.get(&node).is_some_and(|readers| readers.contains(&Reader::Stored))
    }
}

fn kind(op: &Instruction) -> Reader {
    match op {
        // Operands of an expression are not summed directly.
        Instruction::Sum(sum) if sum.of.is_some() => Reader::Other,
        Instruction::Adam(_)
        | Instruction::AllReduce(_)
        | Instruction::GlobalNorm(_)
        | Instruction::MeanSquaredError(_)
        | Instruction::Sum(_) => Reader::Exact,
        Instruction::Assign(_) => Reader::Stored,
        Instruction::MatMul(_) | Instruction::Conv(_) => Reader::Product,
        Instruction::Attention(_) | Instruction::AttentionBackward(_) => Reader::Product,
        _ => Reader::Other,
    }
}

/// Whether an operation reads an input in bf16 only, in a program of the given precision.
pub(crate) fn takes_bf16(op: &Instruction, input: usize, output: Scalar) -> bool {
    match op {
        Instruction::MatMul(_) => input < 2 || output == Scalar::Bf16,
        Instruction::Conv(_) | Instruction::Attention(_) => true,
        Instruction::AttentionBackward(_) => input != 2,
        _ => false,
    }
}

/// Returns the code with values rounded before products read them; leaves are rounded at the start of a run.
pub(crate) fn with_rounding(code: Code) -> Code {
    let scalars = assign(&code, Precision::Bf16);
    let mut copies: HashMap<Node, Node> = HashMap::new();
    let mut rewrite = Rewrite::new(code.clone());
    for (id, entry) in code.entries.iter().enumerate() {
        let mut inputs = entry.inputs.clone();
        for (index, input) in inputs.iter_mut().enumerate() {
            let output = scalars[id].first().copied().unwrap_or(Scalar::F32);
            let plain = code.entry(code.owner(*input)).op.is_leaf();
            let single = scalars[input.index()][input.output()] == Scalar::F32;
            if single && !plain && takes_bf16(&entry.op, index, output) {
                let value = *input;
                *input = *copies.entry(value).or_insert_with(|| {
                    Node::new(rewrite.insert_before(id, copy(value, code.value_type(value).clone())), 0)
                });
            }
        }
        rewrite.replace(id, CodeEntry { inputs, ..entry.clone() });
    }
    rewrite.finish().0
}

/// An expression that only copies a value.
fn copy(value: Node, kind: Type) -> CodeEntry {
    let expression = Expression {
        shape: [kind.shape.len()].into(),
        views: vec![View { offset: 0, strides: vec![1] }],
        code: vec![Line::Load(0)],
    };
    CodeEntry { op: Instruction::Expression(expression), inputs: vec![value], outputs: vec![kind] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo_engine::Graph;
    use cfo_engine::backend::fuse;
    use cfo_engine::ops::Activation;
    use cfo_engine::{AdamConfig, Initial};

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
        let (fused, requested) = fuse(&graph, &[loss]);
        let code = Code::new(&fused, requested);
        for precision in [Precision::F32, Precision::Tf32] {
            let scalars = assign(&code, precision);
            assert!(scalars.iter().flatten().all(|scalar| *scalar != Scalar::Bf16));
        }
        let scalars = assign(&code, Precision::Bf16);
        for (entry, row) in code.entries.iter().zip(&scalars) {
            match &entry.op {
                Instruction::Tensor(_) | Instruction::MeanSquaredError(_) => assert_ne!(row[0], Scalar::Bf16),
                Instruction::Adam(adam) => {
                    for group in entry.inputs[adam.leading()..].chunks(adam.stride()) {
                        for node in group {
                            assert_eq!(scalars[node.index()][node.output()], Scalar::F32);
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
        let (fused, requested) = fuse(&graph, &[root]);
        let code = Code::new(&fused, requested);
        let scalars = assign(&code, Precision::Bf16);
        let written = code.entries.iter().find(|entry| matches!(entry.op, Instruction::Assign(_))).unwrap();
        let value = written.inputs[1];
        assert_eq!(scalars[value.index()][value.output()], Scalar::F32, "{code}");
    }

    #[test]
    fn a_state_that_steps_advance_keeps_its_digits_and_its_change_need_not() {
        let mut graph = Graph::new();
        let from = graph.input("from", [4, 8]).unwrap();
        let wanted = graph.input("wanted", [4, 8]).unwrap();
        let w = graph.parameter("w", [8, 8], Initial::ONES).unwrap();
        let mut state = graph.scale(from, 0.5).unwrap();
        for _ in 0..3 {
            let slope = graph.linear(state, w, None, Activation::Silu).unwrap();
            let change = graph.scale(slope, 1e-3).unwrap();
            state = graph.add(state, change).unwrap();
        }
        let loss = graph.mean_squared_error(state, wanted).unwrap();
        let counter = graph.counter("step").unwrap();
        graph.adam(loss, counter, AdamConfig::default()).unwrap();
        let (fused, requested) = fuse(&graph, &[loss]);
        let code = with_rounding(Code::new(&fused, requested));
        let scalars = assign(&code, Precision::Bf16);
        // From the loss back to the first state, along sums.
        let reads = |entry: &CodeEntry| matches!(entry.op, Instruction::MeanSquaredError(_));
        let mut state = code.entries.iter().find(|entry| reads(entry)).unwrap().inputs[0];
        for _ in 0..3 {
            assert_eq!(scalars[state.index()][state.output()], Scalar::F32, "{code}");
            let [before, slope] = code.entry(state).inputs[..] else { panic!("{code}") };
            assert!(matches!(code.entry(slope).op, Instruction::MatMul(_)), "{code}");
            assert_eq!(scalars[slope.index()][slope.output()], Scalar::Bf16, "{code}");
            state = before;
        }
    }
}
