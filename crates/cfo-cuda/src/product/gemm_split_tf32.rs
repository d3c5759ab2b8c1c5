//! Single-precision GEMMs on tensor cores: our own kernels, split tf32.
//!
//! Each number is split into two tf32 numbers, and three of their four products are computed. The relative error is
//! 1e-7 to 4e-7 by norm, as with ordinary single-precision sums. Numbers below 1e-35 keep an absolute error of 1e-41.
//! Results that are not finite are computed again without the split, so that infinities are preserved.
//!
//! They are used for the sizes at which they were faster than cuBLASLt on an H200. In microseconds at 25,600 x 128 x
//! 128: 19 instead of 29 for the GEMM, 28 instead of 40 with a sum and GELU or its derivative, 24 instead of 36 for the
//! gradients of weight and bias. Six GEMMs of 512 x 128 x 256: 8.5 to 10 instead of 11 to 13.

use crate::norm::group_norm::activation_number;
use crate::product::matmul::{Extra, batch_stride, batches};
use crate::program::instruction::{Extras, MatMul};
use crate::program::{Gpu, KernelFile, Lowering, OpIo, Parameters, Scalar, Scalars, Value};
use cfo_engine::Precision;
use cfo_engine::ops::{Activation, Operand};

/// Number of terms in a buffer of the kernels, and rows and columns of a block of [`SplitAlgorithm::Wgrad`].
const TERMS: usize = 32;
const ACROSS: usize = 128;
/// Terms of the first factor per thread of [`SplitAlgorithm::Resident`], and rows per group of four warps.
const HELD: usize = 128;
const ROWS: usize = 64;
/// Minimum work, in multiplications, for which many rows are worth while.
const WORK: usize = 1 << 27;
/// Bytes of shared memory per block on Hopper.
const ROOM: usize = 227 << 10;

/// A block's tile, the warps along its sides, its buffers, and the number of blocks per multiprocessor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    sides: [usize; 2],
    warps: [usize; 2],
    stages: usize,
    resident: u32,
}

const SQUARE: Cut = Cut { sides: [64, 64], warps: [2, 2], stages: 4, resident: 3 };
const FLAT: Cut = Cut { sides: [32, 64], warps: [2, 2], stages: 4, resident: 3 };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SplitAlgorithm {
    /// `columns` of the second factor stay in a block's shared memory; `groups` of four warps iterate over rows.
    Resident { columns: usize, groups: usize },
    /// For many terms, divided into `chunks` chunks.
    Wgrad { chunks: usize },
    /// Tile by tile.
    Tiles { cut: Cut },
}

#[derive(Clone, Copy, Debug)]
struct Factor {
    /// Whether terms are contiguous.
    along: bool,
    step: usize,
    batch: usize,
    /// Numbers that may be copied at once.
    vector: usize,
}

impl Factor {
    /// Creates a factor; `terms` and `side` are the length and the distance of each index.
    fn of(terms: (usize, usize), side: (usize, usize), batch: usize) -> Option<Self> {
        let along = match (terms.1, side.1) {
            (1, _) => true,
            (_, 1) => false,
            _ => return None,
        };
        let (length, step) = if along { (terms.0, side.1) } else { (side.0, terms.1) };
        let vector = crate::program::launch::vector(false, [length, step, batch]);
        let small = [step, batch].iter().all(|&distance| u32::try_from(distance).is_ok());
        small.then_some(Self { along, step, batch, vector })
    }

