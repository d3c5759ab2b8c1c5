//! Products whose left side has contiguous rows, which are read without packing.

use std::ops::Range;

use super::{Algorithm, Block, Product, panel_width};
use crate::gemm::{
    AHEAD_STEPS, Ahead, Destination, Rows, SHEET, Shared, Strided, Vector, VectorWork, for_each_task,
    multiply_tile, pack_panel, prefetch,
};
use crate::scalar::Real;

/// Number of rows that one task multiplies with packed panels.
pub(super) const BLOCK: usize = 96;
/// Largest number of rows for which every task packs its own panel, which then stays in the cache.
pub(super) const FEW: usize = 192;
/// Inner steps after which sums are written to memory, so that a panel stays in the cache: the second-level one if it
/// was packed for all tasks, the first-level one if it has just been packed.
const INNER: [usize; 2] = [320, 128];

fn run_length(product: &Product) -> usize {
    super::even(product.inner, INNER[usize::from(product.algorithm == Algorithm::Own)], 16)
}

/// Number of elements of the panel that a task packs for itself.
pub(super) fn own_elements(product: &Product) -> usize {
    run_length(product) * SHEET
}

pub(super) fn pack_all<T: Real>(product: &Product, b: &[T], panels: Shared<T>) {
    let groups = product.columns.div_ceil(SHEET);
    for_each_task(product.packed()[0] * product.packed()[1] * groups, &mut [], 0, |task, _: &mut [T]| {
        T::dispatch(Packing { product, b, panels, matrix: task / groups, group: task % groups });
    });
}

struct Packing<'a, T> {
    product: &'a Product,
    b: &'a [T],
    panels: Shared<T>,
    matrix: usize,
    group: usize,
}

impl<T: Real> VectorWork<T> for Packing<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let p = self.product;
        let [_, q] = p.packed();
        let start = (self.matrix / q) * p.b.batch[0] + (self.matrix % q) * p.b.batch[1];
        let columns = self.group * SHEET..p.columns.min((self.group + 1) * SHEET);
        for column in columns.clone().step_by(V::SHEET) {
            let left = columns.end - column;
            let width = panel_width::<V>(left);
            // SAFETY: the graph checked that the operand contains the elements within reach of its strides. The scratch
            // memory holds all panels, and tasks write disjoint ones.
            unsafe {
                let start = self.b.as_ptr().add(start + column * p.b.column);
                let from = Strided { start, row: p.b.row, column: p.b.column };
                let to = self.panels.pointer().add(self.matrix * p.sheet_elements() + column * p.inner);
                pack_panel::<V>(from, p.inner, width.min(left), width, to);
            }
        }
    }
}

pub(super) struct ByRows<'a, T> {
    pub(super) block: Block<'a, T>,
    pub(super) lane: &'a mut [T],
}

impl<T: Real> ByRows<'_, T> {
    /// The panel that starts at a column and an inner step, packed before or now.
    ///
    /// # Safety
    /// The column and the steps exist.
    #[inline(always)]
    unsafe fn panel<V: Vector<Scalar = T>>(
        &mut self,
        column: usize,
        [valid, width]: [usize; 2],
        steps: &Range<usize>,
    ) -> *const T {
        let p = self.block.product;
        // SAFETY: there is memory for the panels of all columns, and a lane holds one of them.
        unsafe {
            if p.algorithm == Algorithm::Packed {
                let ([i, j], distinct) = (self.block.matrices(), p.packed());
                let matrix = (i % distinct[0]) * distinct[1] + j % distinct[1];
                let start = matrix * p.sheet_elements() + column * p.inner + steps.start * width;
                return self.block.shared.pointer().add(start).cast_const();
            }
            let start = self.block.start(&p.b) + column * p.b.column + steps.start * p.b.row;
            let from = Strided { start: self.block.b.as_ptr().add(start), row: p.b.row, column: p.b.column };
            pack_panel::<V>(from, steps.len(), valid, width, self.lane.as_mut_ptr());
            self.lane.as_ptr()
        }
    }
}

impl<T: Real> Block<'_, T> {
    /// Address of the next panel to pack, for prefetching; `asked` pieces of it have been prefetched.
    #[inline(always)]
    fn ahead<V: Vector<Scalar = T>>(&self, column: usize, steps: &Range<usize>, asked: usize) -> Ahead<T> {
        let p = self.product;
        if p.algorithm == Algorithm::Packed {
            return Ahead::nothing();
        }
        let (column, step) = match steps.end < p.inner {
            true => (column, steps.end),
            false => (column + V::SHEET, 0),
        };
        // A piece is a row of the panel or, if columns are contiguous, an equal part of one of its columns.
        let at = match p.b.column {
            1 => [step + asked, column],
            _ => [step + asked / V::SHEET * V::SHEET, column + asked % V::SHEET],
        };
        let start = self.start(&p.b) + at[0] * p.b.row + at[1] * p.b.column;
        Ahead { start: self.b.as_ptr().wrapping_add(start), stride: p.b.row.max(p.b.column) }
    }
}

impl<T: Real> VectorWork<T> for ByRows<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(mut self) {
        let p = self.block.product;
        let (range, columns) = (self.block.rows(), self.block.columns());
        let length = run_length(p);
        // SAFETY: the graph checked that every operand contains the elements within reach of its strides. Panels are
        // packed before they are read, and tasks write disjoint parts of the output.
        unsafe {
            let a = self.block.a.as_ptr().add(self.block.start(&p.a));
            let c = self.block.c.pointer().add(self.block.start(&p.c));
            // An empty sum is computed too: it is zero.
            for first in (0..p.inner.max(1)).step_by(length) {
                let steps = first..p.inner.min(first + length);
                if p.algorithm == Algorithm::Packed {
                    // The kernels read many rows at once, which the hardware does not prefetch. Few rows are in the
                    // cache since the first panel.
                    for row in range.clone() {
                        for k in steps.clone().step_by(64 / size_of::<T>()) {
                            prefetch(a.wrapping_add(row * p.a.row + k));
                        }
                    }
                }
                for column in columns.clone().step_by(V::SHEET) {
                    let left = columns.end - column;
                    let width = panel_width::<V>(left);
                    let valid = width.min(left);
                    let b = self.panel::<V>(column, [valid, width], &steps);
                    let mut asked = 0;
                    for row in range.clone().step_by(V::TILE) {
                        let rows = V::TILE.min(range.end - row);
                        let mut starts = [a; 8];
                        for (r, start) in starts[..rows].iter_mut().enumerate() {
                            *start = a.add((row + r) * p.a.row + first);
                        }
                        let to = c.add(row * p.c.row + column);
                        let c = Destination::strided(to, p.c.row, valid, first > 0);
                        let (a, inner) = (starts.as_ptr(), steps.len());
                        let ahead = self.block.ahead::<V>(column, &steps, asked);
                        asked += inner / AHEAD_STEPS;
                        let product = Rows { a, taps: 1, inner, b, b_stride: width, c, ahead };
                        multiply_tile::<V>(rows, width, &product);
                    }
                }
            }
        }
    }
}
