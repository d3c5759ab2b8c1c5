//! Matrix products, in four algorithms that depend only on the sizes:
//!
//! - Many rows: the right side is packed into panels once for all tasks.
//! - Few rows: each task packs the panels that it needs.
//! - Very few rows: the right side is not packed.
//! - A transposed left side, as in weight gradients: tasks pack both sides. A long inner sum is divided into parts that
//!   are added in order.
#![allow(unsafe_code)]

mod columns;
mod epilogue;
mod few;
mod local;
mod rows;

use super::Io;
use super::gemm::{SHEET, Shared, Vector, for_each_task, lanes};
use super::scalar::Real;
use cfo_engine::ops::{MatMul, Operand};
use epilogue::MatMulEpilogue;
pub(super) use local::{LOCAL_PANEL, Local};

/// Number of tasks below which columns are divided too.
const TASKS: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    /// Many contiguous rows of the left side: the right side is packed first.
    Packed,
    /// Few contiguous rows: every task packs the columns that it multiplies.
    Own,
    /// Very few contiguous rows: packing would not be worth while.
    Few,
    /// Contiguous columns of the left side.
    Columns,
}

/// The product with its output in rows. A transposed output is computed as the transposed product.
#[derive(Clone, Copy, Debug)]
struct Product {
    batch: [usize; 2],
    rows: usize,
    inner: usize,
    columns: usize,
    a: Operand,
    b: Operand,
    c: Operand,
    algorithm: Algorithm,
    /// Maximum number of rows and of columns per task.
    block: [usize; 2],
    /// Number of parts of the inner sum, one per task.
    parts: usize,
}

impl Product {
    fn new(op: &MatMul) -> Self {
        let (batch, inner) = (op.batch, op.inner);
        let straight = op.c.column == 1;
        let (rows, columns) = if straight { (op.rows, op.columns) } else { (op.columns, op.rows) };
        let (a, b) = if straight { (op.a, op.b) } else { (op.b.transposed(), op.a.transposed()) };
        let c = if straight { op.c } else { op.c.transposed() };
        let algorithm = match rows {
            _ if a.column != 1 => Algorithm::Columns,
            1..=few::ROWS => Algorithm::Few,
            0..=rows::FEW => Algorithm::Own,
            _ => Algorithm::Packed,
        };
        let most = match algorithm {
            Algorithm::Packed => [rows::BLOCK, columns.next_multiple_of(SHEET)],
            Algorithm::Own => [rows::FEW, SHEET],
            Algorithm::Few => [few::ROWS, few::columns(b.column == 1)],
            Algorithm::Columns => columns::BLOCK,
        };
        let block = [
            even(rows, most[0], 1),
            even(columns, most[1], if algorithm == Algorithm::Few { 1 } else { SHEET }),
        ];
        let mut product = Self { batch, rows, inner, columns, a, b, c, algorithm, block, parts: 1 };
        if algorithm == Algorithm::Columns && product.tasks() < TASKS && batch == [1, 1] {
            product.parts = columns::parts(inner);
        }
        if algorithm == Algorithm::Packed || algorithm == Algorithm::Columns {
            let wanted = TASKS.div_ceil(product.parts * product.tasks().max(1));
            let divided = columns.div_ceil(wanted).next_multiple_of(SHEET);
            product.block[1] = product.block[1].min(divided);
        }
        product
    }

    /// Number of blocks of rows and of columns.
    fn blocks(&self) -> [usize; 2] {
        [self.rows.div_ceil(self.block[0].max(1)), self.columns.div_ceil(self.block[1].max(1))]
    }

    fn tasks(&self) -> usize {
        self.batch[0] * self.batch[1] * self.blocks()[0] * self.blocks()[1]
    }

    /// Number of different right sides along both batch axes.
    fn packed(&self) -> [usize; 2] {
        [0, 1].map(|axis| if self.b.batch[axis] == 0 { 1 } else { self.batch[axis] })
    }

    fn sheet_elements(&self) -> usize {
        self.inner * self.columns.next_multiple_of(SHEET)
    }

