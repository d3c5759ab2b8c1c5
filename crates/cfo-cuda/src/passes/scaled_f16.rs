//! Creates f16 operands for convolutions that use them, in tf32 programs.

use std::collections::HashMap;

use crate::convolution::conv::Algorithm;
use crate::passes::rewrite::Rewrite;
use crate::program::instruction::ScaleF16;
use crate::program::{Code, CodeEntry, Instruction};
use cfo_engine::{Node, Shape, Type};

type Algorithms = HashMap<usize, Algorithm>;

/// Returns the code with f16 operands, created directly after the values, which then need not be kept.
pub(crate) fn with_scaled_f16(code: Code, algorithms: Algorithms) -> (Code, Algorithms) {
    let takes_f16 = |id: usize| algorithms.get(&id).is_some_and(|algorithm| algorithm.takes_f16());
    let mut wanted: HashMap<Node, Option<Node>> = HashMap::new();
    for id in (0..code.entries.len()).filter(|&id| takes_f16(id)) {
        wanted.extend(code.entries[id].inputs.iter().map(|&input| (input, None)));
    }
    if wanted.is_empty() {
        return (code, algorithms);
    }
    let mut rewrite = Rewrite::new(code.clone());
    for (id, entry) in code.entries.iter().enumerate() {
        if takes_f16(id) {
            let copies = entry.inputs.iter().map(|input| wanted[input].expect("made after the value"));
            let mut inputs: Vec<Node> = copies.collect();
            inputs.extend(inputs.clone().iter().map(|copy| Node::new(copy.index(), 1)));
            rewrite.replace(id, CodeEntry { inputs, ..entry.clone() });
        }
        let whole = wanted.get_mut(&Node::new(id, 0)).filter(|_| only_f16(&code, &algorithms, id));
        if let (Instruction::Concat(concat), Some(copy)) = (&entry.op, whole) {
            // Nothing else reads the joined values, so they are not written.
            let op = ScaleF16 { joined: Some(concat.clone()), norm: None };
            *copy = Some(Node::new(id, 0));
            rewrite.replace(id, scaled(op, entry.inputs.clone(), &entry.outputs[0]));
            continue;
        }
        for (output, value) in entry.outputs.iter().enumerate() {
            if let Some(copy) = wanted.get_mut(&Node::new(id, output)) {
                let op = ScaleF16 { norm: root(entry, output), joined: None };
                let mut inputs = vec![Node::new(id, output)];
                if let (Instruction::GroupNorm(norm), Some(_)) = (&entry.op, op.norm) {
                    inputs.extend(&entry.inputs[1..3]);
                    inputs.extend(entry.inputs.last().filter(|_| norm.shift));
                }
                *copy = Some(Node::new(rewrite.insert_after(id, scaled(op, inputs, value)), 0));
            }
        }
    }
    let (code, places) = rewrite.finish();
    (code, algorithms.into_iter().map(|(id, algorithm)| (places[&id], algorithm)).collect())
}

fn scaled(op: ScaleF16, inputs: Vec<Node>, value: &Type) -> CodeEntry {
    CodeEntry {
        op: Instruction::ScaleF16(op),
        inputs,
        outputs: vec![value.clone(), Type::real(Shape::scalar())],
    }
}

/// The square root of a group's size, for a value that is the result of a group norm.
fn root(entry: &CodeEntry, output: usize) -> Option<f64> {
    let Instruction::GroupNorm(norm) = &entry.op else { return None };
    let shape = &entry.outputs[0].shape;
    let group = shape.len() / (shape.axes()[0] * norm.groups).max(1);
    (output == 0).then(|| (group as f64).sqrt())
}

/// Whether only convolutions with f16 operands read a value.
fn only_f16(code: &Code, algorithms: &Algorithms, id: usize) -> bool {
    let reads = |entry: &CodeEntry| entry.inputs.iter().any(|input| input.index() == id);
    let takes = |reader: usize| algorithms.get(&reader).is_some_and(|algorithm| algorithm.takes_f16());
    let mut readers = code.entries.iter().enumerate().filter(|(_, entry)| reads(entry));
    readers.all(|(reader, _)| takes(reader)) && code.requested.iter().all(|output| output.index() != id)
}
