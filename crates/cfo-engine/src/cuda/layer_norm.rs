//! Layer normalisation, with scale and shift of each sample.

use super::lower::{File, Io, Lowering, vector};
use crate::ops::{LayerNorm, LayerNormBackward};
use crate::shape::Shape;

fn sizes(x: &Shape) -> [usize; 3] {
    x.axes().try_into().expect("the graph checked that tokens have three axes")
}

/// Blocks that share a sample.
fn chunks(x: &Shape, multiprocessors: u32) -> usize {
    let [batch, tokens, _] = sizes(x);
    (8 * multiprocessors as usize).div_ceil(batch.max(1)).clamp(1, tokens.div_ceil(16).max(1))
}

pub(super) fn scratch_backward(op: &LayerNormBackward, x: &Shape, multiprocessors: u32) -> usize {
    let [batch, _, width] = sizes(x);
    if op.modulated { 4 * batch * chunks(x, multiprocessors) * 2 * width } else { 0 }
}

pub(super) fn lower(op: &LayerNorm, x: &Shape, io: &Io, to: &mut Lowering) {
    let [batch, tokens, width] = sizes(x);
    let all = batch * tokens;
    let (input, output) = (io.inputs[0], io.outputs[0]);
    let modulation = if op.modulated { io.inputs[1].scalar.name() } else { "float" };
    let address = |index: usize| if op.modulated { io.inputs[index].address } else { 0 };
    let same = !op.modulated || io.inputs[1].scalar == io.inputs[2].scalar;
    assert!(same, "shift and scale are stored alike");
    let parameters = format!(
        "const {}* x, const {modulation}* shift, const {modulation}* scale, {}* y, float* mean, float* inverse, float epsilon",
        input.scalar.name(),
        output.scalar.name()
    );
    let v = vector(false, [width]);
    let body = format!(
        "layer_norm<{}, {}, {modulation}, {v}, {tokens}u, {width}u, {all}ull, {}>(x, shift, scale, y, mean, inverse, epsilon);",
        input.scalar.name(),
        output.scalar.name(),
        op.modulated
    );
    let arguments = vec![
        input.address.into(),
        address(1).into(),
        address(2).into(),
        output.address.into(),
        io.outputs[1].address.into(),
        io.outputs[2].address.into(),
        (op.epsilon as f32).to_bits().into(),
    ];
    to.launch(File::LayerNorm, &parameters, body, [all.div_ceil(8) as u32, 1, 1], arguments);
}

pub(super) fn lower_backward(op: &LayerNormBackward, x: &Shape, io: &Io, to: &mut Lowering) {
    let [batch, tokens, width] = sizes(x);
    let at = usize::from(op.modulated);
    let (input, dy, dx) = (io.inputs[0], io.inputs[3 + at], io.outputs[0]);
    let chunks = chunks(x, to.multiprocessors);
    let (scale, total) = match op.modulated {
        true => (io.inputs[1].scalar.name(), io.outputs[1].scalar.name()),
        false => ("float", "float"),
    };
    let plus = if op.add { io.inputs[4 + at] } else { dy };
    let parameters = format!(
        "const {}* x, const {scale}* scale, const float* mean, const float* inverse, const {}* dy, const {}* plus, {}* dx, \
         {total}* dshift, {total}* dscale, float* partial, u32* tickets",
        input.scalar.name(),
        dy.scalar.name(),
        plus.scalar.name(),
        dx.scalar.name()
    );
    let v = vector(false, [width]);
    let body = format!(
        "layer_norm_backward<{}, {}, {}, {}, {scale}, {total}, {v}, {tokens}u, {width}u, {chunks}u, {}, {}>(x, scale, mean, inverse, \
         dy, plus, dx, dshift, dscale, partial, tickets);",
        input.scalar.name(),
        dy.scalar.name(),
        plus.scalar.name(),
        dx.scalar.name(),
        op.modulated,
        op.add
    );
    let tickets = to.ticket(if chunks > 1 && op.modulated { batch } else { 0 });
    let arguments = vec![
        input.address.into(),
        if op.modulated { io.inputs[1].address } else { 0 }.into(),
        io.inputs[1 + at].address.into(),
        io.inputs[2 + at].address.into(),
        dy.address.into(),
        plus.address.into(),
        dx.address.into(),
        if op.modulated { io.outputs[1].address } else { 0 }.into(),
        if op.modulated { io.outputs[2].address } else { 0 }.into(),
        io.scratch.into(),
        tickets,
    ];
    to.launch(File::LayerNorm, &parameters, body, [chunks as u32, batch as u32, 1], arguments);
}
