//! GEMMs with a short side, as in a network's first and last layers: our own kernels, which read the long side once.

use crate::program::instruction::{Extras, MatMul};
use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, Scalars, vector};
use cfo_engine::ops::Activation;

/// Maximum number of elements of a short side, and minimum of a long one.
const FEW: usize = 8;
const LONG: usize = 1024;
/// Sizes of the other side.
const MIDDLE: std::ops::RangeInclusive<usize> = 16..=512;
/// Maximum numbers of the short factor per thread, in registers.
const KEPT: usize = 64;

/// Which side is short. `width` neighbours are read or written at once, by `lanes` lanes per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThinProduct {
    Columns {
        width: usize,
        lanes: usize,
    },
    Terms {
        width: usize,
        lanes: usize,
    },
    /// A gradient of a weight, whose rows some blocks share; and whether the second factor is the thin one.
    Gradient {
        second: bool,
        width: usize,
        chunks: usize,
    },
    /// One matrix of few rows or few columns for a whole batch.
    Shared {
        rows: bool,
    },
}

/// Maximum elements of the short side of a matrix that a batch shares, and of the matrix, in shared memory.
const SHARED: usize = 32;
const MATRIX: usize = 5000;
/// Number of columns per block; `TILE` in the kernels.
const TILE: usize = 64;

/// The form of a product of one dense matrix with each of a batch of dense matrices.
fn shared(op: &MatMul) -> Option<ThinProduct> {
    let [rows, inner, columns] = [op.rows, op.inner, op.columns];
    let plain = op.activation == Activation::Identity && op.extras == Extras::default() && !op.bias;
    let batched = op.batch[1] == 1 && op.batch[0] > 1 && op.batch[0] < 65_536 && op.a.batch[0] == 0;
    let dense = |operand: cfo_engine::ops::Operand, rows: usize| {
        operand.column == 1 && operand.row == columns && operand.batch[0] == rows * columns
    };
    let fits = columns.is_multiple_of(TILE) && dense(op.b, inner) && dense(op.c, rows);
    if !plain || !batched || !fits || op.keep_input {
        return None;
    }
    let short = rows.min(inner);
    let matrix = short.next_multiple_of(4) * rows.max(inner);
    (short <= SHARED && matrix <= MATRIX).then_some(ThinProduct::Shared { rows: rows <= inner })
}

impl ThinProduct {
    /// Chooses a form; `None` if none fits or a thread would need too many registers. A gradient needs scratch memory.
    pub(crate) fn of(
        op: &MatMul,
        scalars: &Scalars,
        has_scratch: bool,
        multiprocessors: u32,
    ) -> Option<Self> {
        if let Some(shared) = shared(op) {
            return Some(shared);
        }
        let extras = Extras { sums: false, ..op.extras };
        let plain =
            op.batch == [1, 1] && op.activation == Activation::Identity && extras == Extras::default();
        if !plain || op.keep_input || op.c.column != 1 {
            return None;
        }
        let [rows, inner, columns] = [op.rows, op.inner, op.columns];
        if rows >= LONG && columns <= FEW && MIDDLE.contains(&inner) && op.a.column == 1 {
            return Self::columns(op, scalars.inputs[0]);
        }
        if rows >= LONG && inner <= FEW && MIDDLE.contains(&columns) {
            return Self::terms(op, scalars.outputs[0]);
        }
        let gradient = inner >= LONG && op.a.row == 1 && op.b.column == 1 && !op.bias && has_scratch;
        let second = columns <= FEW && MIDDLE.contains(&rows);
        let first = rows <= FEW && MIDDLE.contains(&columns);
        match gradient && (first || second) {
            true => Self::gradient(op, second, scalars, multiprocessors),
            false => None,
        }
    }

    fn columns(op: &MatMul, a: Scalar) -> Option<Self> {
        let width = vector(a == Scalar::Bf16, [op.inner, op.a.row]);
        let lanes = (op.inner / width).next_power_of_two().min(32);
        let steps = op.inner.div_ceil(width * lanes);
        (steps * width * op.columns <= KEPT).then_some(Self::Columns { width, lanes })
    }

    fn terms(op: &MatMul, y: Scalar) -> Option<Self> {
        let width = vector(y == Scalar::Bf16, [op.columns, op.c.row]);
        let lanes = op.columns / width;
        (lanes <= 256 && width * op.inner <= KEPT).then_some(Self::Terms { width, lanes })
    }

    fn gradient(op: &MatMul, second: bool, scalars: &Scalars, multiprocessors: u32) -> Option<Self> {
        let (wide, length, row, count) = match second {
            true => (scalars.inputs[0], op.rows, op.a.column, op.columns),
            false => (scalars.inputs[1], op.columns, op.b.row, op.rows),
        };
        let width = vector(wide == Scalar::Bf16, [length, row]);
        let chunks = op.inner.div_ceil(512).clamp(1, 2 * multiprocessors as usize);
        (length / width <= 256 && width * count <= KEPT).then_some(Self::Gradient { second, width, chunks })
    }

