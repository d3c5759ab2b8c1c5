//! Wavelet transforms: a launch for each level and axis, alternating between two buffers.

use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, Selected, blocks, vector};
use cfo_engine::Shape;
use cfo_engine::ops::{Wavelet, WaveletTransform};

/// Selects the transform, with scratch memory for a copy of the field.
pub(crate) fn select<'a>(op: &'a WaveletTransform, shape: &'a Shape) -> Selected<'a> {
    Selected::new(4 * shape.len(), move |io, to| lower(op, shape, io, to))
}

fn lower(op: &WaveletTransform, shape: &Shape, io: &OpIo, to: &mut Lowering) {
    let [h, w, c] = [1, 2, 3].map(|axis| shape.axes()[axis]);
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Bf16 || y.scalar == Scalar::Bf16;
    let width = vector(half, [c]);
    let count = y.count / width;
    let Wavelet { family, levels, periodic } = op.wavelet;
    let taps = family.taps();
    // The taps, then the truncated filters of the ends of a line.
    let ends = family.ends().unwrap_or_default();
    let numbers = taps.iter().chain(ends.iter().flatten());
    let table = to.table(numbers.flat_map(|&tap| (tap as f32).to_le_bytes()).collect());
    // (rows, columns, along the width?) of each pass; if there are none, one pass that copies everything.
    let mut passes = Vec::new();
    for step in 0..levels {
        let level = if op.inverse { levels - 1 - step } else { step };
        let side = |length: usize| if length == 1 { 1 } else { length >> level };
        let (rows, columns) = (side(h), side(w));
        let both = if op.inverse { [false, true] } else { [true, false] };
        passes.extend(
            both.into_iter()
                .filter(|&along| if along { columns > 1 } else { rows > 1 })
                .map(|along| (rows, columns, along)),
        );
    }
    if passes.is_empty() {
        passes.push((0, 0, true));
    }
    let mut from = (x.address, x.scalar);
    for (i, &(rows, columns, along)) in passes.iter().enumerate() {
        let into = if (passes.len() - i) % 2 == 1 { y.address } else { io.scratch };
        let (source, target) = (from.1.name(), y.scalar.name());
        let ends = family.ends().is_some() && !periodic[usize::from(along)];
        let body = format!(
            "wavelet<{source}, {target}, {width}, {h}u, {w}u, {c}u, {rows}u, {columns}u, {along}, {}, {ends}, {}, {count}ull>(x, y, taps);",
            op.inverse,
            taps.len()
        );
        let parameters = Parameters::new()
            .with(&format!("const {source}*"), "x", from.0)
            .with(&format!("{target}*"), "y", into)
            .with("const float*", "taps", table);
        to.launch(KernelFile::Wavelet, parameters, body, blocks(count));
        from = (into, y.scalar);
    }
}
