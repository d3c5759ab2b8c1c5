//! Matrix products: the right side is packed into panels, rows are cut into fixed blocks.
#![allow(unsafe_code)]

use super::Io;
use super::expression::unary;
use super::gemm::{
    Columns, Matrix, Rows, Segment, Shared, Target, Vector, WIDEST, Work, for_each_task, multiply_columns,
    multiply_rows, pack,
};
use super::real::Real;
use super::simd::vectorized;
use crate::ops::{Activation, MatMul, Operand};

/// Rows that one task multiplies.
const ROWS: usize = 64;
/// Tasks below which columns are divided too.
const TASKS: usize = 8;
/// Inner steps after which sums of a transposed left side go to memory, so that panels stay in the first cache.
const INNER: usize = 256;

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
        let group = panels.div_ceil(TASKS.div_ceil(blocks).min(panels));
        Self { batch, rows, inner, columns, a, b, c, group }
    }

    /// Right sides that differ, along both batch axes.
    fn packed(&self) -> [usize; 2] {
        [0, 1].map(|axis| if self.b.batch[axis] == 0 { 1 } else { self.batch[axis] })
    }
}

/// Real elements of scratch memory.
pub(super) fn scratch(op: &MatMul) -> usize {
    let product = Product::new(op);
    let [p, q] = product.packed();
    p * q * product.inner * product.columns.next_multiple_of(WIDEST)
}

pub(super) fn run<T: Real>(op: &MatMul, io: &Io<'_>) {
    let product = Product::new(op);
    let (a, b) = match op.c.column {
        1 => (io.input::<T>(0), io.input::<T>(1)),
        _ => (io.input::<T>(1), io.input::<T>(0)),
    };
    let panels = Shared::new(io.scratch::<T>());
    let [p, q] = product.packed();
    let groups = product.columns.div_ceil(WIDEST * product.group);
    for_each_task(p * q * groups, &mut [], 0, |task, _: &mut [T]| {
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
    for_each_task(tasks, &mut [], 0, |task, _: &mut [T]| {
        let (matrix, rest) = (task / (blocks * groups), task % (blocks * groups));
        let block =
            Block { product: &product, a, panels, c, matrix, rows: rest / groups, group: rest % groups };
        epilogue.apply(&block, || T::dispatch(block));
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

impl<T: Real> Work<T> for Block<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let p = self.product;
        let [i, j] = self.at();
        let distinct = p.packed();
        let matrix = (i % distinct[0]) * distinct[1] + j % distinct[1];
        let whole = p.inner * p.columns.next_multiple_of(WIDEST);
        let (range, columns) = (self.row_range(), self.column_range());
        // SAFETY: the graph checked that every operand holds the elements its strides reach, the panels were packed
        // before, and tasks write disjoint parts of the output.
        unsafe {
            let a = self.a.as_ptr().add(self.start(&p.a));
            let c = self.c.pointer().add(self.start(&p.c));
            for column in columns.clone().step_by(V::PANEL) {
                let valid = V::PANEL.min(columns.end - column);
                let b = self.panels.pointer().add(matrix * whole + column * p.inner).cast_const();
                for row in range.clone().step_by(V::ROWS) {
                    let rows = V::ROWS.min(range.end - row);
                    let target = |accumulate: bool| {
                        Target::strided(c.add(row * p.c.row + column), p.c.row, valid, accumulate)
                    };
                    if p.a.column == 1 {
                        let mut starts = [a; 8];
                        for (r, start) in starts[..rows].iter_mut().enumerate() {
                            *start = a.add((row + r) * p.a.row);
                        }
                        multiply_rows::<V>(
                            rows,
                            &Rows {
                                a: starts.as_ptr(),
                                taps: 1,
                                inner: p.inner,
                                b,
                                b_stride: V::PANEL,
                                c: target(false),
                            },
                        );
                        continue;
                    }
                    for first in (0..p.inner.max(1)).step_by(INNER) {
                        let length = INNER.min(p.inner - first);
                        let segment = Segment { a: first * p.a.column, b: first * V::PANEL, length };
                        multiply_columns::<V>(
                            rows,
                            &Columns {
                                segments: &segment,
                                count: 1,
                                a: a.add(row),
                                a_stride: p.a.column,
                                b,
                                b_stride: V::PANEL,
                                c: target(first > 0),
                            },
                        );
                    }
                }
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
