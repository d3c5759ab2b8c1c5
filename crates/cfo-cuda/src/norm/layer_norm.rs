//! Layer normalisation with scale and shift per sample, fused with the gated residual before or, backward, after it.

use crate::program::instruction::{LayerNorm, LayerNormBackward};
use crate::program::{Gpu, KernelFile, Lowering, OpIo, Parameters, Selected, vector};
use cfo_engine::Shape;

fn sizes(x: &Shape) -> [usize; 3] {
    x.axes().try_into().expect("the graph checked that tokens have three axes")
}

/// Number of blocks that share a sample: as many as run at once, each with at least 16 tokens.
fn chunks(x: &Shape, multiprocessors: u32) -> usize {
    let [batch, tokens, _] = sizes(x);
    (2 * multiprocessors as usize / batch.max(1)).clamp(1, tokens.div_ceil(16).max(1))
}

/// Number of sums over the tokens of a sample in the backward operation.
fn sums(op: &LayerNormBackward) -> usize {
    2 * usize::from(op.modulated) + usize::from(op.gated)
}

/// Selects the backward operation, with scratch memory for the sums of each block.
pub(crate) fn select_backward<'a>(op: &'a LayerNormBackward, x: &'a Shape, target: Gpu) -> Selected<'a> {
    let [batch, _, width] = sizes(x);
    let chunks = chunks(x, target.multiprocessors);
    Selected::new(4 * batch * chunks * sums(op) * width, move |io, to| lower_backward(op, x, chunks, io, to))
}

pub(crate) fn lower(op: &LayerNorm, x: &Shape, io: &OpIo, to: &mut Lowering) {
    let [batch, tokens, width] = sizes(x);
    let all = batch * tokens;
    let mut inputs = io.inputs.iter().copied();
    let mut input = |there: bool| there.then(|| inputs.next().expect("an input for each part"));
    let [x, shift, scale] = [true, op.modulated, op.modulated].map(&mut input);
    let [gate, value] = [op.residual; 2].map(&mut input);
    assert!(
        shift.map(|value| value.scalar) == scale.map(|value| value.scalar),
        "shift and scale are stored alike"
    );
    let parameters = Parameters::new()
        .reads_each([("x", x), ("shift", shift), ("scale", scale), ("gate", gate), ("value", value)])
        .writes("sum", io.outputs.get(3).copied())
        .writes_each(["y", "mean", "inverse"].into_iter().zip(io.outputs.iter().copied()))
        .f32("epsilon", op.epsilon as f32);
    let body = format!(
        "layer_norm<{}, {tokens}u, {width}u, {all}ull, {}, {}>(x, shift, scale, gate, value, sum, y, mean, inverse, epsilon);",
        vector(false, [width]),
        op.modulated,
        op.residual
    );
    let grid = [all.div_ceil(8) as u32, 1, 1];
    to.launch(KernelFile::LayerNorm, parameters, body, grid);
}

fn lower_backward(op: &LayerNormBackward, x: &Shape, chunks: usize, io: &OpIo, to: &mut Lowering) {
    let [batch, tokens, width] = sizes(x);
    let mut inputs = io.inputs.iter().copied();
    let mut input = |there: bool| there.then(|| inputs.next().expect("an input for each part"));
    let [x, scale, mean, inverse, dy] = [true, op.modulated, true, true, true].map(&mut input);
    let [plus, gate, value] = [op.add, op.gated, op.gated].map(&mut input);
    let mut outputs = io.outputs.iter().copied();
    let mut output = |there: bool| there.then(|| outputs.next().expect("an output for each part"));
    let [dx, dshift, dscale] = [true, op.modulated, op.modulated].map(&mut output);
    let [gated, dgate] = [op.gated; 2].map(&mut output);
    let tickets = to.ticket(if chunks > 1 && sums(op) > 0 { batch } else { 0 });
    let parameters = Parameters::new()
        .reads_each([("x", x), ("scale", scale), ("mean", mean), ("inverse", inverse), ("dy", dy)])
        .reads_each([("plus", plus), ("gate", gate), ("value", value)])
        .writes_each([("dx", dx), ("dshift", dshift), ("dscale", dscale), ("gated", gated), ("dgate", dgate)])
        .scratch("partial", io.scratch)
        .tickets("tickets", tickets);
    let body = format!(
        "layer_norm_backward<{}, {tokens}u, {width}u, {chunks}u, {}, {}, {}>(x, scale, mean, inverse, dy, plus, gate, value, dx, \
         dshift, dscale, gated, dgate, partial, tickets);",
        vector(false, [width]),
        op.modulated,
        op.add,
        op.gated
    );
    let grid = [chunks as u32, batch as u32, 1];
    to.launch(KernelFile::LayerNorm, parameters, body, grid);
}
