//! Products of many rows with a short matrix that are followed by GELU or its slope: a kernel of our own for GPUs whose
//! tensor cores work for warpgroups. The library's epilogues take as long as the product again; here some warpgroups
//! finish their rows while others compute, and the sums over rows of the slopes come with them.

use crate::program::instruction::{Extras, MatMul};
use crate::program::kernel::File;
use crate::program::launch::Parameters;
use crate::program::lowering::{Io, Lowering, Value};
use crate::program::scalar::Scalar;
use cfo_engine::ops::Activation;

/// Columns of the short matrix that a block keeps; `WIDE` of the kernel.
const WIDE: usize = 192;
/// Chunks of 64 x 64 elements that a pair of warpgroups has room for; `RING` of the kernel.
const RING: usize = 5;
/// Threads of a block: two pairs of warpgroups that compute and one that brings rows.
const THREADS: u32 = 640;
/// The fewest rows that pay.
const MANY: usize = 1 << 14;
/// The most terms of a sum for which the columns fit.
const TERMS: usize = 384;

/// Whether a product has the shape and the continuation that the kernel is for.
pub(crate) fn fits(op: &MatMul) -> bool {
    let extras = Extras { totals: false, ..op.extras };
    let slope = Extras { slope: Some(Activation::Gelu), ..Extras::default() };
    let plain = op.activation == Activation::Identity && !op.keep_input && !op.bias;
    let continued = match op.activation {
        Activation::Gelu => op.bias && op.keep_input && op.extras == Extras::default(),
        _ => plain && extras == slope,
    };
    let [rows, inner, columns] = [op.rows, op.inner, op.columns];
    let dense =
        |operand: cfo_engine::ops::Operand, columns: usize| operand.column == 1 && operand.row == columns;
    let turned = op.b.row == 1 && op.b.column == inner;
    continued
        && op.batch == [1, 1]
        && (MANY..1 << 31).contains(&rows)
        && columns.is_multiple_of(WIDE)
        && inner.is_multiple_of(64)
        && (1..=TERMS).contains(&inner)
        && dense(op.a, inner)
        && dense(op.c, columns)
        && (turned || dense(op.b, columns))
}

/// Blocks that share a panel of columns.
fn shares(op: &MatMul, multiprocessors: u32) -> usize {
    multiprocessors as usize / (op.columns / WIDE)
}

/// Bytes of scratch memory: sums of each block.
pub(crate) fn scratch(op: &MatMul, multiprocessors: u32) -> usize {
    if op.extras.totals && fits(op) { 4 * shares(op, multiprocessors) * op.columns } else { 0 }
}

/// What the kernel reads and writes besides the factors and the result.
pub(crate) struct Further {
    pub(crate) bias: Option<Value>,
    /// The value before the activation: written, or read for a slope.
    pub(crate) kept: Option<Value>,
    pub(crate) totals: Option<Value>,
}

/// Appends the product if it is one for this kernel.
pub(crate) fn lower(op: &MatMul, further: &Further, io: &Io, to: &mut Lowering) -> bool {
    if !to.warpgroups || !fits(op) {
        return false;
    }
    // The columns, the chunks and two barriers for each chunk.
    let shared = op.inner * WIDE * 2 + 2 * RING * (8192 + 16);
    let shares = shares(op, to.multiprocessors);
    let half = [Some(io.inputs[0]), Some(io.inputs[1]), Some(io.outputs[0]), further.kept];
    let stored = half.into_iter().all(|value| value.is_some_and(|value| value.scalar == Scalar::Bf16));
    if !stored || shares == 0 || shared > to.shared as usize {
        return false;
    }
    let panels = op.columns / WIDE;
    let body = format!(
        "gelu_product<{}u, {}u, {}u, {}, {}, {}>(a, weight, bias, kept, out, sums, partial, tickets);",
        op.rows,
        op.columns,
        op.inner,
        op.b.row == 1,
        op.extras.slope.is_some(),
        further.totals.is_some()
    );
    let tickets = to.ticket(if further.totals.is_some() { panels } else { 0 });
    let parameters = Parameters::new()
        .reads("a", io.inputs[0])
        .reads("weight", io.inputs[1])
        .reads("bias", further.bias)
        .writes("kept", further.kept)
        .writes("out", io.outputs[0])
        .writes("sums", further.totals)
        .scratch("partial", io.scratch)
        .tickets("tickets", tickets);
    let grid = [(panels * shares) as u32, 1, 1];
    to.launch_with(File::GemmGeluSm90, parameters, body, (grid, THREADS, shared as u32));
    true
}
