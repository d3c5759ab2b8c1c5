//! Losses.

use crate::program::kernel::File;
use crate::program::launch::{Parameters, vector};
use crate::program::lowering::{Io, Lowering};
use crate::program::scalar::Scalar;

/// Blocks that share the sum.
fn parts(count: usize, multiprocessors: u32) -> usize {
    count.div_ceil(4096).clamp(1, 2 * multiprocessors as usize)
}

pub(crate) fn scratch(count: usize, multiprocessors: u32) -> usize {
    4 * parts(count, multiprocessors)
}

pub(crate) fn mean_squared_error(io: &Io, to: &mut Lowering) {
    let (a, b, y) = (io.inputs[0], io.inputs[1], io.outputs[0]);
    let half = a.scalar == Scalar::Bf16 || b.scalar == Scalar::Bf16;
    let (width, parts) = (vector(half, [a.count]), parts(a.count, to.multiprocessors));
    let [s, t, u] = [a, b, y].map(|value| value.scalar.name());
    let body = format!(
        "mean_squared_error<{s}, {t}, {u}, {width}, {}ull, {parts}u>(a, b, y, partial, ticket);",
        a.count
    );
    let ticket = to.ticket(1);
    let values = Parameters::new().reads("a", a).reads("b", b).writes("y", y);
    let parameters = values.scratch("partial", io.scratch).tickets("ticket", ticket);
    to.launch(File::Loss, parameters, body, [parts as u32, 1, 1]);
}
