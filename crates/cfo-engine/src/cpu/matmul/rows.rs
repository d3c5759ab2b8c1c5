//! Products whose left side lies in dense rows, which are read where they are.

use super::{Block, Product, Way, panel_width};
use crate::cpu::gemm::{
    Matrix, Rows, SHEET, Shared, Target, Vector, Work, for_each_task, multiply_tile, pack_panel, prefetch,
};
use crate::cpu::real::Real;

/// Rows that one task multiplies with packed panels.
pub(super) const BLOCK: usize = 96;
/// Rows up to which every task packs its own panel: then it is read so few times that it should not leave the cache.
pub(super) const FEW: usize = 192;
/// Inner steps after which sums go to memory, so that a panel stays near.
const INNER: usize = 320;

/// Steps of each run of the inner sum.
fn run_length(inner: usize) -> usize {
    super::even(inner, INNER, 16)
}

/// Elements of the panel that a task packs for itself.
pub(super) fn own_elements(product: &Product) -> usize {
    run_length(product.inner) * SHEET
}

/// Packs all right sides.
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

impl<T: Real> Work<T> for Packing<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let p = self.product;
        let [_, q] = p.packed();
        let start = (self.matrix / q) * p.b.batch[0] + (self.matrix % q) * p.b.batch[1];
        let columns = self.group * SHEET..p.columns.min((self.group + 1) * SHEET);
        for column in columns.clone().step_by(V::SHEET) {
            let left = columns.end - column;
            let width = panel_width::<V>(left);
            // SAFETY: the graph checked that the operand holds what its strides reach; the scratch memory was planned
            // for all panels, and every task writes its own.
            unsafe {
                let start = self.b.as_ptr().add(start + column * p.b.column);
                let from = Matrix { start, row: p.b.row, column: p.b.column };
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
    /// The panel that starts at a column, from some inner step on, packed before or now.
    ///
    /// # Safety
    /// The column and the steps exist.
    #[inline(always)]
    unsafe fn panel<V: Vector<Scalar = T>>(
        &mut self,
        column: usize,
        [valid, width]: [usize; 2],
        steps: &std::ops::Range<usize>,
    ) -> *const T {
        let p = self.block.product;
        // SAFETY: the panels were planned for all columns, and a lane for one of them.
        unsafe {
            if p.way == Way::Packed {
                let ([i, j], distinct) = (self.block.matrices(), p.packed());
                let matrix = (i % distinct[0]) * distinct[1] + j % distinct[1];
                let start = matrix * p.sheet_elements() + column * p.inner + steps.start * width;
                return self.block.shared.pointer().add(start).cast_const();
            }
            let start = self.block.start(&p.b) + column * p.b.column + steps.start * p.b.row;
            let from = Matrix { start: self.block.b.as_ptr().add(start), row: p.b.row, column: p.b.column };
            pack_panel::<V>(from, steps.len(), valid, width, self.lane.as_mut_ptr());
            self.lane.as_ptr()
        }
    }
}

impl<T: Real> Work<T> for ByRows<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(mut self) {
        let p = self.block.product;
        let (range, columns) = (self.block.rows(), self.block.columns());
        let length = run_length(p.inner);
        // SAFETY: the graph checked that every operand holds the elements its strides reach, panels are packed before
        // they are read, and tasks write disjoint parts of the output.
        unsafe {
            let a = self.block.a.as_ptr().add(self.block.start(&p.a));
            let c = self.block.c.pointer().add(self.block.start(&p.c));
            // A sum of nothing is computed too: it is zero.
            for first in (0..p.inner.max(1)).step_by(length) {
                let steps = first..p.inner.min(first + length);
                // The kernels read many rows at once, which the processor does not foresee.
                for row in range.clone() {
                    for k in steps.clone().step_by(64 / size_of::<T>()) {
                        prefetch(a.wrapping_add(row * p.a.row + k));
                    }
                }
                for column in columns.clone().step_by(V::SHEET) {
                    let left = columns.end - column;
                    let width = panel_width::<V>(left);
                    let valid = width.min(left);
                    let b = self.panel::<V>(column, [valid, width], &steps);
                    for row in range.clone().step_by(V::TILE) {
                        let rows = V::TILE.min(range.end - row);
                        let mut starts = [a; 8];
                        for (r, start) in starts[..rows].iter_mut().enumerate() {
                            *start = a.add((row + r) * p.a.row + first);
                        }
                        let to = c.add(row * p.c.row + column);
                        let c = Target::strided(to, p.c.row, valid, first > 0);
                        let (a, inner) = (starts.as_ptr(), steps.len());
                        multiply_tile::<V>(rows, width, &Rows { a, taps: 1, inner, b, b_stride: width, c });
                    }
                }
            }
        }
    }
}
