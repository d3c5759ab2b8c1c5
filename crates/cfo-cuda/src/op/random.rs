//! Philox numbers, equal to those of the CPU.

use crate::program::{KernelFile, Lowering, OpIo, Parameters, blocks};
use cfo_engine::ops::{Distribution, Numbering, Random};

pub(crate) fn lower(op: &Random, io: &OpIo, to: &mut Lowering) {
    let y = io.outputs[0];
    let normal = op.distribution == Distribution::Normal;
    let rows = op.shape.axes().first().copied().unwrap_or(1).max(1);
    let (rows, given, first) = match op.numbering {
        Numbering::Elements => (1, false, 0),
        Numbering::Rows { first } => (rows, false, first + 1),
        Numbering::Given => (rows, true, 0),
    };
    let size = y.count / rows;
    let body = format!(
        "random_numbers<{}, {normal}, {given}, {rows}u, {size}u>(counter, y, stream, key0, key1, first);",
        y.scalar.name(),
    );
    let parameters = Parameters::new()
        .reads("counter", io.inputs[0])
        .writes("y", y)
        .u32("stream", op.stream)
        .u32("key0", op.seed as u32)
        .u32("key1", (op.seed >> 32) as u32)
        .u32("first", first);
    to.launch(KernelFile::Random, parameters, body, blocks(rows * size.div_ceil(4)));
}
