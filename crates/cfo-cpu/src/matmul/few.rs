//! Products of very few rows: the right side is read once without packing, at the speed of memory.

use super::Block;
use crate::gemm::{Vector, VectorWork, load, prefetch};
use crate::scalar::Real;

pub(super) const ROWS: usize = 4;
const SPAN: usize = 4;
/// Number of steps of the inner sum that are prefetched.
const AHEAD: usize = 16;

/// Number of columns per task, for a right side with contiguous rows or columns.
pub(super) fn columns(dense_rows: bool) -> usize {
    if dense_rows { 128 } else { 32 }
}

pub(super) struct StreamedProduct<'a, T> {
    pub(super) block: Block<'a, T>,
}

impl<T: Real> VectorWork<T> for StreamedProduct<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        // SAFETY: by the caller.
        unsafe {
            match self.block.rows().len() {
                1 => self.rows::<V, 1>(),
                2 => self.rows::<V, 2>(),
                _ => self.rows::<V, ROWS>(),
            }
        }
    }
}

impl<T: Real> StreamedProduct<'_, T> {
    #[inline(always)]
    unsafe fn rows<V: Vector<Scalar = T>, const R: usize>(&self) {
        let (block, p) = (&self.block, self.block.product);
        let (range, columns) = (block.rows(), block.columns());
        // SAFETY: the graph checked the operands' strides, and tasks write disjoint parts of the output.
        unsafe {
            let b = block.b.as_ptr().add(block.start(&p.b));
            let start = block.start(&p.a);
            // Missing rows are copies of the last one, and are not written.
            let a: [*const T; R] = std::array::from_fn(|r| {
                block.a.as_ptr().add(start + (range.start + r).min(range.end - 1) * p.a.row)
            });
            let c = block.c.pointer().add(block.start(&p.c) + range.start * p.c.row);
            let mut column = columns.start;
            while column < columns.end {
                let left = columns.end - column;
                let count = match p.b.column {
                    1 if left >= SPAN * V::WIDTH => {
                        let sums = wide::<V, R>(a, p.inner, b.add(column), p.b.row);
                        for (r, sums) in sums.iter().enumerate().take(range.len()) {
                            let to = c.add(r * p.c.row + column);
                            sums.iter().enumerate().for_each(|(i, sum)| sum.store(to.add(i * V::WIDTH)));
                        }
                        SPAN * V::WIDTH
                    }
                    _ => {
                        let count = left.min(4);
                        let b: [*const T; 4] =
                            std::array::from_fn(|j| b.add((column + j.min(count - 1)) * p.b.column));
                        let sums = dots::<V, R>(a, p.inner, b, p.b.row);
                        for (r, sums) in sums.iter().enumerate().take(range.len()) {
                            for (j, &sum) in sums.iter().enumerate().take(count) {
                                *c.add(r * p.c.row + column + j) = sum;
                            }
                        }
                        count
                    }
                };
                column += count;
            }
        }
    }
}

/// Sums along contiguous rows of the right side.
#[inline(always)]
unsafe fn wide<V: Vector, const R: usize>(
    a: [*const V::Scalar; R],
    inner: usize,
    b: *const V::Scalar,
    stride: usize,
) -> [[V; SPAN]; R] {
    // SAFETY: by the caller.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::ZERO); SPAN]; R];
        for k in 0..inner {
            let row = b.add(k * stride);
            for i in 0..SPAN {
                prefetch(row.wrapping_add(AHEAD * stride + i * V::WIDTH));
            }
            let row = load::<V, SPAN>(row);
            for (a, sums) in a.iter().zip(&mut sums) {
                let factor = V::splat(*a.add(k));
                for (sum, &row) in sums.iter_mut().zip(&row) {
                    *sum = factor.multiply_add(row, *sum);
                }
            }
        }
        sums
    }
}

/// Sums down four columns of the right side, whose elements are `stride` apart; with vectors if they are contiguous.
#[inline(always)]
unsafe fn dots<V: Vector, const R: usize>(
    a: [*const V::Scalar; R],
    inner: usize,
    b: [*const V::Scalar; 4],
    stride: usize,
) -> [[V::Scalar; 4]; R] {
    // SAFETY: by the caller.
    unsafe {
        let mut sums = [[V::splat(V::Scalar::ZERO); 4]; R];
        let whole = if stride == 1 { inner / V::WIDTH * V::WIDTH } else { 0 };
        for k in (0..whole).step_by(V::WIDTH) {
            let b = b.map(|b| V::load(b.add(k)));
            for (a, sums) in a.iter().zip(&mut sums) {
                let a = V::load(a.add(k));
                for (sum, &b) in sums.iter_mut().zip(&b) {
                    *sum = a.multiply_add(b, *sum);
                }
            }
        }
        let mut totals = [[V::Scalar::ZERO; 4]; R];
        for ((totals, sums), a) in totals.iter_mut().zip(&sums).zip(a) {
            for ((total, &sum), b) in totals.iter_mut().zip(sums).zip(b) {
                let mut lanes = [V::Scalar::ZERO; 16];
                sum.store(lanes.as_mut_ptr());
                for &lane in &lanes[..V::WIDTH] {
                    *total += lane;
                }
                for k in whole..inner {
                    *total += *a.add(k) * *b.add(k * stride);
                }
            }
        }
        totals
    }
}
