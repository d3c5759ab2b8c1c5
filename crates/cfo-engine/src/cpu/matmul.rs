//! Matrix products: the right side is packed into panels, rows are cut into fixed blocks.
#![allow(unsafe_code)]

use super::Io;
use super::expression::unary;
use super::gemm::{
    Columns, Matrix, Rows, Segment, Shared, Target, Vector, WIDEST, Work, for_each_task, lanes,
    multiply_columns, multiply_rows, pack, pack_left, prefetch,
};
use super::real::Real;
use super::simd::vectorized;
use crate::ops::{Activation, MatMul, Operand};

/// Rows that one task multiplies.
const ROWS: usize = 64;
/// Tasks below which columns are divided too.
const TASKS: usize = 8;
/// Inner steps after which sums of a transposed left side go to memory: both sides are packed so far at a time.
const INNER: usize = 256;
/// Panels that one task multiplies at most with a transposed left side.
const GROUP: usize = 8;

/// The product with its output in rows: a transposed output is computed as the transposed product.
#[derive(Clone, Copy)]
struct Product {
    batch: [usize; 2],
    rows: usize,
    inner: usize,
    columns: usize,
    a: Operand,
    b: Operand,
    c: Operand,
    /// Panels that one task multiplies.
    group: usize,
}

impl Product {
    fn new(op: &MatMul) -> Self {
        let (batch, inner) = (op.batch, op.inner);
        let straight = op.c.column == 1;
        let (rows, columns) = if straight { (op.rows, op.columns) } else { (op.columns, op.rows) };
        let (a, b) = if straight { (op.a, op.b) } else { (op.b.transposed(), op.a.transposed()) };
        let c = if straight { op.c } else { op.c.transposed() };
        let blocks = rows.div_ceil(ROWS) * batch[0] * batch[1];
        let panels = columns.div_ceil(WIDEST);
        // With a transposed left side every task reads and packs its columns of the right side again.
        let (tasks, most) = if a.column == 1 { (TASKS, panels) } else { (TASKS / 2, GROUP) };
        let group = panels.div_ceil(tasks.div_ceil(blocks).min(panels)).min(most);
        Self { batch, rows, inner, columns, a, b, c, group }
    }

    /// Right sides that differ, along both batch axes.
    fn packed(&self) -> [usize; 2] {
        [0, 1].map(|axis| if self.b.batch[axis] == 0 { 1 } else { self.batch[axis] })
    }

    /// Elements of the right side, packed for all tasks where rows of the left side lie dense.
    fn panel_elements(&self) -> usize {
        let [p, q] = if self.a.column == 1 { self.packed() } else { [0, 0] };
        p * q * self.inner * self.columns.next_multiple_of(WIDEST)
    }

    /// Elements in which a task packs both sides where columns of the left side lie dense.
    fn lane_elements(&self) -> usize {
        match self.a.column {
            1 => 0,
            _ => (ROWS + 8 + self.group * WIDEST) * INNER.min(self.inner.max(1)),
        }
    }
}

/// Real elements of scratch memory.
pub(super) fn scratch(op: &MatMul) -> usize {
    let product = Product::new(op);
    product.panel_elements() + lanes() * product.lane_elements()
}

pub(super) fn run<T: Real>(op: &MatMul, io: &Io<'_>) {
    let product = Product::new(op);
    let (a, b) = match op.c.column {
        1 => (io.input::<T>(0), io.input::<T>(1)),
        _ => (io.input::<T>(1), io.input::<T>(0)),
    };
    let (panels, lanes) = io.scratch::<T>().split_at_mut(product.panel_elements());
    let panels = Shared::new(panels);
    let [p, q] = product.packed();
    let groups = product.columns.div_ceil(WIDEST * product.group);
    let packings = if product.a.column == 1 { p * q * groups } else { 0 };
    for_each_task(packings, &mut [], 0, |task, _: &mut [T]| {
        T::dispatch(Packing { product: &product, b, panels, matrix: task / groups, group: task % groups });
    });
    let epilogue = Epilogue {
        bias: if op.bias { io.input::<T>(2) } else { &[] },
        activation: op.activation,
        kept: op.keep_input.then(|| Shared::new(io.output::<T>(1))),
    };
    let c = Shared::new(io.output::<T>(0));
    let blocks = product.rows.div_ceil(ROWS);
    let tasks = product.batch[0] * product.batch[1] * blocks * groups;
    for_each_task(tasks, lanes, product.lane_elements(), |task, lane| {
        let (matrix, rest) = (task / (blocks * groups), task % (blocks * groups));
        let block =
            Block { product: &product, a, b, panels, c, matrix, rows: rest / groups, group: rest % groups };
        epilogue.apply(&block, || T::dispatch((block, lane)));
    });
}

