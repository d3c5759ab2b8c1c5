//! Lets convolutions of periodic fields of one row find what lies outside by themselves, where there are kernels that can:
//! the padded fields, and the sums that are adjoint to padding, go.

use std::collections::HashMap;

use crate::cuda::convolution::conv::Geometry;
use crate::cuda::convolution::conv_row;
use crate::device::Precision;
use crate::graph::{Entry, Graph, Node};
use crate::ops::{Op, PadMode};

/// A periodic margin along the width.
#[derive(Clone, Copy, Debug)]
struct Margin {
    before: usize,
    after: usize,
}

impl Margin {
    fn of(mode: PadMode, before: [usize; 2], after: [usize; 2]) -> Option<Self> {
        let flat = before[0] == 0 && after[0] == 0 && mode == PadMode::Circular;
        flat.then(|| Self { before: before[1], after: after[1] })
    }

    /// The padding of the periodic convolution between a fine field of so many positions and a coarse one, where the fine
    /// one had the margin.
    fn around_fine(self, fine: usize, coarse: usize, stride: usize, padding: usize) -> Option<usize> {
        (padding == 0 && fine == coarse * stride).then_some(self.before)
    }

    /// The same where the coarse one had the margin: every position that a tap can reach must lie in it.
    fn around_coarse(
        self,
        [fine, coarse]: [usize; 2],
        stride: usize,
        padding: usize,
        kernel: usize,
    ) -> Option<usize> {
        let reached =
            padding + stride >= kernel && (fine + padding - 1) / stride < coarse + self.before + self.after;
        if fine != coarse * stride || !reached {
            return None;
        }
        padding.checked_sub(self.before * stride)
    }
}

/// The graph with periodic convolutions, and where the requested values are in it.
pub(crate) fn merge(graph: Graph, outputs: Vec<Node>, precision: Precision) -> (Graph, Vec<Node>) {
    let mut readers = vec![0_usize; graph.entries.len()];
    let inputs = graph.entries.iter().flat_map(|entry| &entry.inputs);
    inputs.chain(&outputs).for_each(|node| readers[node.index()] += 1);
    let effects = graph.effects.clone();
    let mut graph = graph;
    for id in 0..graph.entries.len() {
        let Some(entry) = rewritten(&graph, id, &readers) else { continue };
        let old = std::mem::replace(&mut graph.entries[id], entry);
        if !Geometry::of(&graph, id, precision).is_some_and(|geometry| conv_row::fits(&geometry)) {
            graph.entries[id] = old;
            continue;
        }
        old.inputs.iter().for_each(|node| readers[node.index()] -= 1);
        graph.entries[id].inputs.iter().for_each(|node| readers[node.index()] += 1);
    }
    // What was only read by what is gone goes as well; from the last to the first, for one may read another.
    let mut dead = vec![false; graph.entries.len()];
    for id in (0..graph.entries.len()).rev() {
        let entry = &graph.entries[id];
        let kind = matches!(entry.op, Op::Pad(_) | Op::Conv(_) | Op::ConvInput(_));
        if kind && readers[id] == 0 && !effects.contains(&id) {
            dead[id] = true;
            entry.inputs.iter().for_each(|node| readers[node.index()] -= 1);
        }
    }
    let entries = graph.entries.into_iter().zip(dead).map(|(entry, dead)| (!dead).then_some(entry)).collect();
    rebuilt(entries, &HashMap::new(), &effects, &outputs)
}

