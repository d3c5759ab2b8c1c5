//! Micro-kernels: a few rows times one panel of columns, with sums in registers. All unsafe functions need what [`rows`]
//! needs.
#![allow(unsafe_code)]

use super::vector::Vector;
use crate::scalar::Real;

/// `c[r] = sum over taps t and k of a[t][r][k] * b[t][k]`. Every row of `a` is a list of runs, one for each tap, at
/// arbitrary addresses, so a convolution needs no copy of its input.
pub(crate) struct Rows<T> {
    /// Start of the run of tap `t` and row `r` at `t * ROWS + r`.
    pub(crate) a: *const *const T,
    pub(crate) taps: usize,
    pub(crate) inner: usize,
    /// One panel for every tap and `k`, `b_stride` apart.
    pub(crate) b: *const T,
    pub(crate) b_stride: usize,
    pub(crate) c: Destination<T>,
    pub(crate) ahead: Ahead<T>,
}

/// Memory that will be needed after a product: tiles prefetch it while they compute.
#[derive(Clone, Copy)]
pub(crate) struct Ahead<T> {
    pub(crate) start: *const T,
    /// Distance of the pieces; each is as long as a panel's row.
    pub(crate) stride: usize,
}

/// Number of inner steps of a tile between prefetches.
pub(crate) const AHEAD_STEPS: usize = 16;

impl<T> Ahead<T> {
    pub(crate) fn nothing() -> Self {
        Self { start: std::ptr::null(), stride: 0 }
    }
}

/// `c[r] = sum over segments s and k of a_s[k * a_stride + r] * b_s[k * b_stride..]`, with a transposed left side.
pub(crate) struct Columns<T> {
    pub(crate) segments: *const InnerRun,
    pub(crate) count: usize,
    /// Base of the segments' offsets, at the first of the rows.
    pub(crate) a: *const T,
    pub(crate) a_stride: usize,
    /// Base of the segments' offsets, at the panel.
    pub(crate) b: *const T,
    pub(crate) b_stride: usize,
    pub(crate) c: Destination<T>,
}

/// A run of the inner index of [`Columns`].
#[derive(Clone, Copy, Default)]
pub(crate) struct InnerRun {
    pub(crate) a: usize,
    pub(crate) b: usize,
    pub(crate) length: usize,
}

#[derive(Clone, Copy)]
pub(crate) struct Destination<T> {
    /// Start of each row, or of the first one if `stride` is not 0.
    pub(crate) rows: *const *mut T,
    pub(crate) first: *mut T,
    pub(crate) stride: usize,
    /// Added to every row's start.
    pub(crate) column: usize,
    pub(crate) valid: usize,
    pub(crate) accumulate: bool,
}

impl<T> Destination<T> {
    /// Rows at a fixed distance.
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

#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which every processor of this kind supports and which reads nothing.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches a cache line to the second-level cache.
#[inline(always)]
fn prefetch_far<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T1 }>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the destination rows of a product while it is computed.
#[inline(always)]
unsafe fn prefetch_target<V: Vector, const R: usize, const P: usize>(c: &Destination<V::Scalar>) {
    for r in 0..R {
        // SAFETY: by the caller: the rows exist.
        let row = unsafe { c.row(r) };
        for i in 0..P {
            prefetch(row.wrapping_add(i * V::WIDTH));
        }
    }
}

/// Multiplies `R` rows with a panel of `P` vectors.
///
/// # Safety
/// The processor has the vector's instructions, and all memory of the product exists.
#[inline(always)]
pub(super) unsafe fn rows<V: Vector, const R: usize, const P: usize>(p: &Rows<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        let zero = V::splat(V::Scalar::ZERO);
        let mut sums = [[zero; P]; R];
        prefetch_target::<V, R, P>(&p.c);
        let mut b = p.b;
        for tap in 0..p.taps {
            let mut a = [std::ptr::null(); R];
            for (r, a) in a.iter_mut().enumerate() {
                *a = *p.a.add(tap * V::ROWS + r);
            }
            // Only tiles of plain products prefetch.
            let whole = if P > 2 { p.inner / AHEAD_STEPS * AHEAD_STEPS } else { 0 };
            // Without memory to prefetch, an address that is in the cache.
            let mut ahead = if p.ahead.start.is_null() { b } else { p.ahead.start };
            for first in (0..whole).step_by(AHEAD_STEPS) {
                for i in 0..P {
                    prefetch_far(ahead.wrapping_add(i * V::WIDTH));
                }
                ahead = ahead.wrapping_add(p.ahead.stride);
                for k in first..first + AHEAD_STEPS {
                    step::<V, R, P>(&a, k, b, &mut sums);
                    // The last step may leave the allocation; the pointer is then no longer used.
                    b = b.wrapping_add(p.b_stride);
                }
            }
            for k in whole..p.inner {
                step::<V, R, P>(&a, k, b, &mut sums);
                b = b.wrapping_add(p.b_stride);
            }
        }
        write::<V, R, P>(&sums, &p.c);
    }
}

