//! The kernel of each operation: its scratch memory and its execution.

use cfo_engine::Graph;
use cfo_engine::ops::Op;

use crate::conv::ConvGeometry;
use crate::scalar::Real;
use crate::{
    Io, attention, conv, expression, group_norm, layer_norm, layout, loss, matmul, optimizer, random, reduce,
    sample_path, wavelet,
};

/// Real elements of scratch memory that an operation needs.
pub(crate) fn scratch(graph: &Graph, id: usize) -> usize {
    let entry = &graph.entries()[id];
    let input = |index: usize| &graph.value_type(entry.inputs[index]).shape;
    match &entry.op {
        Op::Sum(_) => reduce::scratch(input(0)),
        Op::MatMul(op) => matmul::scratch(op),
        Op::Conv(op) => conv::scratch(op.pass, &ConvGeometry::new(op, input(0), input(1))),
        Op::GroupNorm(op) => group_norm::scratch(op, input(0)),
        Op::GroupNormBackward(op) => group_norm::scratch_backward(&op.forward, input(0)),
        Op::LayerNormBackward(op) => layer_norm::scratch_backward(op, input(0)),
        Op::Attention(op) => attention::scratch(op.heads, input(0)),
        Op::AttentionBackward(op) => attention::scratch(op.heads, input(0)),
        Op::WaveletTransform(_) => wavelet::scratch(input(0)),
        _ => 0,
    }
}

pub(crate) fn run<T: Real>(graph: &Graph, id: usize, io: &Io<'_>) {
    let entry = &graph.entries()[id];
    let input = |index: usize| &graph.value_type(entry.inputs[index]).shape;
    match &entry.op {
        Op::Tensor(_) | Op::Constant(_) | Op::Reshape(_) => {}
        Op::Pointwise(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Permute(_) => {
            unreachable!("fusion turns these into expressions")
        }
        Op::Expression(op) => expression::run::<T>(op, io),
        Op::Sum(op) => reduce::run::<T>(op, input(0), io),
        Op::Embed(op) => layout::embed::<T>(op, input(0), io),
        Op::Concat(op) => {
            let width = |i: usize| input(i).axes()[op.axis..].iter().product();
            layout::concat::<T>(width, io);
        }
        Op::MatMul(op) => matmul::run::<T>(op, io),
        Op::Pad(op) => conv::pad::<T>(op, input(0), io),
        Op::Fold(op) => conv::fold::<T>(&op.0, &entry.outputs[0].shape, io),
        Op::Conv(op) => conv::run::<T>(op.pass, &ConvGeometry::new(op, input(0), input(1)), io),
        Op::GroupNorm(op) => group_norm::run::<T>(op, input(0), io),
        Op::GroupNormBackward(op) => group_norm::run_backward::<T>(&op.forward, input(0), io),
        Op::LayerNorm(op) => layer_norm::run::<T>(op, input(0), io),
        Op::LayerNormBackward(op) => layer_norm::run_backward::<T>(op, input(0), io),
        Op::Attention(op) => attention::run::<T>(op.heads, input(0), io),
        Op::AttentionBackward(op) => attention::run_backward::<T>(op.heads, input(0), io),
        Op::WaveletTransform(op) => wavelet::run::<T>(op, input(0), io),
        Op::MeanSquaredError(_) => loss::mean_squared_error::<T>(io),
        Op::Random(op) => random::run::<T>(op, io),
        Op::SamplePath(op) => sample_path::run::<T>(op, io),
        Op::Gather(_) => sample_path::gather::<T>(io),
        // With one rank; other sums are the executor's.
        Op::AllReduce(_) => layout::copy::<T>(io),
        Op::GlobalNorm(_) => optimizer::global_norm::<T>(io),
        Op::Adam(op) => optimizer::adam::<T>(op, io),
        Op::Assign(_) => optimizer::assign::<T>(io),
        Op::Advance(_) => optimizer::advance(io),
    }
}
