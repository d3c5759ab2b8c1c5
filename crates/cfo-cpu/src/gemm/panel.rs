//! Packing of panels of columns in the order in which micro-kernels read them. Unsafe functions need what [`pack_panel`]
//! needs.
#![allow(unsafe_code)]

use super::kernel::prefetch;
use super::vector::Vector;
use crate::scalar::Real;

/// Number of steps by which rows that are far apart are prefetched.
const AHEAD: usize = 16;

/// A matrix somewhere in memory: element `(k, j)` at `start + k * row + j * column`.
pub(crate) struct Strided<T> {
    pub(crate) start: *const T,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

impl<T> Clone for Strided<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Strided<T> {}

impl<T> Strided<T> {
    pub(crate) fn transposed(self) -> Self {
        Self { start: self.start, row: self.column, column: self.row }
    }
}

/// Copies `rows` rows of up to [`Vector::PANEL`] columns, of which `valid` exist; missing columns are zero.
#[inline(always)]
pub(crate) unsafe fn pack<V: Vector>(
    from: Strided<V::Scalar>,
    rows: usize,
    valid: usize,
    to: *mut V::Scalar,
) {
    // SAFETY: by the caller.
    unsafe { pack_panel::<V>(from, rows, valid, V::PANEL, to) }
}

/// Packs a panel of any width that is a multiple of the vector's; see [`pack`].
///
/// # Safety
/// All elements exist, `to` holds `rows` panels and the vector's instructions exist.
#[inline(always)]
pub(crate) unsafe fn pack_panel<V: Vector>(
    from: Strided<V::Scalar>,
    rows: usize,
    valid: usize,
    width: usize,
    to: *mut V::Scalar,
) {
    // SAFETY: by the caller.
    unsafe {
        if from.column == 1 && valid == width {
            for k in 0..rows {
                let (source, to) = (from.start.add(k * from.row), to.add(k * width));
                for j in (0..width).step_by(V::WIDTH) {
                    prefetch(source.wrapping_add(AHEAD * from.row + j));
                    V::load(source.add(j)).store(to.add(j));
                }
            }
            return;
        }
        let squares = if from.row == 1 && valid == width { rows / V::WIDTH * V::WIDTH } else { 0 };
        for first in (0..squares).step_by(V::WIDTH) {
            for j in (0..width).step_by(V::WIDTH) {
                let source = from.start.add(first + j * from.column);
                for i in 0..V::WIDTH {
                    prefetch(source.wrapping_add(i * from.column + 4 * V::WIDTH));
                }
                V::transpose(source, from.column, to.add(first * width + j), width);
            }
        }
        // Sixteen rows at a time, so that a cache line that is read along its length is read once.
        for first in (squares..rows).step_by(16) {
            let last = rows.min(first + 16);
            for j in 0..width {
                let source = from.start.wrapping_add(j * from.column);
                for k in first..last {
                    *to.add(k * width + j) =
                        if j < valid { *source.add(k * from.row) } else { V::Scalar::ZERO };
                }
            }
        }
    }
}

/// Copies `length` runs of `count` elements, `from_stride` apart in the source and `to_stride` in the destination.
#[inline(always)]
pub(crate) unsafe fn pack_runs<V: Vector>(
    (from, from_stride): (*const V::Scalar, usize),
    (length, count): (usize, usize),
    (to, to_stride): (*mut V::Scalar, usize),
) {
    // SAFETY: by the caller.
    unsafe {
        let whole = count / V::WIDTH * V::WIDTH;
        for k in 0..length {
            let (from, to) = (from.add(k * from_stride), to.add(k * to_stride));
            for j in (0..whole).step_by(V::WIDTH) {
                prefetch(from.wrapping_add(AHEAD * from_stride + j));
                V::load(from.add(j)).store(to.add(j));
            }
            for j in whole..count {
                *to.add(j) = *from.add(j);
            }
        }
    }
}

/// Copies a transposed left side into consecutive blocks of [`Vector::ROWS`] rows. Element `(k, row)` is at `from[k *
/// stride + row]`; in a block, the rows are contiguous for every `k`. Missing rows are not written.
#[inline(always)]
pub(crate) unsafe fn pack_left<V: Vector>(
    from: *const V::Scalar,
    stride: usize,
    length: usize,
    rows: usize,
    to: *mut V::Scalar,
) {
    // SAFETY: by the caller.
    unsafe {
        for k in 0..length {
            let from = from.add(k * stride);
            for r in (0..rows).step_by(64 / size_of::<V::Scalar>()) {
                prefetch(from.wrapping_add(AHEAD * stride + r));
            }
            for first in (0..rows).step_by(V::ROWS) {
                let to = to.add(first * length + k * V::ROWS);
                if first + V::ROWS <= rows {
                    for r in 0..V::ROWS {
                        *to.add(r) = *from.add(first + r);
                    }
                } else {
                    for r in 0..rows - first {
                        *to.add(r) = *from.add(first + r);
                    }
                }
            }
        }
    }
}
