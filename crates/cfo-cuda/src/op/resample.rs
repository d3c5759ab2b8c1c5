//! Resampling and its transpose, both as a gather.

use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, blocks, vector};
use cfo_engine::Shape;
use cfo_engine::ops::ResampleMode;

/// `old` is the shape of the resampled field, `new` that of the result. Backward maps the cotangent of `new` to the
/// size of `old`.
pub(crate) fn lower(
    mode: ResampleMode,
    (old, new): (&Shape, &Shape),
    backward: bool,
    io: &OpIo,
    to: &mut Lowering,
) {
    let ([h, w, c], [hn, wn]) = ([1, 2, 3].map(|axis| old.axes()[axis]), [1, 2].map(|axis| new.axes()[axis]));
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Bf16 || y.scalar == Scalar::Bf16;
    let width = vector(half, [c]);
    let count = y.count / width;
    let body = format!(
        "{}<{}, {}, {width}, {}, {h}u, {w}u, {c}u, {hn}u, {wn}u, {count}ull>(x, y);",
        if backward { "resample_backward" } else { "resample" },
        x.scalar.name(),
        y.scalar.name(),
        mode == ResampleMode::Bilinear
    );
    to.launch(KernelFile::Resample, Parameters::new().reads("x", x).writes("y", y), body, blocks(count));
}
