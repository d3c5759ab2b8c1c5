//! Philox numbers, the same as on the CPU.

use crate::program::kernel::File;
use crate::program::launch::{Parameters, blocks};
use crate::program::lowering::{Io, Lowering};
use cfo_engine::ops::{Distribution, Random};

pub(crate) fn lower(op: &Random, io: &Io, to: &mut Lowering) {
    let y = io.outputs[0];
    let normal = op.distribution == Distribution::Normal;
    let body = format!(
        "random_numbers<{}, {normal}, {}u>(counter, y, stream, key0, key1);",
        y.scalar.name(),
        y.count
    );
    let parameters = Parameters::new()
        .reads("counter", io.inputs[0])
        .writes("y", y)
        .u32("stream", op.stream)
        .u32("key0", op.seed as u32)
        .u32("key1", (op.seed >> 32) as u32);
    to.launch(File::Random, parameters, body, blocks(y.count.div_ceil(4)));
}