#[inline(always)]
unsafe fn step<V: Vector, const R: usize, const P: usize>(
    a: &[*const V::Scalar; R],
    k: usize,
    b: *const V::Scalar,
    sums: &mut [[V; P]; R],
) {
    // SAFETY: by the caller.
    unsafe {
        let panel = load::<V, P>(b);
        for (a, sums) in a.iter().zip(sums) {
            let factor = V::splat(*a.add(k));
            for (sum, &panel) in sums.iter_mut().zip(&panel) {
                *sum = factor.multiply_add(panel, *sum);
            }
        }
    }
}

#[inline(always)]
pub(super) unsafe fn columns<V: Vector, const R: usize, const P: usize>(p: &Columns<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        let zero = V::splat(V::Scalar::ZERO);
        let mut sums = [[zero; P]; R];
        prefetch_target::<V, R, P>(&p.c);
        for segment in 0..p.count {
            let segment = *p.segments.add(segment);
            let (mut a, mut b) = (p.a.add(segment.a), p.b.add(segment.b));
            for _ in 0..segment.length {
                let panel = load::<V, P>(b);
                for (r, sums) in sums.iter_mut().enumerate() {
                    let factor = V::splat(*a.add(r));
                    for (sum, &panel) in sums.iter_mut().zip(&panel) {
                        *sum = factor.multiply_add(panel, *sum);
                    }
                }
                // A segment's last step may leave the allocation; the pointers are then no longer used.
                (a, b) = (a.wrapping_add(p.a_stride), b.wrapping_add(p.b_stride));
            }
        }
        write::<V, R, P>(&sums, &p.c);
    }
}

#[inline(always)]
unsafe fn write<V: Vector, const R: usize, const P: usize>(sums: &[[V; P]; R], c: &Destination<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        for (r, sums) in sums.iter().enumerate() {
            let row = c.row(r);
            if c.valid == P * V::WIDTH {
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
                let row = std::slice::from_raw_parts_mut(row, c.valid);
                for (to, &sum) in row.iter_mut().zip(&panel[..c.valid]) {
                    *to = if c.accumulate { *to + sum } else { sum };
                }
            }
        }
    }
}

#[inline(always)]
pub(crate) unsafe fn load<V: Vector, const P: usize>(from: *const V::Scalar) -> [V; P] {
    // SAFETY: by the caller.
    std::array::from_fn(|i| unsafe { V::load(from.add(i * V::WIDTH)) })
}

/// Calls a micro-kernel of the vector `V` for a number of rows known at run time.
macro_rules! with_rows {
    ($kernel:ident($product:expr), $rows:expr, $($count:literal)*) => {
        match $rows {
            $($count => V::$kernel::<$count>($product),)*
            rows => unreachable!("{rows} rows at once"),
        }
    };
}

/// A product of a tile of up to [`Vector::TILE`] rows with a panel of [`Vector::SHEET`] columns, or of one vector.
#[inline(always)]
pub(crate) unsafe fn multiply_tile<V: Vector>(rows: usize, width: usize, p: &Rows<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        match width == V::WIDTH {
            false => with_rows!(tile(p), rows, 1 2 3 4 5 6),
            true => with_rows!(strip(p), rows, 1 2 3 4 5 6),
        }
    }
}

/// A product of a tile of rows with a transposed left side; see [`multiply_tile`].
#[inline(always)]
pub(crate) unsafe fn multiply_tile_columns<V: Vector>(rows: usize, width: usize, p: &Columns<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe {
        match width == V::WIDTH {
            false => with_rows!(tile_columns(p), rows, 1 2 3 4 5 6),
            true => with_rows!(strip_columns(p), rows, 1 2 3 4 5 6),
        }
    }
}

/// [`Vector::rows`] for a number of rows known at run time.
#[inline(always)]
pub(crate) unsafe fn multiply_rows<V: Vector>(rows: usize, p: &Rows<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe { with_rows!(rows(p), rows, 1 2 3 4 5 6 7 8) }
}

/// [`Vector::columns`] for a number of rows known at run time.
#[inline(always)]
pub(crate) unsafe fn multiply_columns<V: Vector>(rows: usize, p: &Columns<V::Scalar>) {
    // SAFETY: by the caller.
    unsafe { with_rows!(columns(p), rows, 1 2 3 4 5 6 7 8) }
}
