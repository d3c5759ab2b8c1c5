//! Packing: a panel of columns laid out as the micro-kernels read it.
#![allow(unsafe_code)]

use super::kernel::prefetch;
use super::vector::Vector;
use crate::cpu::real::Real;

/// Rows that lie far apart are asked for so many steps before they are copied.
const AHEAD: usize = 16;

/// A matrix somewhere in memory: element `(k, j)` at `start + k * row + j * column`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<T> {
    pub(crate) start: *const T,
    pub(crate) row: usize,
    pub(crate) column: usize,
}

/// Copies `rows` rows of up to [`Vector::PANEL`] columns, `valid` of which exist, one after another; the missing
/// columns are zero.
///
/// # Safety
/// All elements exist, `to` has room for `rows` panels and the vector's instructions exist.
#[inline(always)]
pub(crate) unsafe fn pack<V: Vector>(from: Matrix<V::Scalar>, rows: usize, valid: usize, to: *mut V::Scalar) {
    // SAFETY: by the caller.
    unsafe {
        if from.column == 1 && valid == V::PANEL {
            for k in 0..rows {
                let (source, to) = (from.start.add(k * from.row), to.add(k * V::PANEL));
                let ahead = source.wrapping_add(AHEAD * from.row);
                prefetch(ahead);
                prefetch(ahead.wrapping_add(V::WIDTH));
                V::load(source).store(to);
                V::load(source.add(V::WIDTH)).store(to.add(V::WIDTH));
            }
            return;
        }
        let squares = if from.row == 1 && valid == V::PANEL { rows / V::WIDTH * V::WIDTH } else { 0 };
        for first in (0..squares).step_by(V::WIDTH) {
            for j in [0, V::WIDTH] {
                let source = from.start.add(first + j * from.column);
                V::transpose(source, from.column, to.add(first * V::PANEL + j), V::PANEL);
            }
        }
        // Sixteen rows at a time, so that a cache line that is read along its length is read once.
        for first in (squares..rows).step_by(16) {
            let last = rows.min(first + 16);
            for j in 0..V::PANEL {
                let source = from.start.wrapping_add(j * from.column);
                for k in first..last {
                    *to.add(k * V::PANEL + j) =
                        if j < valid { *source.add(k * from.row) } else { V::Scalar::ZERO };
                }
            }
        }
    }
}

/// Copies a transposed left side, element `(k, row)` at `from[k * stride + row]`, into blocks of [`Vector::ROWS`] rows,
/// one block after another, each with its rows side by side for every `k`. Rows that do not exist are left as they are.
///
/// # Safety
/// As for [`pack`].
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
