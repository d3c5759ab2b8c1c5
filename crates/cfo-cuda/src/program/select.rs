//! Selection of an algorithm for each instruction: the scratch memory that the planner reserves and the work that the
//! lowering appends. No device is needed, so all kernels can be compiled and examined without one.

use cfo_engine::{Node, Shape};

use super::typed::Typed;
use super::{Instruction, Lowering, OpIo, Scalar};
use crate::convolution::{conv, scaled_f16};
use crate::norm::{conv_row_norm, group_norm, layer_norm};
use crate::op::{
    all_reduce, attention, expression, layout, loss, optimizer, random, reduce, sample_path, wavelet,
};
use crate::product::matmul;

type GpuWork<'a> = dyn FnOnce(&OpIo, &mut Lowering) + 'a;

pub(crate) struct Selected<'a> {
    pub(crate) scratch: usize,
    work: Box<GpuWork<'a>>,
}

impl<'a> Selected<'a> {
    /// An algorithm with its bytes of scratch memory and the function that appends its work.
    pub(crate) fn new(scratch: usize, work: impl FnOnce(&OpIo, &mut Lowering) + 'a) -> Self {
        Self { scratch, work: Box::new(work) }
    }

    fn plain(work: impl FnOnce(&OpIo, &mut Lowering) + 'a) -> Self {
        Self::new(0, work)
    }

    pub(crate) fn lower(self, io: &OpIo, to: &mut Lowering) {
        (self.work)(io, to);
    }
}

/// The types in which an instruction reads and writes its values.
#[derive(Clone, Debug)]
pub(crate) struct Scalars {
    pub(crate) inputs: Vec<Scalar>,
    pub(crate) outputs: Vec<Scalar>,
}

/// Selects the algorithm of an instruction; `advances`: whether Adam increments its counter as well.
pub(crate) fn select(typed: &Typed, id: usize, advances: bool) -> Selected<'_> {
    let (code, target) = (&typed.code, typed.target());
    let entry = &code.entries[id];
    if entry.outputs.iter().any(|output| output.shape.is_empty()) {
        return Selected::plain(|_, _| {});
    }
    let input = |index: usize| -> &Shape { code.shape(entry.inputs[index]) };
    match &entry.op {
        Instruction::Tensor(_) | Instruction::Constant(_) | Instruction::Reshape(_) => {
            Selected::plain(|_, _| {})
        }
        Instruction::Expression(op) => Selected::plain(move |io, to| expression::lower(op, io, to)),
        Instruction::Sum(op) => {
            reduce::select(op, op.of.as_ref().map_or_else(|| input(0), |(_, shape)| shape), target)
        }
        Instruction::Embed(op) => {
            let x = input(0);
            Selected::plain(move |io, to| layout::embed(op, x, io, to))
        }
        Instruction::Concat(op) => {
            let width = |&value: &Node| code.shape(value).axes()[op.axis..].iter().product();
            let widths: Vec<usize> = op.values(&entry.inputs).iter().map(width).collect();
            Selected::plain(move |io, to| layout::concat(&widths, &op.biased, io, to))
        }
        Instruction::MatMul(op) => matmul::select(op, &typed.scalars_of(id), true, target),
        Instruction::MeanSquaredError(_) => loss::select(input(0).len(), target),
        Instruction::Random(op) => Selected::plain(move |io, to| random::lower(op, io, to)),
        Instruction::SamplePath(op) => {
            let (values, offsets) = (input(0), input(2));
            Selected::plain(move |io, to| sample_path::lower(op, values, offsets, io, to))
        }
        Instruction::Gather(_) => {
            let x = input(0);
            Selected::plain(move |io, to| layout::gather(x, io, to))
        }
        Instruction::WaveletTransform(op) => wavelet::select(op, input(0)),
        Instruction::AllReduce(_) if typed.ranks => Selected::plain(all_reduce::lower),
        Instruction::AllReduce(_) => Selected::plain(all_reduce::alone),
        Instruction::GlobalNorm(_) => {
            optimizer::select_norm(entry.inputs.iter().map(|&value| code.shape(value).len()))
        }
        Instruction::Adam(op) => Selected::plain(move |io, to| optimizer::adam(op, advances, io, to)),
        Instruction::Assign(_) => Selected::plain(optimizer::assign),
        Instruction::Advance(_) => Selected::plain(optimizer::advance),
        Instruction::Pad(_)
        | Instruction::Fold(_)
        | Instruction::Conv(_)
        | Instruction::ScaleF16(_)
        | Instruction::LayerNorm(_)
        | Instruction::LayerNormBackward(_)
        | Instruction::Attention(_)
        | Instruction::AttentionBackward(_)
        | Instruction::GroupNorm(_)
        | Instruction::GroupNormBackward(_) => select_of_fields(typed, id, &input, &entry.outputs[0].shape),
    }
}

/// Selects the algorithm of instructions on fields and tokens: convolutions, norms, attention.
fn select_of_fields<'a>(
    typed: &'a Typed,
    id: usize,
    input: &dyn Fn(usize) -> &'a Shape,
    output: &'a Shape,
) -> Selected<'a> {
    let (code, target) = (&typed.code, typed.target());
    let entry = &code.entries[id];
    let x = input(0);
    match &entry.op {
        Instruction::Pad(op) => {
            Selected::plain(move |io, to| conv::pad(op.mode, op.before, (x, output), false, io, to))
        }
        Instruction::Fold(op) => {
            Selected::plain(move |io, to| conv::pad(op.0.mode, op.0.before, (output, x), true, io, to))
        }
        Instruction::Conv(_) => {
            let geometry = conv::Geometry::of(code, id, target.precision).expect("these are convolutions");
            conv::select(geometry, typed.convolution(id))
        }
        Instruction::ScaleF16(op) => {
            scaled_f16::select(op, (0..entry.inputs.len()).map(input).collect(), output.len(), target)
        }
        Instruction::LayerNorm(op) => Selected::plain(move |io, to| layer_norm::lower(op, x, io, to)),
        Instruction::LayerNormBackward(op) => layer_norm::select_backward(op, x, target),
        Instruction::Attention(op) => Selected::plain(move |io, to| attention::lower(op.heads, x, io, to)),
        Instruction::AttentionBackward(op) => {
            attention::select_backward(op.heads, x, typed.scalars_of(id).inputs[0], target)
        }
        Instruction::GroupNorm(op) if op.of.is_some() => {
            Selected::plain(move |io, to| conv_row_norm::lower(op, code, id, io, to))
        }
        Instruction::GroupNorm(op) => group_norm::select(op, x, &typed.scalars_of(id), target),
        Instruction::GroupNormBackward(op) => {
            group_norm::select_backward(op, x, &typed.scalars_of(id), target)
        }
        other => unreachable!("`{}` is no operation on fields", other.name()),
    }
}