    pub(crate) fn scratch(&self, op: &MatMul) -> usize {
        match self {
            Self::Gradient { chunks, .. } => 4 * chunks * op.rows * op.columns,
            _ => 0,
        }
    }

    pub(crate) fn lower(self, op: &MatMul, io: &OpIo, to: &mut Lowering) {
        match self {
            Self::Columns { width, lanes } => thin_columns(op, (width, lanes), io, to),
            Self::Terms { width, lanes } => thin_terms(op, (width, lanes), io, to),
            Self::Gradient { second, width, chunks } => gradient(op, second, (width, chunks), io, to),
            Self::Shared { rows } => shared_matrix(op, rows, io, to),
        }
    }
}

/// Parameters of a product with a bias, and their types.
fn interface(op: &MatMul, io: &OpIo) -> (Parameters, String) {
    let bias = if op.bias { io.inputs[2] } else { io.inputs[1] };
    let [a, b, y] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    let types = [a, b, bias, y].map(|value| value.scalar.name()).join(", ");
    (Parameters::new().reads("a", a).reads("b", b).reads("bias", bias).writes("y", y), types)
}

fn thin_columns(op: &MatMul, (width, lanes): (usize, usize), io: &OpIo, to: &mut Lowering) {
    let (parameters, types) = interface(op, io);
    let body = format!(
        "thin_columns<{types}, {width}, {}u, {}u, {}, {lanes}, {}u, {}u, {}u, {}u, {}>(a, b, bias, y);",
        op.rows, op.inner, op.columns, op.a.row, op.b.row, op.b.column, op.c.row, op.bias
    );
    to.launch(KernelFile::GemmThin, parameters, body, walk(op.rows, 256 / lanes, to.target.multiprocessors));
}

fn thin_terms(op: &MatMul, (width, lanes): (usize, usize), io: &OpIo, to: &mut Lowering) {
    let (parameters, types) = interface(op, io);
    let body = format!(
        "thin_terms<{types}, {width}, {}u, {}, {}u, {}u, {}u, {}u, {}u, {}u, {}>(a, b, bias, y);",
        op.rows, op.inner, op.columns, op.a.row, op.a.column, op.b.row, op.b.column, op.c.row, op.bias
    );
    to.launch(KernelFile::GemmThin, parameters, body, walk(op.rows, 256 / lanes, to.target.multiprocessors));
}

/// Grid of blocks that iterate over rows, `each` at a time: enough to occupy the device, each with several iterations.
fn walk(rows: usize, each: usize, multiprocessors: u32) -> [u32; 3] {
    [rows.div_ceil(each).min(16 * multiprocessors as usize) as u32, 1, 1]
}

fn gradient(op: &MatMul, second: bool, (pack, chunks): (usize, usize), io: &OpIo, to: &mut Lowering) {
    let (a, b, y) = (io.inputs[0], io.inputs[1], io.outputs[0]);
    let first = (a, op.rows, op.a.column, op.c.row);
    let last = (b, op.columns, op.b.row, 1);
    let ((wide, width, wide_row, wide_step), (thin, count, thin_row, thin_step)) =
        if second { (first, last) } else { (last, first) };
    let tickets = to.ticket(usize::from(chunks > 1));
    let names = [wide, thin, y].map(|value| value.scalar.name());
    let values = Parameters::new().reads("wide", wide).reads("thin", thin).writes("y", y);
    let parameters = values.scratch("partial", io.scratch).tickets("ticket", tickets);
    let body = format!(
        "thin_gradients<{}, {pack}, {}u, {width}u, {count}, {wide_row}u, {thin_row}u, {wide_step}u, {thin_step}u, {chunks}u>(wide, thin, \
         y, partial, ticket);",
        names.join(", "),
        op.inner
    );
    to.launch(KernelFile::GemmThin, parameters, body, [chunks as u32, 1, 1]);
}

fn shared_matrix(op: &MatMul, rows: bool, io: &OpIo, to: &mut Lowering) {
    let (m, x, y) = (io.inputs[0], io.inputs[1], io.outputs[0]);
    let names = [m, x, y].map(|value| value.scalar.name());
    let parameters = Parameters::new().reads("m", m).reads("x", x).writes("y", y);
    let body = format!(
        "{}<{}, {}u, {}u, {}u, {}u, {}u>(m, x, y);",
        if rows { "thin_rows" } else { "thin_inputs" },
        names.join(", "),
        op.rows,
        op.inner,
        op.columns,
        op.a.row,
        op.a.column
    );
    let grid = [(op.columns / TILE) as u32, op.batch[0] as u32, 1];
    to.launch(KernelFile::GemmThin, parameters, body, grid);
}
