//! Wavelet transforms: a launch for each level and axis, alternating between two buffers.

use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, Selected, blocks, vector};
use cfo_engine::Shape;
use cfo_engine::ops::{Wavelet, WaveletTransform};
use cfo_numerics::WaveletPass;

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
    let Wavelet { family, periodic, .. } = op.wavelet;
    let taps = family.taps();
    // The taps, then the truncated filters of the ends of a line.
    let ends = family.ends().unwrap_or_default();
    let numbers = taps.iter().chain(ends.iter().flatten());
    let table = to.table(numbers.flat_map(|&tap| (tap as f32).to_le_bytes()).collect());
    // If there are no passes, one copies everything.
    let copy = WaveletPass {
        corner: [0; 2],
        along_width: true,
        lines: (0, 0),
        points: (0, 0),
        periodic: periodic[1],
    };
    let mut passes: Vec<WaveletPass> = op.wavelet.passes([h, w, c], op.inverse).collect();
    if passes.is_empty() {
        passes.push(copy);
    }
    let mut from = (x.address, x.scalar);
    for (i, &WaveletPass { corner: [rows, columns], along_width: along, periodic, .. }) in
        passes.iter().enumerate()
    {
        let into = if (passes.len() - i) % 2 == 1 { y.address } else { io.scratch };
        let (source, target) = (from.1.name(), y.scalar.name());
        let ends = family.ends().is_some() && !periodic;
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
