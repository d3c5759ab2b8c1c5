//! Operands of convolutions in 16 bits, in programs of tf32: they keep the 11 significant bits that tf32 keeps, scaled by a
//! power of two so that nothing overflows and what underflows is less than 2^-38 of the largest number.

use crate::op::layout;
use crate::program::instruction::ScaleF16;
use crate::program::lower::{File, Io, Lowering, Value, blocks, vector};
use cfo_engine::Shape;

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
pub(crate) fn lower(op: &ScaleF16, inputs: &[&Shape], io: &Io, to: &mut Lowering) {
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
