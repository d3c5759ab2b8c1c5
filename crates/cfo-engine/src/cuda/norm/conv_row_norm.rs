//! Convolutions of lines and the group norms of their results in one launch, where a block has whole samples.

use std::collections::HashMap;

use crate::cuda::convolution::conv::Geometry;
use crate::cuda::convolution::conv_row;
use crate::cuda::norm::group_norm::activation_number;
use crate::cuda::passes::periodic::rebuilt;
use crate::cuda::program::lower::{Argument, File, Io, Lowering, Value};
use crate::device::Precision;
use crate::graph::{Entry, Graph, Node};
use crate::ops::{GroupNorm, Op};

/// The graph with convolutions in the norms of their results, and where the requested values are in it.
pub(crate) fn merge(graph: Graph, outputs: Vec<Node>, precision: Precision) -> (Graph, Vec<Node>) {
    if precision != Precision::Tf32 {
        return (graph, outputs);
    }
    // The first reader of each value.
    let mut first: HashMap<Node, usize> = HashMap::new();
    for (id, entry) in graph.entries.iter().enumerate() {
        entry.inputs.iter().for_each(|&input| _ = first.entry(input).or_insert(id));
    }
    let mut moved = HashMap::new();
    let mut changed: HashMap<usize, Option<Entry>> = HashMap::new();
    for (id, entry) in graph.entries.iter().enumerate() {
        let Op::GroupNorm(norm) = &entry.op else { continue };
        let node = entry.inputs[0];
        let source = graph.entry(node);
        let Op::Conv(conv) = &source.op else { continue };
        let fits = Geometry::of(&graph, node.index(), precision)
            .is_some_and(|geometry| conv_row::fits(&geometry) && conv_row::has_whole(&geometry, norm.groups));
        if !fits || first[&node] != id {
            continue;
        }
        let mut new = entry.clone();
        new.op = Op::GroupNorm(GroupNorm { of: Some(conv.clone()), ..norm.clone() });
        new.outputs.push(source.outputs[0].clone());
        new.inputs[0] = source.inputs[0];
        new.inputs.push(source.inputs[1]);
        moved.insert(node, Node::new(id, 3));
        changed.insert(node.index(), None);
        changed.insert(id, Some(new));
    }
    let effects = graph.effects.clone();
    let entries = graph.entries.into_iter().enumerate();
    let entries = entries.map(|(id, entry)| changed.remove(&id).unwrap_or(Some(entry))).collect();
    rebuilt(entries, &moved, &effects, &outputs)
}

/// Appends the launch of a norm with a convolution in it.
pub(crate) fn lower(op: &GroupNorm, graph: &Graph, id: usize, io: &Io, to: &mut Lowering) {
    let (entry, weight) = (&graph.entries[id], io.inputs[io.inputs.len() - 1]);
    let conv = op.of.as_ref().expect("merged with a convolution");
    let filter = graph.shape(*entry.inputs.last().expect("the weight"));
    let shapes = [graph.shape(entry.inputs[0]), filter, &entry.outputs[3].shape];
    let geometry = Geometry::within(conv, shapes, to.precision);
    let body = format!(
        "extern __shared__ __align__(16) char shared[];
conv_row_norm<{}, float, {}u, {}, {}, {}>(x, w, scale, bias, offset, shift, y, mean, inverse, kept, epsilon, shared);",
        conv_row::product(&geometry),
        op.groups,
        activation_number(op.activation),
        op.offset,
        op.shift
    );
    let parameters = "const float* x, const float* w, const float* scale, const float* bias, const float* offset, \
                      const float* shift, float* y, float* mean, float* inverse, float* kept, float epsilon";
    let address = |value: Option<Value>| Argument::from(value.map_or(0, |value| value.address));
    let offset = op.offset.then(|| io.inputs[3]);
    let shift = op.shift.then(|| io.inputs[3 + usize::from(op.offset)]);
    let mut arguments: Vec<Argument> =
        [io.inputs[0], weight, io.inputs[1], io.inputs[2]].map(|value| value.address.into()).to_vec();
    arguments.extend([address(offset), address(shift)]);
    arguments.extend(io.outputs.iter().map(|value| Argument::from(value.address)));
    arguments.push((op.epsilon as f32).to_bits().into());
    to.launch_with(File::ConvRowNorm, parameters, body, conv_row::launch(&geometry), arguments);
}