/// The graph without the operations that are gone, with values read where they have moved to, and where the requested ones
/// are in it.
pub(crate) fn rebuilt(
    entries: Vec<Option<Entry>>,
    moved: &HashMap<Node, Node>,
    effects: &[usize],
    outputs: &[Node],
) -> (Graph, Vec<Node>) {
    let mut graph = Graph::new();
    let mut place = vec![usize::MAX; entries.len()];
    let new = |node: &Node, place: &[usize]| {
        let node = moved.get(node).unwrap_or(node);
        Node::new(place[node.index()], node.output as usize)
    };
    for (id, entry) in entries.into_iter().enumerate() {
        let Some(mut entry) = entry else { continue };
        entry.inputs.iter_mut().for_each(|input| *input = new(input, &place));
        place[id] = graph.entries.len();
        if effects.contains(&id) {
            graph.effects.push(place[id]);
        }
        graph.entries.push(entry);
    }
    let outputs = outputs.iter().map(|node| new(node, &place)).collect();
    (graph, outputs)
}

/// The padded value's own value and its margin.
fn padded(graph: &Graph, node: Node) -> Option<(Node, Margin)> {
    let entry = graph.entry(node);
    let Op::Pad(op) = &entry.op else { return None };
    Some((entry.inputs[0], Margin::of(op.mode, op.before, op.after)?))
}

fn width(graph: &Graph, node: Node) -> usize {
    graph.shape(node).axes()[2]
}

/// The periodic convolution that an operation amounts to, if it is a convolution of a periodic field or the adjoint of
/// padding after one.
fn rewritten(graph: &Graph, id: usize, readers: &[usize]) -> Option<Entry> {
    let entry = &graph.entries[id];
    let mut new = entry.clone();
    let own = Node::new(id, 0);
    match &mut new.op {
        Op::Conv(op) => {
            let (x, margin) = padded(graph, entry.inputs[0])?;
            new.inputs[0] = x;
            op.padding[1] =
                margin.around_fine(width(graph, x), width(graph, own), op.stride[1], op.padding[1])?;
            op.periodic = true;
        }
        Op::ConvInput(op) => {
            let (x, margin) = padded(graph, entry.inputs[0])?;
            new.inputs[0] = x;
            let (sizes, kernel) = ([op.width, width(graph, x)], width(graph, entry.inputs[1]));
            op.padding[1] = margin.around_coarse(sizes, op.stride[1], op.padding[1], kernel)?;
            op.periodic = true;
        }
        Op::ConvWeight(op) => {
            let [x, dy] = [entry.inputs[0], entry.inputs[1]];
            if let Some((x, margin)) = padded(graph, x) {
                new.inputs[0] = x;
                let sizes = (width(graph, x), width(graph, dy));
                op.padding[1] = margin.around_fine(sizes.0, sizes.1, op.stride[1], op.padding[1])?;
            } else {
                let (coarse, margin) = padded(graph, dy)?;
                new.inputs[1] = coarse;
                let sizes = [width(graph, x), width(graph, coarse)];
                op.padding[1] = margin.around_coarse(sizes, op.stride[1], op.padding[1], op.kernel[1])?;
            }
            op.periodic = true;
        }
        Op::Fold(op) => {
            let margin = Margin::of(op.mode, op.before, op.after)?;
            return folded(graph, id, margin).filter(|_| readers[entry.inputs[0].index()] == 1);
        }
        _ => return None,
    }
    Some(new)
}

/// The convolution whose result an operation folds, as a periodic one.
fn folded(graph: &Graph, id: usize, margin: Margin) -> Option<Entry> {
    let source = graph.entry(graph.entries[id].inputs[0]);
    let mut new = source.clone();
    new.outputs = graph.entries[id].outputs.clone();
    let own = width(graph, Node::new(id, 0));
    match &mut new.op {
        Op::ConvInput(op) if !op.periodic => {
            let coarse = width(graph, source.inputs[0]);
            op.padding[1] = margin.around_fine(own, coarse, op.stride[1], op.padding[1])?;
            op.width = own;
            op.periodic = true;
        }
        Op::Conv(op) if !op.periodic => {
            let sizes = [width(graph, source.inputs[0]), own];
            let kernel = width(graph, source.inputs[1]);
            op.padding[1] = margin.around_coarse(sizes, op.stride[1], op.padding[1], kernel)?;
            op.periodic = true;
        }
        _ => return None,
    }
    Some(new)
}
