//! Operands of convolutions in 16 bits, in programs of tf32: they keep the 11 significant bits that tf32 keeps, scaled by a
//! power of two so that nothing overflows and what underflows is less than 2^-38 of the largest number.

use std::collections::HashMap;

use crate::cuda::convolution::conv::Algorithm;
use crate::cuda::op::layout;
use crate::cuda::program::lower::{File, Io, Lowering, Value, blocks, vector};
use crate::graph::{Entry, Graph, Node};
use crate::ops::{Compact, Op, Operation};
use crate::shape::{Shape, Type};

/// Elements that a block looks at, at least.
const PIECE: usize = 1 << 13;
/// Blocks that a multiprocessor holds at once.
const RESIDENT: usize = 8;

fn grid(count: usize, multiprocessors: u32) -> usize {
    count.div_ceil(PIECE).clamp(1, RESIDENT * multiprocessors as usize)
}

/// Bytes of scratch memory: each block's largest number.
pub(crate) fn scratch(count: usize, multiprocessors: u32) -> usize {
    4 * grid(count, multiprocessors)
}

/// The scale, then the rounded numbers. Both passes read what is rounded in the same way.
pub(crate) fn lower(op: &Compact, inputs: &[&Shape], io: &Io, to: &mut Lowering) {
    let (y, inverse) = (io.outputs[0], io.outputs[1]);
    let (width, read) = match &op.joined {
        Some(concat) => {
            let values = concat.values(inputs).iter();
            let widths: Vec<usize> =
                values.map(|shape| shape.axes()[concat.axis..].iter().product()).collect();
            let width = vector(true, widths.clone());
            (width, layout::side_by_side(&widths, &concat.biased, width))
        }
        None => {
            let width = vector(true, [y.count]);
            (width, format!("load<{width}>(x0 + at * {width}u, value);\n"))
        }
    };
    let count = y.count;
    let grid = [grid(count, to.multiprocessors) as u32, 1, 1];
    let fields = if op.norm.is_some() { 1 } else { inputs.len() };
    let names: String = (0..fields).map(|i| format!("const float* __restrict__ x{i}, ")).collect();
    let addresses = || io.inputs[..fields].iter().map(|value| value.address.into());
    let source = format!("auto source = [=](u64 at, float* value) {{\n{read}}};\n");
    match op.norm {
        Some(root) => bound(root, io, to),
        None => {
            let ticket = to.ticket(1);
            to.launch(
                File::ScaledF16,
                &format!("{names}float* inverse, u32* partial, u32* ticket"),
                format!("{source}f16_scale<{width}, {count}ull>(source, inverse, partial, ticket);"),
                grid,
                addresses().chain([inverse.address.into(), io.scratch.into(), ticket]).collect(),
            );
        }
    }
    to.launch(
        File::ScaledF16,
        &format!("{names}fp16* __restrict__ y, const float* __restrict__ inverse"),
        format!("{source}f16_round<{width}, {count}ull>(source, y, inverse);"),
        grid,
        addresses().chain([y.address.into(), inverse.address.into()]).collect(),
    );
}

/// The scale of a norm's result from the largest numbers of its scale, bias and shift.
fn bound(root: f64, io: &Io, to: &mut Lowering) {
    let inverse = io.outputs[1];
    let [scale, bias] = [io.inputs[1], io.inputs[2]];
    let shift = io.inputs.get(3).map_or((0, 0), |shift| (shift.address, shift.count));
    to.launch(
        File::ScaledF16,
        "const float* scale, const float* bias, const float* shift, float* inverse",
        format!(
            "f16_bound<{}, {}, {}>(scale, bias, shift, {root:e}f, inverse);",
            scale.count, bias.count, shift.1
        ),
        [1, 1, 1],
        vec![scale.address.into(), bias.address.into(), shift.0.into(), inverse.address.into()],
    );
}

/// A result of two compact operands in single precision; `power` is what it was multiplied by beforehand.
pub(crate) fn expand(from: u64, into: Value, inverses: [Value; 2], power: f64, to: &mut Lowering) {
    let count = into.count;
    to.launch(
        File::ScaledF16,
        "const fp16* x, float* y, const float* first, const float* second, double power",
        format!("f16_expand<{count}ull>(x, y, first, second, power);"),
        blocks(count),
        vec![
            from.into(),
            into.address.into(),
            inverses[0].address.into(),
            inverses[1].address.into(),
            power.recip().into(),
        ],
    );
}

