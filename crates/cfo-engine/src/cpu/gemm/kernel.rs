//! The micro-kernels: a few rows times one panel of columns, sums kept in registers.
#![allow(unsafe_code)]

use super::vector::Vector;
use crate::cpu::real::Real;

/// `c[r] = sum over taps t and k of a[t][r][k] * b[t][k]`: every row of `a` is a list of runs, one for each tap, that
/// may lie anywhere, so that a convolution needs no copy of its input.
pub(crate) struct Rows<T> {
    /// Start of the run of tap `t` and row `r` at `t * ROWS + r`.
    pub(crate) a: *const *const T,
    pub(crate) taps: usize,
    /// Length of every run.
    pub(crate) inner: usize,
    /// One panel for every tap and `k`, `b_stride` apart.
    pub(crate) b: *const T,
    pub(crate) b_stride: usize,
    pub(crate) c: Target<T>,
}

/// `c[r] = sum over segments s and k of a_s[k * a_stride + r] * b_s[k * b_stride..]`: the left side is transposed.
pub(crate) struct Columns<T> {
    pub(crate) segments: *const Segment,
    pub(crate) count: usize,
    /// Base of the segments' offsets, moved to the first of the rows.
    pub(crate) a: *const T,
    pub(crate) a_stride: usize,
    /// Base of the segments' offsets, moved to the panel.
    pub(crate) b: *const T,
    pub(crate) b_stride: usize,
    pub(crate) c: Target<T>,
}

/// A run of the inner index of [`Columns`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Segment {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) length: usize,
}

/// Where the rows of a product go.
#[derive(Clone, Copy)]
pub(crate) struct Target<T> {
    /// Start of each row, or of the first one if `stride` is not 0.
    pub(crate) rows: *const *mut T,
    pub(crate) first: *mut T,
    pub(crate) stride: usize,
    /// Added to every row's start.
    pub(crate) column: usize,
    /// Columns of the panel that exist.
    pub(crate) valid: usize,
    /// Whether the product is added to what is there.
    pub(crate) accumulate: bool,
}

impl<T> Target<T> {
    /// Rows with a fixed distance.
    pub(crate) fn strided(first: *mut T, stride: usize, valid: usize, accumulate: bool) -> Self {
        Self { rows: std::ptr::null(), first, stride, column: 0, valid, accumulate }
    }

    #[inline(always)]
    unsafe fn row(&self, r: usize) -> *mut T {
        // SAFETY: by the caller: the row exists.
        unsafe {
            match self.rows.is_null() {
                true => self.first.add(r * self.stride),
                false => (*self.rows.add(r)).add(self.column),
            }
        }
    }
}

/// Asks for a cache line that will be needed.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which every processor of this kind has and which reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the rows that a product will be written to, while it is computed.
#[inline(always)]
unsafe fn prefetch_target<V: Vector, const R: usize>(c: &Target<V::Scalar>) {
    for r in 0..R {
        // SAFETY: by the caller: the rows exist.
        let row = unsafe { c.row(r) };
        prefetch(row);
        prefetch(row.wrapping_add(V::WIDTH));
    }
}

/// # Safety
/// The processor has the vector's instructions, and everything that the product names exists.
#[inline(always)]
pub(super) unsafe fn rows<V: Vector, const R: usize>(p: &Rows<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        let zero = V::splat(V::Scalar::ZERO);
        let mut sums = [[zero; 2]; R];
        prefetch_target::<V, R>(&p.c);
        let mut b = p.b;
        for tap in 0..p.taps {
            let mut a = [std::ptr::null(); R];
            for (r, a) in a.iter_mut().enumerate() {
                *a = *p.a.add(tap * V::ROWS + r);
            }
            for k in 0..p.inner {
                let (left, right) = (V::load(b), V::load(b.add(V::WIDTH)));
                b = b.add(p.b_stride);
                for r in 0..R {
                    let factor = V::splat(*a[r].add(k));
                    sums[r][0] = factor.multiply_add(left, sums[r][0]);
                    sums[r][1] = factor.multiply_add(right, sums[r][1]);
                }
            }
        }
        write::<V, R>(&sums, &p.c);
    }
}

/// # Safety
/// As for [`rows`].
#[inline(always)]
pub(super) unsafe fn columns<V: Vector, const R: usize>(p: &Columns<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        let zero = V::splat(V::Scalar::ZERO);
        let mut sums = [[zero; 2]; R];
        prefetch_target::<V, R>(&p.c);
        for segment in 0..p.count {
            let segment = *p.segments.add(segment);
            let (mut a, mut b) = (p.a.add(segment.a), p.b.add(segment.b));
            for _ in 0..segment.length {
                let (left, right) = (V::load(b), V::load(b.add(V::WIDTH)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let factor = V::splat(*a.add(r));
                    sums[0] = factor.multiply_add(left, sums[0]);
                    sums[1] = factor.multiply_add(right, sums[1]);
                }
                // A segment's last step may leave the allocation, where the pointers are not used any more.
                (a, b) = (a.wrapping_add(p.a_stride), b.wrapping_add(p.b_stride));
            }
        }
        write::<V, R>(&sums, &p.c);
    }
}

#[inline(always)]
unsafe fn write<V: Vector, const R: usize>(sums: &[[V; 2]; R], c: &Target<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        for (r, sums) in sums.iter().enumerate() {
            let row = c.row(r);
            if c.valid == V::PANEL {
                for (i, &sum) in sums.iter().enumerate() {
                    let to = row.add(i * V::WIDTH);
                    let sum = if c.accumulate { V::load(to).add(sum) } else { sum };
                    sum.store(to);
                }
            } else {
                let mut panel = [V::Scalar::ZERO; 64];
                for (i, &sum) in sums.iter().enumerate() {
                    sum.store(panel.as_mut_ptr().add(i * V::WIDTH));
                }
                for (j, &sum) in panel[..c.valid].iter().enumerate() {
                    let to = row.add(j);
                    *to = if c.accumulate { *to + sum } else { sum };
                }
            }
        }
    }
}

/// [`Vector::rows`] for a number of rows known at run time.
///
/// # Safety
/// As for [`rows`].
#[inline(always)]
pub(crate) unsafe fn multiply_rows<V: Vector>(rows: usize, p: &Rows<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        match rows {
            1 => V::rows::<1>(p),
            2 => V::rows::<2>(p),
            3 => V::rows::<3>(p),
            4 => V::rows::<4>(p),
            5 => V::rows::<5>(p),
            6 => V::rows::<6>(p),
            7 => V::rows::<7>(p),
            8 => V::rows::<8>(p),
            _ => unreachable!("blocks have at most eight rows"),
        }
    }
}

/// [`Vector::columns`] for a number of rows known at run time.
///
/// # Safety
/// As for [`rows`].
#[inline(always)]
pub(crate) unsafe fn multiply_columns<V: Vector>(rows: usize, p: &Columns<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        match rows {
            1 => V::columns::<1>(p),
            2 => V::columns::<2>(p),
            3 => V::columns::<3>(p),
            4 => V::columns::<4>(p),
            5 => V::columns::<5>(p),
            6 => V::columns::<6>(p),
            7 => V::columns::<7>(p),
            8 => V::columns::<8>(p),
            _ => unreachable!("blocks have at most eight rows"),
        }
    }
}