    /// Number of elements that are packed for all tasks, or of the parts of the result.
    fn shared_elements(&self) -> usize {
        match self.algorithm {
            Algorithm::Packed => self.packed()[0] * self.packed()[1] * self.sheet_elements(),
            Algorithm::Columns if self.parts > 1 => self.parts * self.rows * self.columns,
            _ => 0,
        }
    }

    /// Number of elements in which a task packs.
    fn lane_elements(&self) -> usize {
        match self.algorithm {
            Algorithm::Own => rows::own_elements(self),
            Algorithm::Columns => columns::lane_elements(self),
            _ => 0,
        }
    }
}

/// Divides `whole` into equal blocks of at most `most`, each a multiple of `unit` if that divides `most`.
fn even(whole: usize, most: usize, unit: usize) -> usize {
    let blocks = whole.div_ceil(most).max(1);
    whole.div_ceil(blocks).next_multiple_of(unit).max(1)
}

pub(super) fn scratch(op: &MatMul) -> usize {
    let product = Product::new(op);
    product.shared_elements() + lanes() * product.lane_elements()
}

pub(super) fn run<T: Real>(op: &MatMul, io: &Io<'_>) {
    let product = Product::new(op);
    let (a, b) = match op.c.column {
        1 => (io.input::<T>(0), io.input::<T>(1)),
        _ => (io.input::<T>(1), io.input::<T>(0)),
    };
    let (shared, lanes) = io.scratch::<T>().split_at_mut(product.shared_elements());
    let shared = Shared::new(shared);
    if product.algorithm == Algorithm::Packed {
        rows::pack_all(&product, b, shared);
    }
    let epilogue = MatMulEpilogue::new(op, io);
    let c = Shared::new(io.output::<T>(0));
    let [blocks, groups] = product.blocks();
    for_each_task(product.parts * product.tasks(), lanes, product.lane_elements(), |task, lane| {
        let (part, task) = (task / product.tasks(), task % product.tasks());
        let (matrix, rest) = (task / (blocks * groups), task % (blocks * groups));
        let at = [rest / groups, rest % groups];
        let block = Block { product: &product, a, b, shared, c, matrix, part, at };
        match product.algorithm {
            Algorithm::Packed | Algorithm::Own => T::dispatch(rows::ByRows { block, lane }),
            Algorithm::Few => T::dispatch(few::StreamedProduct { block }),
            Algorithm::Columns => T::dispatch(columns::ByColumns { block, lane }),
        }
        if product.parts == 1 {
            epilogue.apply(&block);
        }
    });
    if product.parts > 1 {
        // SAFETY: the tasks are finished, and nothing else uses the scratch memory.
        columns::add_parts(&product, unsafe { shared.range(0..product.shared_elements()) }, c);
        let whole = Product { block: [product.rows, product.columns], parts: 1, ..product };
        epilogue.apply(&Block { product: &whole, a, b, shared, c, matrix: 0, part: 0, at: [0, 0] });
    }
}

/// The part of one task: some rows and columns of one matrix of the batch.
#[derive(Clone, Copy)]
struct Block<'a, T> {
    product: &'a Product,
    a: &'a [T],
    b: &'a [T],
    shared: Shared<T>,
    c: Shared<T>,
    matrix: usize,
    part: usize,
    at: [usize; 2],
}

impl<T> Block<'_, T> {
    /// Indices of the matrix along both batch axes.
    fn matrices(&self) -> [usize; 2] {
        [self.matrix / self.product.batch[1], self.matrix % self.product.batch[1]]
    }

    fn start(&self, operand: &Operand) -> usize {
        let [p, q] = self.matrices();
        operand.batch[0] * p + operand.batch[1] * q
    }

    fn rows(&self) -> std::ops::Range<usize> {
        let size = self.product.block[0];
        self.at[0] * size..self.product.rows.min((self.at[0] + 1) * size)
    }

    fn columns(&self) -> std::ops::Range<usize> {
        let size = self.product.block[1];
        self.at[1] * size..self.product.columns.min((self.at[1] + 1) * size)
    }
}

/// Number of columns of the panel for the last `left` columns: a whole panel, or one vector if that is enough.
#[inline(always)]
fn panel_width<V: Vector>(left: usize) -> usize {
    if left <= V::WIDTH { V::WIDTH } else { V::SHEET }
}
