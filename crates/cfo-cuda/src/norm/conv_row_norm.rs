//! One-row convolutions fused with the group norms of their results in one launch, if a block has whole samples.

use crate::convolution::conv::Geometry;
use crate::convolution::conv_row;
use crate::norm::group_norm::activation_number;
use crate::program::instruction::GroupNorm;
use crate::program::{Code, KernelFile, Lowering, OpIo, Parameters};

pub(crate) fn lower(op: &GroupNorm, code: &Code, id: usize, io: &OpIo, to: &mut Lowering) {
    let (entry, weight) = (&code.entries[id], io.inputs[io.inputs.len() - 1]);
    let conv = op.of.as_ref().expect("merged with a convolution");
    let filter = code.shape(*entry.inputs.last().expect("the weight"));
    let shapes = [code.shape(entry.inputs[0]), filter, &entry.outputs[3].shape];
    let geometry = Geometry::within(conv, shapes, to.target.precision);
    let body = format!(
        "extern __shared__ __align__(16) char shared[];
conv_row_norm<{}, float, {}u, {}, {}, {}>(x, w, scale, bias, offset, shift, y, mean, inverse, kept, epsilon, shared);",
        conv_row::product(&geometry),
        op.groups,
        activation_number(op.activation),
        op.offset,
        op.shift
    );
    let offset = op.offset.then(|| io.inputs[3]);
    let shift = op.shift.then(|| io.inputs[3 + usize::from(op.offset)]);
    let parameters = Parameters::new()
        .reads("x", io.inputs[0])
        .reads("w", weight)
        .reads("scale", io.inputs[1])
        .reads("bias", io.inputs[2])
        .reads("offset", offset)
        .reads("shift", shift)
        .writes_each(["y", "mean", "inverse", "kept"].into_iter().zip(io.outputs.iter().copied()))
        .f32("epsilon", op.epsilon as f32);
    to.launch_with(KernelFile::ConvRowNorm, parameters, body, conv_row::launch(&geometry));
}
