//! Products whose left side has contiguous columns: both sides are packed, some inner steps at a time.

use super::{Block, Product, panel_width};
use crate::gemm::{
    Columns, Destination, InnerRun, SHEET, Shared, Strided, Vector, VectorWork, multiply_tile_columns,
    pack_panel, pack_runs,
};
use crate::scalar::Real;
use crate::simd::add;
use crate::thread_team::chunks;

/// Rows and columns of the result per task: both packed sides fit into the second-level cache.
pub(super) const BLOCK: [usize; 2] = [256, 4 * SHEET];
/// Inner steps that are packed at a time: a panel of this length fits into the first-level cache.
const INNER: usize = 128;
/// Largest number of inner steps for which nothing is packed: the result is written once, at the speed of memory.
const OUTER: usize = 4;
/// Number of elements that one task adds when parts of a result are combined.
const TASK: usize = 1 << 12;

/// Number of parts of a long inner sum, where the result alone has too few tasks.
pub(super) fn parts(inner: usize) -> usize {
    match inner {
        0..1024 => 1,
        1024..4096 => 4,
        _ => 8,
    }
}

/// Distance of the inner steps of the packed left side: an odd number of cache lines, so that steps use different ones.
fn left_stride(rows: usize) -> usize {
    (rows.div_ceil(16) | 1) * 16
}

/// Number of elements in which a task packs the left side and one panel of the right.
pub(super) fn lane_elements(product: &Product) -> usize {
    INNER.min(product.inner.max(1)) * (left_stride(product.block[0]) + SHEET)
}

pub(super) struct ByColumns<'a, T> {
    pub(super) block: Block<'a, T>,
    pub(super) lane: &'a mut [T],
}

impl<T: Real> ByColumns<'_, T> {
    /// Destination of the block's sums and the distance of its rows.
    ///
    /// # Safety
    /// The block exists.
    unsafe fn target(&self) -> (*mut T, usize) {
        let p = self.block.product;
        // SAFETY: parts and output hold all blocks.
        unsafe {
            match p.parts {
                1 => (self.block.c.pointer().add(self.block.start(&p.c)), p.c.row),
                _ => (self.block.shared.pointer().add(self.block.part * p.rows * p.columns), p.columns),
            }
        }
    }
}

impl<T: Real> ByColumns<'_, T> {
    /// The product of few inner steps, as a sum of outer products.
    #[inline(always)]
    unsafe fn outer<V: Vector<Scalar = T>>(&self) {
        let p = self.block.product;
        let columns = self.block.columns();
        // Columns of the right side that are not contiguous are read one by one.
        let whole = if p.b.column == 1 { columns.len() / V::WIDTH * V::WIDTH } else { 0 };
        // SAFETY: the graph checked that every operand contains the elements within reach of its strides.
        unsafe {
            let a = self.block.a.as_ptr().add(self.block.start(&p.a));
            let b = self.block.b.as_ptr().add(self.block.start(&p.b) + columns.start * p.b.column);
            let (c, c_row) = self.target();
            for row in self.block.rows() {
                let to = c.add(row * c_row + columns.start);
                let mut factors = [V::splat(T::ZERO); OUTER];
                for (k, factor) in factors[..p.inner].iter_mut().enumerate() {
                    *factor = V::splat(*a.add(row + k * p.a.column));
                }
                for j in (0..whole).step_by(V::WIDTH) {
                    let mut sum = V::splat(T::ZERO);
                    for (k, factor) in factors[..p.inner].iter().enumerate() {
                        sum = factor.multiply_add(V::load(b.add(k * p.b.row + j)), sum);
                    }
                    sum.store(to.add(j));
                }
                for j in whole..columns.len() {
                    let term = |k: usize| *a.add(row + k * p.a.column) * *b.add(k * p.b.row + j * p.b.column);
                    *to.add(j) = (0..p.inner).map(term).sum();
                }
            }
        }
    }
}

impl<T: Real> VectorWork<T> for ByColumns<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let p = self.block.product;
        if p.inner <= OUTER {
            // SAFETY: by the caller.
            return unsafe { self.outer::<V>() };
        }
        let (range, columns) = (self.block.rows(), self.block.columns());
        let stride = left_stride(range.len());
        let runs = p.inner.div_ceil(INNER).max(1);
        let own = self.block.part * runs / p.parts..(self.block.part + 1) * runs / p.parts;
        // SAFETY: the graph checked that every operand contains the elements within reach of its strides. There is
        // memory for both packed sides, and tasks write disjoint parts of the output.
        unsafe {
            let (c, c_row) = self.target();
            let a = self.block.a.as_ptr().add(self.block.start(&p.a) + range.start);
            let (left, right) = self.lane.split_at_mut(INNER.min(p.inner.max(1)) * stride);
            for run in own.clone() {
                let first = run * INNER;
                let length = INNER.min(p.inner - first);
                let to = (left.as_mut_ptr(), stride);
                pack_runs::<V>((a.add(first * p.a.column), p.a.column), (length, range.len()), to);
                let segment = InnerRun { a: 0, b: 0, length };
                for column in columns.clone().step_by(V::SHEET) {
                    let width = panel_width::<V>(columns.end - column);
                    let valid = width.min(columns.end - column);
                    let start = self.block.start(&p.b) + first * p.b.row + column * p.b.column;
                    let start = self.block.b.as_ptr().add(start);
                    let from = Strided { start, row: p.b.row, column: p.b.column };
                    let b = right.as_mut_ptr();
                    pack_panel::<V>(from, length, valid, width, b);
                    for row in range.clone().step_by(V::TILE) {
                        let to = c.add(row * c_row + column);
                        let tile = Columns {
                            segments: &segment,
                            count: 1,
                            a: left.as_ptr().add(row - range.start),
                            a_stride: stride,
                            b,
                            b_stride: width,
                            c: Destination::strided(to, c_row, valid, run > own.start),
                        };
                        multiply_tile_columns::<V>(V::TILE.min(range.end - row), width, &tile);
                    }
                }
            }
        }
    }
}

/// Adds the parts of a result in order.
pub(super) fn add_parts<T: Real>(product: &Product, parts: &mut [T], c: Shared<T>) {
    let size = product.rows * product.columns;
    let (first, rest) = parts.split_at_mut(size);
    let rest = &*rest;
    let rows = (TASK / product.columns.max(1)).max(1);
    chunks(first, rows * product.columns, |task, sums| {
        let start = task * rows * product.columns;
        for part in rest.chunks_exact(size) {
            add(&part[start..start + sums.len()], sums);
        }
        for (i, sums) in sums.chunks_exact(product.columns).enumerate() {
            let at = (task * rows + i) * product.c.row;
            // SAFETY: tasks write disjoint rows.
            unsafe { c.range(at..at + product.columns) }.copy_from_slice(sums);
        }
    });
}
