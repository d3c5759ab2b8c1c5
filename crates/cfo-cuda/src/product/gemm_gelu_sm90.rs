//! Long bf16 GEMMs followed by GELU or its derivative: our own warp-specialised kernel for GPUs with warpgroup matrix
//! instructions (`wgmma`). The library's epilogues double the time of the GEMM. In this kernel some warpgroups run the
//! epilogue while others multiply. The epilogue also sums the bias's gradient over the rows.

use crate::product::matmul::Extra;
use crate::program::instruction::{Extras, MatMul};
use crate::program::{Gpu, KernelFile, Lowering, OpIo, Parameters, Scalar, Scalars};
use cfo_engine::ops::Activation;

/// Number of columns of the short matrix that a block keeps; `WIDE` in the kernel.
const WIDE: usize = 192;
/// Number of chunks of 64 x 64 elements in the ring of a pair of warpgroups; `RING` in the kernel.
const RING: usize = 5;
/// Number of threads per block: two pairs of warpgroups that compute and one warpgroup that loads rows.
const THREADS: u32 = 640;
/// Minimum number of rows for which it is faster.
const MANY: usize = 1 << 14;
/// Maximum number of terms for which the columns fit.
const TERMS: usize = 384;

/// Whether the kernel supports a product's shape and epilogue.
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct GeluProduct {
    /// Number of blocks that share a panel of columns.
    shares: usize,
    shared: usize,
}

impl GeluProduct {
    /// Chooses the kernel; `None` if it does not support the product or the device.
    pub(crate) fn of(op: &MatMul, scalars: &Scalars, target: Gpu) -> Option<Self> {
        if !target.warpgroups || !fits(op) {
            return None;
        }
        let extra = Extra::of(op, &scalars.inputs, &scalars.outputs);
        let stored = [Some(scalars.inputs[0]), Some(scalars.inputs[1]), Some(scalars.outputs[0])];
        let half = stored.into_iter().chain([extra.kept.or(extra.slope)]);
        let half = half.into_iter().all(|scalar| scalar == Some(Scalar::Bf16));
        // The columns, the chunks and two barriers for each chunk.
        let shared = op.inner * WIDE * 2 + 2 * RING * (8192 + 16);
        let shares = target.multiprocessors as usize / (op.columns / WIDE);
        (half && shares > 0 && shared <= target.shared as usize).then_some(Self { shares, shared })
    }

    pub(crate) fn scratch(&self, op: &MatMul) -> usize {
        if op.extras.totals { 4 * self.shares * op.columns } else { 0 }
    }

    pub(crate) fn lower(self, op: &MatMul, extra: &Extra, io: &OpIo, to: &mut Lowering) {
        let Self { shares, shared } = self;
        let panels = op.columns / WIDE;
        let body = format!(
            "gelu_product<{}u, {}u, {}u, {}, {}, {}>(a, weight, bias, kept, out, sums, partial, tickets);",
            op.rows,
            op.columns,
            op.inner,
            op.b.row == 1,
            op.extras.slope.is_some(),
            extra.totals.is_some()
        );
        let tickets = to.ticket(if extra.totals.is_some() { panels } else { 0 });
        let parameters = Parameters::new()
            .reads("a", io.inputs[0])
            .reads("weight", io.inputs[1])
            .reads("bias", extra.bias)
            // The value before the activation: written, or read for a slope.
            .writes("kept", extra.kept.or(extra.slope))
            .writes("out", io.outputs[0])
            .writes("sums", extra.totals)
            .scratch("partial", io.scratch)
            .tickets("tickets", tickets);
        let grid = [(panels * shares) as u32, 1, 1];
        to.launch_with(KernelFile::GemmGeluSm90, parameters, body, (grid, THREADS, shared as u32));
    }
}
