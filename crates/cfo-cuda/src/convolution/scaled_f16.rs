//! f16 operands of convolutions in tf32 programs. They have the same 11 significant bits as tf32. They are scaled by a
//! power of two so that nothing overflows, and numbers that underflow are less than 2^-38 of the largest number.

use crate::op::layout;
use crate::program::instruction::ScaleF16;
use crate::program::{Gpu, KernelFile, Lowering, OpIo, Parameters, Selected, Value, blocks, vector};
use cfo_engine::Shape;

/// Minimum number of elements per block.
const PIECE: usize = 1 << 13;
/// Number of blocks that a multiprocessor runs at once.
const RESIDENT: usize = 8;

/// Selects as many blocks as run at once, with scratch memory for each block's largest number.
pub(crate) fn select<'a>(
    op: &'a ScaleF16,
    inputs: Vec<&'a Shape>,
    count: usize,
    target: Gpu,
) -> Selected<'a> {
    let blocks = count.div_ceil(PIECE).clamp(1, RESIDENT * target.multiprocessors as usize);
    Selected::new(4 * blocks, move |io, to| lower(op, &inputs, blocks, io, to))
}

/// Computes the scale, then the rounded numbers. Both passes read the source in the same way.
fn lower(op: &ScaleF16, inputs: &[&Shape], blocks: usize, io: &OpIo, to: &mut Lowering) {
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
    let grid = [blocks as u32, 1, 1];
    let fields = if op.norm.is_some() { 1 } else { inputs.len() };
    let values = || {
        let fields = io.inputs[..fields].iter().enumerate();
        fields.fold(Parameters::new(), |all, (i, value)| {
            all.with("const float* __restrict__", &format!("x{i}"), value.address)
        })
    };
    let source = format!("auto source = [=](u64 at, float* value) {{\n{read}}};\n");
    match op.norm {
        Some(root) => bound(root, io, to),
        None => {
            let ticket = to.ticket(1);
            let parameters = values()
                .writes("inverse", inverse)
                .with("u32*", "partial", io.scratch)
                .tickets("ticket", ticket);
            let body = format!("{source}f16_scale<{width}, {count}ull>(source, inverse, partial, ticket);");
            to.launch(KernelFile::ScaledF16, parameters, body, grid);
        }
    }
    let parameters = values().with("fp16* __restrict__", "y", y.address).with(
        "const float* __restrict__",
        "inverse",
        inverse.address,
    );
    let body = format!("{source}f16_round<{width}, {count}ull>(source, y, inverse);");
    to.launch(KernelFile::ScaledF16, parameters, body, grid);
}

/// Computes the scale of a norm's result from the largest numbers of its scale, bias and shift.
fn bound(root: f64, io: &OpIo, to: &mut Lowering) {
    let inverse = io.outputs[1];
    let [scale, bias] = [io.inputs[1], io.inputs[2]];
    let shift = io.inputs.get(3).copied();
    let parameters = Parameters::new()
        .reads("scale", scale)
        .reads("bias", bias)
        .reads("shift", shift)
        .writes("inverse", inverse);
    let body = format!(
        "f16_bound<{}, {}, {}>(scale, bias, shift, {root:e}f, inverse);",
        scale.count,
        bias.count,
        shift.map_or(0, |shift| shift.count)
    );
    to.launch(KernelFile::ScaledF16, parameters, body, [1, 1, 1]);
}

/// Computes the single-precision result for two f16 operands; `power` is the factor by which it was multiplied.
pub(crate) fn expand(from: u64, into: Value, inverses: [Value; 2], power: f64, to: &mut Lowering) {
    let count = into.count;
    let parameters = Parameters::new()
        .with("const fp16*", "x", from)
        .writes("y", into)
        .reads("first", inverses[0])
        .reads("second", inverses[1])
        .f64("power", power.recip());
    let body = format!("f16_expand<{count}ull>(x, y, first, second, power);");
    to.launch(KernelFile::ScaledF16, parameters, body, blocks(count));
}
