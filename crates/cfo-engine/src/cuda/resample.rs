//! Resampling and its transpose, each a gather.

use super::lower::{File, Io, Lowering, blocks, vector};
use super::scalar::Scalar;
use crate::ops::ResampleMode;
use crate::shape::Shape;

/// `old` is the field that is resampled, `new` the result; backward brings `new`'s cotangent to `old`'s size.
pub(super) fn lower(
    mode: ResampleMode,
    (old, new): (&Shape, &Shape),
    backward: bool,
    io: &Io,
    to: &mut Lowering,
) {
    let ([h, w, c], [hn, wn]) = ([1, 2, 3].map(|axis| old.axes()[axis]), [1, 2].map(|axis| new.axes()[axis]));
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Half || y.scalar == Scalar::Half;
    let width = vector(half, [c]);
    let count = y.count / width;
    let body = format!(
        "{}<{}, {}, {width}, {}, {h}u, {w}u, {c}u, {hn}u, {wn}u, {count}ull>(x, y);",
        if backward { "resample_backward" } else { "resample" },
        x.scalar.name(),
        y.scalar.name(),
        mode == ResampleMode::Bilinear
    );
    let parameters = format!("const {}* x, {}* y", x.scalar.name(), y.scalar.name());
    to.launch(File::Field, &parameters, body, blocks(count), vec![x.address.into(), y.address.into()]);
}
