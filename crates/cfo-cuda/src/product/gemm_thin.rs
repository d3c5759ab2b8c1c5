//! Products with one side of a few elements, such as a network's first and last layers and their gradients: kernels of
//! our own that pass over the long side once.

use crate::program::instruction::{Extras, MatMul};
use crate::program::kernel::File;
use crate::program::launch::{Parameters, vector};
use crate::program::lowering::{Io, Lowering};
use crate::program::scalar::Scalar;
use cfo_engine::ops::Activation;

/// The most elements of a short side, and the fewest of a long one.
const FEW: usize = 8;
const LONG: usize = 1024;
/// Sizes of the side in between.
const MIDDLE: std::ops::RangeInclusive<usize> = 16..=512;
/// Numbers of the short factor that a thread may keep.
const KEPT: usize = 64;

/// Which side is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThinSide {
    Columns,
    Terms,
    /// A gradient of a weight; whether the second factor is the thin one.
    Gradient {
        second: bool,
    },
    /// One matrix of few rows or few columns for a whole batch.
    Shared {
        rows: bool,
    },
}

/// The most elements of the short side of a matrix that a whole batch shares, and of the matrix as it lies in shared memory,
/// beside which the sums of 32 rows have room.
const SHARED: usize = 32;
const MATRIX: usize = 5000;
/// Columns that a block takes; `TILE` of the kernels.
const TILE: usize = 64;

/// The form of a product of one dense matrix with each of a batch of dense matrices.
fn shared(op: &MatMul) -> Option<ThinSide> {
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
    (short <= SHARED && matrix <= MATRIX).then_some(ThinSide::Shared { rows: rows <= inner })
}

fn form(op: &MatMul) -> Option<ThinSide> {
    if let Some(form) = shared(op) {
        return Some(form);
    }
    let extras = Extras { sums: false, ..op.extras };
    let plain = op.batch == [1, 1] && op.activation == Activation::Identity && extras == Extras::default();
    if !plain || op.keep_input || op.c.column != 1 {
        return None;
    }
    let [rows, inner, columns] = [op.rows, op.inner, op.columns];
    if rows >= LONG && columns <= FEW && MIDDLE.contains(&inner) && op.a.column == 1 {
        return Some(ThinSide::Columns);
    }
    if rows >= LONG && inner <= FEW && MIDDLE.contains(&columns) {
        return Some(ThinSide::Terms);
    }
    let gradient = inner >= LONG && op.a.row == 1 && op.b.column == 1 && !op.bias;
    match (gradient, rows, columns) {
        (true, wide, thin) if thin <= FEW && MIDDLE.contains(&wide) => {
            Some(ThinSide::Gradient { second: true })
        }
        (true, thin, wide) if thin <= FEW && MIDDLE.contains(&wide) => {
            Some(ThinSide::Gradient { second: false })
        }
        _ => None,
    }
}

/// Blocks that share the rows of a gradient.
fn chunks(op: &MatMul, multiprocessors: u32) -> usize {
    op.inner.div_ceil(512).clamp(1, 2 * multiprocessors as usize)
}

/// Bytes of scratch memory.
pub(crate) fn scratch(op: &MatMul, multiprocessors: u32) -> usize {
    match form(op) {
        Some(ThinSide::Gradient { .. }) => 4 * chunks(op, multiprocessors) * op.rows * op.columns,
        _ => 0,
    }
}

/// Appends the product if it is one of these; whether it was.
pub(crate) fn lower(op: &MatMul, io: &Io, to: &mut Lowering) -> bool {
    match form(op) {
        Some(ThinSide::Columns) => thin_columns(op, io, to),
        Some(ThinSide::Terms) => thin_terms(op, io, to),
        Some(ThinSide::Shared { rows }) => shared_matrix(op, rows, io, to),
        // Products that stand for convolutions come without scratch memory of their own.
        Some(ThinSide::Gradient { second }) if io.scratch != 0 => gradient(op, second, io, to),
        _ => false,
    }
}

/// Parameters of a product with a bias, and their types.
fn interface(op: &MatMul, io: &Io) -> (Parameters, String) {
    let bias = if op.bias { io.inputs[2] } else { io.inputs[1] };
    let [a, b, y] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    let types = [a, b, bias, y].map(|value| value.scalar.name()).join(", ");
    (Parameters::new().reads("a", a).reads("b", b).reads("bias", bias).writes("y", y), types)
}

fn thin_columns(op: &MatMul, io: &Io, to: &mut Lowering) -> bool {
    let width = vector(io.inputs[0].scalar == Scalar::Bf16, [op.inner, op.a.row]);
    let lanes = (op.inner / width).next_power_of_two().min(32);
    let steps = op.inner.div_ceil(width * lanes);
    if steps * width * op.columns > KEPT {
        return false;
    }
    let (parameters, types) = interface(op, io);
    let body = format!(
        "thin_columns<{types}, {width}, {}u, {}u, {}, {lanes}, {}u, {}u, {}u, {}u, {}>(a, b, bias, y);",
        op.rows, op.inner, op.columns, op.a.row, op.b.row, op.b.column, op.c.row, op.bias
    );
    to.launch(File::GemmThin, parameters, body, walk(op.rows, 256 / lanes, to.multiprocessors));
    true
}

fn thin_terms(op: &MatMul, io: &Io, to: &mut Lowering) -> bool {
    let width = vector(io.outputs[0].scalar == Scalar::Bf16, [op.columns, op.c.row]);
    let lanes = op.columns / width;
    if lanes > 256 || width * op.inner > KEPT {
        return false;
    }
    let (parameters, types) = interface(op, io);
    let body = format!(
        "thin_terms<{types}, {width}, {}u, {}, {}u, {}u, {}u, {}u, {}u, {}u, {}>(a, b, bias, y);",
        op.rows, op.inner, op.columns, op.a.row, op.a.column, op.b.row, op.b.column, op.c.row, op.bias
    );
    to.launch(File::GemmThin, parameters, body, walk(op.rows, 256 / lanes, to.multiprocessors));
    true
}

/// Blocks that walk over rows, so many at a time: enough to fill the device, each with several rounds.
fn walk(rows: usize, each: usize, multiprocessors: u32) -> [u32; 3] {
    [rows.div_ceil(each).min(16 * multiprocessors as usize) as u32, 1, 1]
}

fn gradient(op: &MatMul, second: bool, io: &Io, to: &mut Lowering) -> bool {
    let (a, b, y) = (io.inputs[0], io.inputs[1], io.outputs[0]);
    let first = (a, op.rows, op.a.column, op.c.row);
    let last = (b, op.columns, op.b.row, 1);
    let ((wide, width, wide_row, wide_step), (thin, count, thin_row, thin_step)) =
        if second { (first, last) } else { (last, first) };
    let pack = vector(wide.scalar == Scalar::Bf16, [width, wide_row]);
    if width / pack > 256 || pack * count > KEPT {
        return false;
    }
    let chunks = chunks(op, to.multiprocessors);
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
    to.launch(File::GemmThin, parameters, body, [chunks as u32, 1, 1]);
    true
}

fn shared_matrix(op: &MatMul, rows: bool, io: &Io, to: &mut Lowering) -> bool {
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
    to.launch(File::GemmThin, parameters, body, grid);
    true
}