/// A graph, what is asked of it, and how its convolutions are done.
type Chosen = (Graph, Vec<Node>, HashMap<usize, Algorithm>);

/// The graph with compact operands where convolutions were chosen to take them. Each is made right after the value itself,
/// so that the value need not be kept for the backward pass if nobody else reads it.
pub(crate) fn with_compact((graph, outputs, choices): Chosen) -> Chosen {
    let mut wanted: HashMap<Node, Option<Node>> = HashMap::new();
    for (&id, choice) in &choices {
        if choice.is_compact() {
            wanted.extend(graph.entries[id].inputs.iter().map(|&input| (input, None)));
        }
    }
    if wanted.is_empty() {
        return (graph, outputs, choices);
    }
    let mut rewritten = Graph::new();
    let mut place: Vec<usize> = Vec::with_capacity(graph.entries.len());
    let mut moved_choices = HashMap::new();
    for (id, entry) in graph.entries.iter().enumerate() {
        let move_node = |node: Node, place: &[usize]| Node::new(place[node.index()], node.output as usize);
        let mut inputs: Vec<Node> = entry.inputs.iter().map(|&node| move_node(node, &place)).collect();
        let choice = choices.get(&id);
        if choice.is_some_and(|choice| choice.is_compact()) {
            let copies: Vec<Node> =
                entry.inputs.iter().map(|input| wanted[input].expect("made after the value")).collect();
            inputs = copies.clone();
            inputs.extend(copies.iter().map(|copy| Node::new(copy.index(), 1)));
        }
        let at = rewritten.entries.len();
        place.push(at);
        let whole =
            wanted.get_mut(&Node::new(id, 0)).filter(|_| only_compact(&graph, &outputs, &choices, id));
        if let (Op::Concat(concat), Some(copy)) = (&entry.op, whole) {
            // Nobody else reads the joined values: they are never written.
            let op = Compact { joined: Some(concat.clone()), norm: None };
            let outputs = vec![entry.outputs[0].clone(), Type::real(Shape::scalar())];
            *copy = Some(Node::new(at, 0));
            rewritten.entries.push(Entry { op: Op::Compact(op), inputs, outputs });
            continue;
        }
        moved_choices.extend(choice.map(|&choice| (at, choice)));
        if graph.effects.contains(&id) {
            rewritten.effects.push(at);
        }
        rewritten.entries.push(Entry { op: entry.op.clone(), inputs, outputs: entry.outputs.clone() });
        for output in 0..entry.outputs.len() {
            if let Some(copy) = wanted.get_mut(&Node::new(id, output)) {
                let value = &entry.outputs[output];
                let op = Compact { norm: root(entry, output), joined: None };
                let outputs = op.infer(&[value]).expect("operands of convolutions are real");
                *copy = Some(Node::new(rewritten.entries.len(), 0));
                let mut inputs = vec![Node::new(at, output)];
                if let (Op::GroupNorm(norm), Some(_)) = (&entry.op, op.norm) {
                    let moved = &rewritten.entries[at].inputs;
                    inputs.extend(&moved[1..3]);
                    inputs.extend(moved.last().filter(|_| norm.shift));
                }
                rewritten.entries.push(Entry { op: Op::Compact(op), inputs, outputs });
            }
        }
    }
    let outputs = outputs.iter().map(|node| Node::new(place[node.index()], node.output as usize)).collect();
    (rewritten, outputs, moved_choices)
}

/// The root of the size of a group where a value is the result of a group norm.
fn root(entry: &Entry, output: usize) -> Option<f64> {
    let Op::GroupNorm(norm) = &entry.op else { return None };
    let shape = &entry.outputs[0].shape;
    let group = shape.len() / (shape.axes()[0] * norm.groups).max(1);
    (output == 0).then(|| (group as f64).sqrt())
}

/// Whether only convolutions that take compact operands read a value.
fn only_compact(graph: &Graph, outputs: &[Node], choices: &HashMap<usize, Algorithm>, id: usize) -> bool {
    let reads = |entry: &Entry| entry.inputs.iter().any(|input| input.index() == id);
    let compact = |reader: usize| choices.get(&reader).is_some_and(|choice| choice.is_compact());
    let mut readers = graph.entries.iter().enumerate().filter(|(_, entry)| reads(entry));
    readers.all(|(reader, _)| compact(reader)) && outputs.iter().all(|output| output.index() != id)
}