struct Packing<'a, T> {
    product: &'a Product,
    b: &'a [T],
    panels: Shared<T>,
    matrix: usize,
    group: usize,
}

impl<T: Real> Work<T> for Packing<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let p = self.product;
        let [_, q] = p.packed();
        let start = (self.matrix / q) * p.b.batch[0] + (self.matrix % q) * p.b.batch[1];
        let whole = p.inner * p.columns.next_multiple_of(WIDEST);
        let first = self.group * p.group * WIDEST;
        let last = p.columns.min(first + p.group * WIDEST);
        for column in (first..last).step_by(V::PANEL) {
            // SAFETY: the graph checked that the operand holds what its strides reach; the scratch memory was planned
            // for all panels, and every task writes its own.
            unsafe {
                let from = Matrix {
                    start: self.b.as_ptr().add(start + column * p.b.column),
                    row: p.b.row,
                    column: p.b.column,
                };
                let to = self.panels.pointer().add(self.matrix * whole + column * p.inner);
                pack::<V>(from, p.inner, V::PANEL.min(last - column), to);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Block<'a, T> {
    product: &'a Product,
    a: &'a [T],
    b: &'a [T],
    panels: Shared<T>,
    c: Shared<T>,
    matrix: usize,
    rows: usize,
    group: usize,
}

impl<T> Block<'_, T> {
    fn at(&self) -> [usize; 2] {
        [self.matrix / self.product.batch[1], self.matrix % self.product.batch[1]]
    }

    fn start(&self, operand: &Operand) -> usize {
        let [p, q] = self.at();
        operand.batch[0] * p + operand.batch[1] * q
    }

    fn row_range(&self) -> std::ops::Range<usize> {
        self.rows * ROWS..self.product.rows.min((self.rows + 1) * ROWS)
    }

    fn column_range(&self) -> std::ops::Range<usize> {
        let width = self.product.group * WIDEST;
        self.group * width..self.product.columns.min((self.group + 1) * width)
    }
}

impl<T: Real> Block<'_, T> {
    /// The panel that starts at a column.
    ///
    /// # Safety
    /// The column exists.
    #[inline(always)]
    unsafe fn panel(&self, column: usize) -> *const T {
        let p = self.product;
        let ([i, j], distinct) = (self.at(), p.packed());
        let matrix = (i % distinct[0]) * distinct[1] + j % distinct[1];
        let start = matrix * p.inner * p.columns.next_multiple_of(WIDEST) + column * p.inner;
        // SAFETY: the panels were planned for all columns.
        unsafe { self.panels.pointer().add(start).cast_const() }
    }

    /// A left side whose rows lie dense is read where it is.
    #[inline(always)]
    unsafe fn by_rows<V: Vector<Scalar = T>>(&self) {
        let (p, range, columns) = (self.product, self.row_range(), self.column_range());
        // SAFETY: the graph checked that every operand holds the elements its strides reach, the panels were packed
        // before, and tasks write disjoint parts of the output.
        unsafe {
            let a = self.a.as_ptr().add(self.start(&p.a));
            let c = self.c.pointer().add(self.start(&p.c));
            // The kernels read many rows at once, which the processor does not foresee.
            for row in range.clone() {
                for k in (0..p.inner).step_by(64 / size_of::<T>()) {
                    prefetch(a.wrapping_add(row * p.a.row + k));
                }
            }
            for column in columns.clone().step_by(V::PANEL) {
                let valid = V::PANEL.min(columns.end - column);
                let b = self.panel(column);
                for row in range.clone().step_by(V::ROWS) {
                    let rows = V::ROWS.min(range.end - row);
                    let mut starts = [a; 8];
                    for (r, start) in starts[..rows].iter_mut().enumerate() {
                        *start = a.add((row + r) * p.a.row);
                    }
                    let c = Target::strided(c.add(row * p.c.row + column), p.c.row, valid, false);
                    let a = starts.as_ptr();
                    let product = Rows { a, taps: 1, inner: p.inner, b, b_stride: V::PANEL, c };
                    multiply_rows::<V>(rows, &product);
                }
            }
        }
    }

    /// A left side whose columns lie dense is packed, some columns at a time, and so is the right side.
    #[inline(always)]
    unsafe fn by_columns<V: Vector<Scalar = T>>(&self, lane: &mut [T]) {
        let (p, range, columns) = (self.product, self.row_range(), self.column_range());
        // SAFETY: as above; there is room for the packed rows.
        unsafe {
            let a = self.a.as_ptr().add(self.start(&p.a) + range.start);
            let c = self.c.pointer().add(self.start(&p.c));
            for first in (0..p.inner.max(1)).step_by(INNER) {
                let length = INNER.min(p.inner - first);
                let (left, right) = lane.split_at_mut((ROWS + 8) * length);
                let from = a.add(first * p.a.column);
                pack_left::<V>(from, p.a.column, length, range.len(), left.as_mut_ptr());
                let start = self.start(&p.b) + first * p.b.row;
                for column in columns.clone().step_by(V::PANEL) {
                    let from = Matrix {
                        start: self.b.as_ptr().add(start + column * p.b.column),
                        row: p.b.row,
                        column: p.b.column,
                    };
                    let to = right.as_mut_ptr().add((column - columns.start) * length);
                    pack::<V>(from, length, V::PANEL.min(columns.end - column), to);
                }
                let segment = Segment { a: 0, b: 0, length };
                for column in columns.clone().step_by(V::PANEL) {
                    let valid = V::PANEL.min(columns.end - column);
                    let b = right.as_ptr().add((column - columns.start) * length);
                    for row in range.clone().step_by(V::ROWS) {
                        let to = c.add(row * p.c.row + column);
                        multiply_columns::<V>(
                            V::ROWS.min(range.end - row),
                            &Columns {
                                segments: &segment,
                                count: 1,
                                a: left.as_ptr().add((row - range.start) * length),
                                a_stride: V::ROWS,
                                b,
                                b_stride: V::PANEL,
                                c: Target::strided(to, p.c.row, valid, first > 0),
                            },
                        );
                    }
                }
            }
        }
    }
}

