//! Small products inside a task of another operation.
#![allow(unsafe_code)]

use super::panel_width;
use crate::gemm::{
    Ahead, Columns, Destination, InnerRun, Rows, SHEET, Strided, Vector, VectorWork, multiply_tile,
    multiply_tile_columns, pack_panel,
};
use crate::scalar::Real;

/// Number of elements of the panel of a product per inner step.
pub(crate) const LOCAL_PANEL: usize = SHEET;

/// `c = a b`, or `c += a b`. Rows or columns of `a` are contiguous, and rows of `c`.
pub(crate) struct Local<T> {
    /// Number of rows, inner steps and columns.
    pub(crate) sizes: [usize; 3],
    pub(crate) a: Strided<T>,
    pub(crate) b: Strided<T>,
    /// Start of the result, and the distance of its rows.
    pub(crate) c: (*mut T, usize),
    pub(crate) accumulate: bool,
    /// Memory for [`LOCAL_PANEL`] elements per inner step.
    pub(crate) panel: *mut T,
}

impl<T: Real> Local<T> {
    /// Computes the product.
    ///
    /// # Safety
    /// Every element within reach of sizes and strides exists, and only the caller writes the result and the panel.
    pub(crate) unsafe fn run(self) {
        T::dispatch(self);
    }
}

impl<T: Real> VectorWork<T> for Local<T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let [rows, inner, columns] = self.sizes;
        let (a, b, (c, c_row)) = (self.a, self.b, self.c);
        let segment = InnerRun { a: 0, b: 0, length: inner };
        for column in (0..columns).step_by(V::SHEET) {
            let width = panel_width::<V>(columns - column);
            let valid = width.min(columns - column);
            // SAFETY: as `Local::run` requires.
            unsafe {
                let from = Strided { start: b.start.add(column * b.column), ..b };
                // A contiguous panel is read without packing.
                let (b, b_stride) = match from.column == 1 && valid == width {
                    true => (from.start, from.row),
                    false => {
                        pack_panel::<V>(from, inner, valid, width, self.panel);
                        (self.panel.cast_const(), width)
                    }
                };
                for row in (0..rows).step_by(V::TILE) {
                    let count = V::TILE.min(rows - row);
                    let c = Destination::strided(c.add(row * c_row + column), c_row, valid, self.accumulate);
                    if a.column == 1 {
                        let mut starts = [a.start; 8];
                        for (r, start) in starts[..count].iter_mut().enumerate() {
                            *start = a.start.add((row + r) * a.row);
                        }
                        let a = starts.as_ptr();
                        multiply_tile::<V>(
                            count,
                            width,
                            &Rows { a, taps: 1, inner, b, b_stride, c, ahead: Ahead::nothing() },
                        );
                    } else {
                        let (segments, a, a_stride) =
                            (&raw const segment, a.start.add(row * a.row), a.column);
                        let tile = Columns { segments, count: 1, a, a_stride, b, b_stride, c };
                        multiply_tile_columns::<V>(count, width, &tile);
                    }
                }
            }
        }
    }
}
