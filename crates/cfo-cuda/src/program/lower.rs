//! Lowering: each operation of a planned graph becomes launches of kernels and calls of libraries with fixed
//! addresses. Nothing here needs a device, so all kernels can be compiled and looked at without one.

use cfo_engine::{Node, Shape};

use super::code::Code;
use super::instruction::{GroupNorm, Instruction};
use super::lowering::{Io, Lowering, Target};
use crate::convolution::conv::{self, Algorithm};
use crate::convolution::scaled_f16;
use crate::norm::{conv_row_norm, group_norm, layer_norm};
use crate::op::{
    attention, expression, layout, loss, optimizer, random, reduce, resample, sample_path, wavelet,
};
use crate::product::matmul;

/// Appends the work of one operation; `convolution` says how, if it is one; `advances` whether Adam moves its counter.
pub(crate) fn lower(
    code: &Code,
    id: usize,
    convolution: Algorithm,
    advances: bool,
    io: &Io,
    to: &mut Lowering,
) {
    let entry = &code.entries[id];
    let scalar = Shape::scalar();
    let output = entry.outputs.first().map_or(&scalar, |output| &output.shape);
    let input = |index: usize| -> &Shape { &code.value_type(entry.inputs[index]).shape };
    if entry.outputs.iter().any(|output| output.shape.is_empty()) {
        return;
    }
    match &entry.op {
        Instruction::Tensor(_) | Instruction::Constant(_) | Instruction::Reshape(_) => {}
        Instruction::Expression(op) => expression::lower(op, io, to),
        Instruction::Sum(op) => {
            reduce::lower(op, op.of.as_ref().map_or(input(0), |(_, shape)| shape), io, to)
        }
        Instruction::Embed(op) => layout::embed(op, input(0), io, to),
        Instruction::Concat(op) => {
            let width = |&value: &Node| code.shape(value).axes()[op.axis..].iter().product();
            let widths: Vec<usize> = op.values(&entry.inputs).iter().map(width).collect();
            layout::concat(&widths, &op.biased, io, to);
        }
        Instruction::MatMul(op) => matmul::lower(op, io, to),
        Instruction::MeanSquaredError(_) => loss::mean_squared_error(io, to),
        Instruction::Random(op) => random::lower(op, io, to),
        Instruction::SamplePath(op) => sample_path::lower(op, input(0), input(2), io, to),
        Instruction::Gather(_) => layout::gather(input(0), io, to),
        Instruction::Pad(op) => conv::pad(op.mode, op.before, (input(0), output), false, io, to),
        Instruction::Fold(op) => conv::pad(op.mode, op.before, (output, input(0)), true, io, to),
        Instruction::Conv(_) | Instruction::ConvInput(_) | Instruction::ConvWeight(_) => {
            let geometry = conv::Geometry::of(code, id, to.precision).expect("these are convolutions");
            conv::lower(&geometry, convolution, io, to);
        }
        Instruction::ScaleF16(op) => {
            let shapes: Vec<&Shape> = (0..entry.inputs.len()).map(input).collect();
            scaled_f16::lower(op, &shapes, io, to);
        }
        Instruction::LayerNorm(op) => layer_norm::lower(op, input(0), io, to),
        Instruction::LayerNormBackward(op) => layer_norm::lower_backward(op, input(0), io, to),
        Instruction::Attention(op) => attention::lower(op.heads, input(0), io, to),
        Instruction::AttentionBackward(op) => attention::lower_backward(op.heads, input(0), io, to),
        Instruction::Resample(op) => resample::lower(op.mode, (input(0), output), false, io, to),
        Instruction::ResampleBackward(op) => resample::lower(op.mode, (output, input(0)), true, io, to),
        Instruction::Wavelet(op) => wavelet::lower(op, input(0), io, to),
        Instruction::GroupNorm(op) if op.of.is_some() => conv_row_norm::lower(op, code, id, io, to),
        Instruction::GroupNorm(op) => group_norm::lower(op, input(0), io, to),
        Instruction::GroupNormBackward(op) => group_norm::lower_backward(op, input(0), io, to),
        Instruction::AllReduce(_) => layout::copy(io, to),
        Instruction::GlobalNorm(_) => optimizer::global_norm(io, to),
        Instruction::Adam(op) => optimizer::adam(op, advances, io, to),
        Instruction::Assign(_) => optimizer::assign(io, to),
        Instruction::Advance(_) => optimizer::advance(io, to),
    }
}

/// Bytes of scratch memory that an operation needs.
pub(crate) fn scratch(code: &Code, id: usize, target: Target) -> usize {
    let multiprocessors = target.multiprocessors;
    let entry = &code.entries[id];
    let input = |index: usize| -> &Shape { &code.value_type(entry.inputs[index]).shape };
    match &entry.op {
        Instruction::Sum(op) => {
            reduce::scratch(op, op.of.as_ref().map_or(input(0), |(_, shape)| shape), multiprocessors)
        }
        Instruction::MatMul(op) => matmul::scratch(op, target),
        Instruction::GroupNorm(GroupNorm { of: Some(_), .. }) => 0,
        Instruction::GroupNorm(op) => group_norm::scratch(op, input(0), multiprocessors),
        Instruction::GroupNormBackward(op) => {
            group_norm::scratch_backward(&op.forward, input(0), multiprocessors)
        }
        Instruction::LayerNormBackward(op) => layer_norm::scratch_backward(op, input(0), multiprocessors),
        Instruction::AttentionBackward(op) => attention::scratch_backward(op.heads, input(0)),
        Instruction::Wavelet(_) => wavelet::scratch(input(0)),
        Instruction::ScaleF16(_) => scaled_f16::scratch(entry.outputs[0].shape.len(), multiprocessors),
        Instruction::MeanSquaredError(_) => loss::scratch(input(0).len(), multiprocessors),
        Instruction::GlobalNorm(_) => {
            optimizer::norm_scratch(entry.inputs.iter().map(|&n| code.shape(n).len()))
        }
        _ => 0,
    }
}