impl<T: Real> Work<T> for (Block<'_, T>, &mut [T]) {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let (block, lane) = self;
        // SAFETY: by the caller: the vector's instructions exist.
        unsafe {
            match block.product.a.column {
                1 => block.by_rows::<V>(),
                _ => block.by_columns::<V>(lane),
            }
        }
    }
}

/// What happens to a block after the product.
struct Epilogue<'a, T> {
    bias: &'a [T],
    activation: Activation,
    kept: Option<Shared<T>>,
}

impl<T: Real> Epilogue<'_, T> {
    fn apply(&self, block: &Block<'_, T>, multiply: impl FnOnce()) {
        let (rows, columns, start) = (block.row_range(), block.column_range(), block.start(&block.product.c));
        multiply();
        if self.bias.is_empty() && self.activation == Activation::Identity {
            return;
        }
        for row in rows {
            let at = start + row * block.product.c.row + columns.start;
            // SAFETY: this task's part of the output, which nobody else touches.
            let c = unsafe { std::slice::from_raw_parts_mut(block.c.pointer().add(at), columns.len()) };
            if !self.bias.is_empty() {
                add_bias(&self.bias[columns.clone()], c);
            }
            if let Some(kept) = self.kept {
                // SAFETY: as above; the second output is laid out like the first.
                unsafe { std::ptr::copy_nonoverlapping(c.as_ptr(), kept.pointer().add(at), c.len()) };
            }
            activate(self.activation, c);
        }
    }
}

vectorized! {
fn add_bias<T>(bias: &[T], row: &mut [T]) {
    for (c, &bias) in row.iter_mut().zip(bias) {
        *c += bias;
    }
}
}

vectorized! {
fn activate<T>(activation: Activation, row: &mut [T]) {
    let Some(function) = activation.function() else { return };
    let mut block = [T::ZERO; 256];
    for row in row.chunks_mut(256) {
        let block = &mut block[..row.len()];
        block.copy_from_slice(row);
        unary(function, block, row);
    }
}
}

/// `c = alpha a b + beta c` for matrices given by pointer, row and column stride; the columns of `c` are dense.
///
/// # Safety
/// Every element that the strides reach must exist.
pub(super) unsafe fn product<T: Real>(
    [m, k, n]: [usize; 3],
    alpha: T,
    (a, a_row, a_column): (*const T, usize, usize),
    (b, b_row, b_column): (*const T, usize, usize),
    beta: T,
    (c, c_row): (*mut T, usize),
) {
    let [ar, ac, br, bc, cr] = [a_row, a_column, b_row, b_column, c_row].map(|stride| stride as isize);
    let (single, alpha, beta) =
        (std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>(), alpha.double(), beta.double());
    // SAFETY: by the caller; `T` is one of the two types compared with.
    unsafe {
        if single {
            let (a, b, c) = (a.cast(), b.cast(), c.cast());
            matrixmultiply::sgemm(m, k, n, alpha as f32, a, ar, ac, b, br, bc, beta as f32, c, cr, 1);
        } else {
            let (a, b, c) = (a.cast(), b.cast(), c.cast());
            matrixmultiply::dgemm(m, k, n, alpha, a, ar, ac, b, br, bc, beta, c, cr, 1);
        }
    }
}
