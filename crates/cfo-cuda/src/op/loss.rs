//! Losses.

use crate::program::{Gpu, KernelFile, Lowering, OpIo, Parameters, Scalar, Selected, vector};

/// Selects the mean squared error of `count` numbers: some blocks share the sum, with scratch memory for their parts.
pub(crate) fn select(count: usize, target: Gpu) -> Selected<'static> {
    let parts = count.div_ceil(4096).clamp(1, 2 * target.multiprocessors as usize);
    Selected::new(4 * parts, move |io, to| mean_squared_error(parts, io, to))
}

fn mean_squared_error(parts: usize, io: &OpIo, to: &mut Lowering) {
    let (a, b, y) = (io.inputs[0], io.inputs[1], io.outputs[0]);
    let half = a.scalar == Scalar::Bf16 || b.scalar == Scalar::Bf16;
    let width = vector(half, [a.count]);
    let [s, t, u] = [a, b, y].map(|value| value.scalar.name());
    let body = format!(
        "mean_squared_error<{s}, {t}, {u}, {width}, {}ull, {parts}u>(a, b, y, partial, ticket);",
        a.count
    );
    let ticket = to.ticket(1);
    let values = Parameters::new().reads("a", a).reads("b", b).writes("y", y);
    let parameters = values.scratch("partial", io.scratch).tickets("ticket", ticket);
    to.launch(KernelFile::Loss, parameters, body, [parts as u32, 1, 1]);
}
