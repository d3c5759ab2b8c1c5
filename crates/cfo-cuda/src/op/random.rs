//! Philox numbers, the same as on the CPU.

use crate::program::lower::{File, Io, Lowering, blocks};
use cfo_engine::ops::{Distribution, Random};

pub(crate) fn lower(op: &Random, io: &Io, to: &mut Lowering) {
    let y = io.outputs[0];
    let normal = op.distribution == Distribution::Normal;
    let parameters = format!("const u32* counter, {}* y, u32 stream, u32 key0, u32 key1", y.scalar.name());
    let body = format!(
        "random_numbers<{}, {normal}, {}u>(counter, y, stream, key0, key1);",
        y.scalar.name(),
        y.count
    );
    let arguments = vec![
        io.inputs[0].address.into(),
        y.address.into(),
        op.stream.into(),
        (op.seed as u32).into(),
        ((op.seed >> 32) as u32).into(),
    ];
    to.launch(File::Random, &parameters, body, blocks(y.count.div_ceil(4)), arguments);
}