    fn text(self) -> String {
        format!("Factor<{}, {}u, {}u, {}>", self.along, self.step, self.batch, self.vector)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SplitProduct {
    batch: usize,
    a: Factor,
    b: Factor,
    kind: SplitAlgorithm,
}

/// The matrices of a batch, if they are evenly spaced.
fn batch(op: &MatMul) -> Option<usize> {
    match batches(op) {
        (1, count) => Some(count),
        _ => None,
    }
}

impl SplitProduct {
    /// Chooses an algorithm; `None` if the product is not supported. A gradient needs scratch memory.
    pub(crate) fn of(op: &MatMul, scalars: &Scalars, has_scratch: bool, target: Gpu) -> Option<Self> {
        let single = scalars.inputs.iter().chain(&scalars.outputs).all(|&scalar| scalar == Scalar::F32);
        if target.precision != Precision::F32 || !target.warpgroups || op.extras.totals || !single {
            return None;
        }
        let batch = batch(op)?;
        let stride = |operand: Operand| if batch > 1 { batch_stride(op, operand) } else { 0 };
        let whole =
            op.c.column == 1 && [op.rows, op.columns, op.inner].iter().all(|&n| (1..1 << 31).contains(&n));
        // One block index for the batch and the chunks, and one for the rows.
        if !whole || batch > 1 << 12 || op.rows.div_ceil(FLAT.sides[0]) > 65_535 {
            return None;
        }
        let a = Factor::of((op.inner, op.a.column), (op.rows, op.a.row), stride(op.a))?;
        let b = Factor::of((op.inner, op.b.row), (op.columns, op.b.column), stride(op.b))?;
        let mut form = Self { batch, a, b, kind: SplitAlgorithm::Wgrad { chunks: 1 } };
        form.kind = form
            .tiles(op, target)
            .or_else(|| form.resident(op, target))
            .or_else(|| form.wgrad(op, target))?;
        (has_scratch || !matches!(form.kind, SplitAlgorithm::Wgrad { .. })).then_some(form)
    }

    pub(crate) fn scratch(&self, op: &MatMul) -> usize {
        match self.kind {
            SplitAlgorithm::Wgrad { chunks } => 4 * chunks * (self.batch * op.rows * op.columns + op.columns),
            _ => 0,
        }
    }

    pub(crate) fn lower(self, op: &MatMul, extra: &Extra, io: &OpIo, to: &mut Lowering) {
        let aligned = |value: &Value| value.address.is_multiple_of(16);
        assert!(io.inputs.iter().chain(&io.outputs).all(aligned), "values start where the planner put them");
        match self.kind {
            SplitAlgorithm::Resident { columns, groups } => {
                resident(op, &self, (columns, groups), extra, io, to)
            }
            SplitAlgorithm::Wgrad { chunks } => wgrad(op, &self, chunks, extra, io, to),
            SplitAlgorithm::Tiles { cut } => tiles(op, &self, cut, extra, io, to),
        }
    }

    /// The algorithm for many rows with a matrix of moderate size.
    fn resident(&self, op: &MatMul, target: Gpu) -> Option<SplitAlgorithm> {
        let terms = op.inner.is_multiple_of(32) && op.inner <= HELD || op.inner == 2 * HELD;
        // Operands of the epilogue are in shared memory as well.
        let meets = usize::from(op.extras.add) + usize::from(op.extras.slope.is_some());
        let columns = match op.inner > HELD || !op.columns.is_multiple_of(128) || meets > 0 {
            true => 64,
            false => 128,
        };
        let vectors = self.a.vector == 4 && self.b.vector == 4 && outputs_vector(op) == 4;
        let fits = terms && vectors && !op.extras.sums && self.a.along && op.columns.is_multiple_of(columns);
        let tiles = op.rows.div_ceil(ROWS) * (op.columns / columns) * self.batch;
        let room = resident_shared(op, columns, 2) <= ROOM;
        let groups = if tiles > target.multiprocessors as usize && room { 2 } else { 1 };
        let many = op.columns <= 512 && op.rows * op.inner * op.columns >= WORK;
        (fits && many).then_some(SplitAlgorithm::Resident { columns, groups })
    }

    /// The algorithm for gradients of weights over many rows.
    fn wgrad(&self, op: &MatMul, target: Gpu) -> Option<SplitAlgorithm> {
        let plain = op.activation == Activation::Identity && !op.bias && !op.keep_input;
        let bare = plain && Extras { sums: false, ..op.extras } == Extras::default();
        let turned = !self.a.along && !self.b.along && self.a.vector == 4 && self.b.vector == 4;
        let dense = op.c.row == op.columns
            && (self.batch == 1 || batch_stride(op, op.c) == op.rows * op.columns)
            && op.rows >= 64
            && op.columns >= 64;
        let tiles = op.rows.div_ceil(ACROSS) * op.columns.div_ceil(ACROSS) * self.batch;
        let buffers = op.inner.div_ceil(TERMS);
        let span = buffers.div_ceil((target.multiprocessors as usize / tiles.max(1)).max(1));
        let many = op.inner >= 4096 && op.rows * op.inner * op.columns >= WORK;
        let fits = bare && turned && dense && many && 4 * tiles <= target.multiprocessors as usize;
        fits.then_some(SplitAlgorithm::Wgrad { chunks: buffers.div_ceil(span) })
    }

    /// The algorithm for batches of small GEMMs, for which the library launches too few blocks.
    fn tiles(&self, op: &MatMul, target: Gpu) -> Option<SplitAlgorithm> {
        let middle = |n: usize| (32..=512).contains(&n);
        let gradient = !self.a.along && !self.b.along;
        let work = op.rows * op.inner * op.columns * self.batch;
        let sides = middle(op.rows) && middle(op.columns) && middle(op.inner);
        if self.batch < 2 || !sides || !(1 << 24..=1 << 28).contains(&work) {
            return None;
        }
        let blocks =
            |cut: Cut| op.rows.div_ceil(cut.sides[0]) * op.columns.div_ceil(cut.sides[1]) * self.batch;
        let many = target.multiprocessors as usize;
        let cut = if !gradient && blocks(SQUARE) >= many { SQUARE } else { FLAT };
        Some(SplitAlgorithm::Tiles { cut })
    }
}

/// Number of the result's neighbours that may be written at once.
fn outputs_vector(op: &MatMul) -> usize {
    let batch = if batch(op).is_some_and(|count| count > 1) { batch_stride(op, op.c) } else { 0 };
    crate::program::launch::vector(false, [op.columns, op.c.row, batch])
}

const OPERANDS: &str = "Operands{a, b, bias, add, slope, kept, y, sums, partial}";

fn parameters(extra: &Extra, io: &OpIo) -> Parameters {
    Parameters::new()
        .reads("a", io.inputs[0])
        .reads("b", io.inputs[1])
        .reads("bias", extra.bias)
        .reads("add", extra.add)
        .reads("slope", extra.slope)
        .writes("kept", extra.kept)
        .writes("y", io.outputs[0])
        .writes("sums", extra.sums)
        .scratch("partial", io.scratch)
}

/// The epilogue as a template argument.
fn epilogue(op: &MatMul, batch: usize) -> String {
    format!(
        "Epilogue<{}, {}, {}, {}, {}, {}u, {}u, {}>",
        op.bias,
        op.extras.add,
        op.keep_input,
        activation_number(op.activation),
        op.extras.slope.map_or(0, activation_number),
        op.c.row,
        if batch > 1 { batch_stride(op, op.c) } else { 0 },
        outputs_vector(op)
    )
}

fn sizes(op: &MatMul, chunks: usize) -> String {
    format!("Sizes<{}u, {}u, {}u, {chunks}u>", op.rows, op.columns, op.inner)
}

/// Bytes of shared memory: the second factor in two parts; per four warps, rows and operands of the epilogue.
fn resident_shared(op: &MatMul, columns: usize, groups: usize) -> usize {
    let meets = usize::from(op.extras.add) + usize::from(op.extras.slope.is_some());
    4 * (2 * op.inner * columns + groups * ROWS * (op.inner.min(HELD) + meets * columns))
}

fn resident(
    op: &MatMul,
    form: &SplitProduct,
    (columns, groups): (usize, usize),
    extra: &Extra,
    io: &OpIo,
    to: &mut Lowering,
) {
    let (a, b, epilogue) = (form.a.text(), form.b.text(), epilogue(op, form.batch));
    let body =
        format!("resident_product<{}, {a}, {b}, {epilogue}, {columns}, {groups}>({OPERANDS});", sizes(op, 1));
    let shared = resident_shared(op, columns, groups);
    let across = op.columns / columns;
    let most = (to.target.multiprocessors as usize / (across * form.batch)).max(1);
    let blocks = op.rows.div_ceil(ROWS * groups).min(most);
    let grid = [blocks as u32, across as u32, form.batch as u32];
    to.launch_with(
        KernelFile::GemmSplitTf32Resident,
        parameters(extra, io),
        body,
        (grid, 128 * groups as u32, shared as u32),
    );
}

fn wgrad(op: &MatMul, form: &SplitProduct, chunks: usize, extra: &Extra, io: &OpIo, to: &mut Lowering) {
    let (a, b) = (form.a.text(), form.b.text());
    let body = format!("wgrad_product<{}, {a}, {b}, {}>({OPERANDS});", sizes(op, chunks), op.extras.sums);
    let grid = [op.columns.div_ceil(ACROSS), op.rows.div_ceil(ACROSS), form.batch * chunks].map(|n| n as u32);
    // Two buffers of one factor in two parts, and three of both factors as loaded.
    let shared = 4 * TERMS * ACROSS * (2 * 2 + 3 * 2);
    to.launch_with(
        KernelFile::GemmSplitTf32Resident,
        parameters(extra, io),
        body,
        (grid, 256, shared as u32),
    );
    let count = form.batch * op.rows * op.columns;
    let sums = if op.extras.sums { op.columns } else { 0 };
    let body = format!("wgrad_gather<{chunks}u, {count}u, {sums}u>(partial, y, sums);");
    let grid = [(count + sums).div_ceil(128) as u32, 1, 1];
    to.launch(KernelFile::GemmSplitTf32Resident, parameters(extra, io), body, grid);
}

fn tiles(op: &MatMul, form: &SplitProduct, cut: Cut, extra: &Extra, io: &OpIo, to: &mut Lowering) {
    let Cut { sides: [m, n], warps: [down, across], stages, resident } = cut;
    let body = format!(
        "split_product<Cut<{m}, {n}, {down}, {across}, {stages}>, {}, {}, {}, {}>({OPERANDS});",
        sizes(op, 1),
        form.a.text(),
        form.b.text(),
        epilogue(op, form.batch)
    );
    let grid = [op.columns.div_ceil(n), op.rows.div_ceil(m), form.batch].map(|n| n as u32);
    let shape = (grid, (32 * down * across) as u32, (4 * TERMS * (m + n) * stages) as u32);
    to.launch_resident(KernelFile::GemmSplitTf32, parameters(extra, io), body, shape, resident);
}
