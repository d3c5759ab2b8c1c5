//! Vectors of a few numbers: one source, compiled for AVX-512, for AVX2 and without special instructions.
#![allow(unsafe_code)]

use super::kernel::{self, Columns, Rows};
use crate::scalar::Real;

/// A vector register, or a replacement for one.
///
/// # Safety
/// All functions may be called only if the instructions of the implementor exist, and pointers must be valid for
/// [`Vector::WIDTH`] numbers.
pub(crate) trait Vector: Copy {
    /// Type of the numbers.
    type Scalar: Real;
    /// Number of numbers.
    const WIDTH: usize;
    /// Numbers in a panel: the columns that the micro-kernels compute at once.
    const PANEL: usize = 2 * Self::WIDTH;
    /// Rows that the micro-kernels compute at once: as many as the registers hold.
    const ROWS: usize;
    /// Numbers in a panel of a plain product: fewer loads per multiplication, as only the product needs registers.
    const SHEET: usize;
    /// Number of rows for such a panel.
    const TILE: usize;

    unsafe fn splat(value: Self::Scalar) -> Self;
    unsafe fn load(from: *const Self::Scalar) -> Self;
    unsafe fn store(self, to: *mut Self::Scalar);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn subtract(self, other: Self) -> Self;
    unsafe fn multiply(self, other: Self) -> Self;
    /// `self * b + c`.
    unsafe fn multiply_add(self, b: Self, c: Self) -> Self;
    /// Transposes a square of [`Vector::WIDTH`] rows and columns; rows are at the given distances.
    unsafe fn transpose(
        from: *const Self::Scalar,
        from_stride: usize,
        to: *mut Self::Scalar,
        to_stride: usize,
    );
    /// The micro-kernel for panels of two vectors. Each micro-kernel is compiled on its own.
    unsafe fn rows<const R: usize>(product: &Rows<Self::Scalar>);
    unsafe fn columns<const R: usize>(product: &Columns<Self::Scalar>);
    /// The micro-kernel for panels of [`Vector::SHEET`].
    unsafe fn tile<const R: usize>(product: &Rows<Self::Scalar>);
    unsafe fn tile_columns<const R: usize>(product: &Columns<Self::Scalar>);
    /// The micro-kernel for panels of one vector.
    unsafe fn strip<const R: usize>(product: &Rows<Self::Scalar>);
    unsafe fn strip_columns<const R: usize>(product: &Columns<Self::Scalar>);
}

/// Work that is written once for all vectors. `run` must always be inlined.
pub(crate) trait VectorWork<T> {
    unsafe fn run<V: Vector<Scalar = T>>(self);
}

/// Selection of the vector for a type of number.
pub(crate) trait Dispatch: Sized {
    /// Does the work with the widest vector of this processor.
    fn dispatch<W: VectorWork<Self>>(work: W);
}

/// Eight numbers without special instructions.
#[derive(Clone, Copy)]
pub(crate) struct PlainVector<T>([T; 8]);

macro_rules! outlined {
    ($(#[$feature:meta])* $span:literal) => {
        outlined!(@ $(#[$feature])* rows, Rows, 2);
        outlined!(@ $(#[$feature])* columns, Columns, 2, columns);
        outlined!(@ $(#[$feature])* tile, Rows, $span);
        outlined!(@ $(#[$feature])* tile_columns, Columns, $span, columns);
        outlined!(@ $(#[$feature])* strip, Rows, 1);
        outlined!(@ $(#[$feature])* strip_columns, Columns, 1, columns);
    };
    (@ $(#[$feature:meta])* $name:ident, Rows, $span:literal) => {
        outlined!(@ $(#[$feature])* $name, Rows, $span, rows);
    };
    (@ $(#[$feature:meta])* $name:ident, $product:ident, $span:literal, $kernel:ident) => {
        #[inline(always)]
        unsafe fn $name<const R: usize>(product: &$product<Self::Scalar>) {
            $(#[$feature])*
            unsafe fn outlined<const R: usize>(product: &$product<<Own as Vector>::Scalar>) {
                // SAFETY: by the caller.
                unsafe { kernel::$kernel::<Own, R, $span>(product) }
            }
            // SAFETY: by the caller.
            unsafe { outlined::<R>(product) }
        }
    };
}

macro_rules! plain {
    ($name:ident $assign:tt) => {
        #[inline(always)]
        unsafe fn $name(mut self, other: Self) -> Self {
            self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a $assign b);
            self
        }
    };
    ($name:ident, $product:ident, $span:literal, $kernel:ident) => {
        #[inline(always)]
        unsafe fn $name<const R: usize>(product: &$product<T>) {
            // SAFETY: by the caller.
            unsafe { kernel::$kernel::<Self, R, $span>(product) }
        }
    };
}

impl<T: Real> Vector for PlainVector<T> {
    type Scalar = T;
    const WIDTH: usize = 8;
    const ROWS: usize = 4;
    const SHEET: usize = 16;
    const TILE: usize = 4;

    #[inline(always)]
    unsafe fn splat(value: T) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn load(from: *const T) -> Self {
        // SAFETY: by the caller.
        Self(unsafe { from.cast::<[T; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut T) {
        // SAFETY: by the caller.
        unsafe { to.cast::<[T; 8]>().write_unaligned(self.0) }
    }
    plain!(add +=);
    plain!(subtract -=);
    plain!(multiply *=);
    #[inline(always)]
    unsafe fn multiply_add(self, b: Self, mut c: Self) -> Self {
        for i in 0..8 {
            c.0[i] += self.0[i] * b.0[i];
        }
        c
    }
    #[inline(always)]
    unsafe fn transpose(from: *const T, from_stride: usize, to: *mut T, to_stride: usize) {
        for i in 0..Self::WIDTH {
            for j in 0..Self::WIDTH {
                // SAFETY: by the caller.
                unsafe { *to.add(i * to_stride + j) = *from.add(j * from_stride + i) };
            }
        }
    }
    plain!(rows, Rows, 2, rows);
    plain!(columns, Columns, 2, columns);
    plain!(tile, Rows, 2, rows);
    plain!(tile_columns, Columns, 2, columns);
    plain!(strip, Rows, 1, rows);
    plain!(strip_columns, Columns, 1, columns);
}

impl Dispatch for f64 {
    fn dispatch<W: VectorWork<Self>>(work: W) {
        // SAFETY: plain code runs everywhere.
        unsafe { work.run::<PlainVector<Self>>() }
    }
}

impl Dispatch for f32 {
    fn dispatch<W: VectorWork<Self>>(work: W) {
        #[cfg(target_arch = "x86_64")]
        {
            use crate::simd::{Level, level};
            #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
            unsafe fn wide<W: VectorWork<f32>>(work: W) {
                // SAFETY: this function has the instructions.
                unsafe { work.run::<x86::Wide>() }
            }
            #[target_feature(enable = "avx2,fma")]
            unsafe fn half<W: VectorWork<f32>>(work: W) {
                // SAFETY: this function has the instructions.
                unsafe { work.run::<x86::Half>() }
            }
            match level() {
                // SAFETY: the level guarantees that the processor has the instructions.
                Level::Avx512 => return unsafe { wide(work) },
                // SAFETY: as above.
                Level::Avx2 => return unsafe { half(work) },
                Level::Plain => {}
            }
        }
        // SAFETY: plain code runs everywhere.
        unsafe { work.run::<PlainVector<Self>>() }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Columns, Rows, Vector, kernel};

    macro_rules! vector {
        ($(#[$doc:meta])* $name:ident, $module:ident, $register:ty, $width:literal, $rows:literal, $tile:literal x $span:literal, $features:literal,
         $splat:ident, $load:ident, $store:ident, $fma:ident, $transpose:ident, $($binary:ident = $instruction:ident),*) => {
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub(crate) struct $name($register);

            mod $module {
                use super::*;
                type Own = $name;

                // SAFETY of all: by the caller, as the trait requires.
                impl Vector for $name {
                    type Scalar = f32;
                    const WIDTH: usize = $width;
                    const ROWS: usize = $rows;
                    const SHEET: usize = $span * $width;
                    const TILE: usize = $tile;

                    #[inline(always)]
                    unsafe fn splat(value: f32) -> Self {
                        Self(unsafe { $splat(value) })
                    }
                    #[inline(always)]
                    unsafe fn load(from: *const f32) -> Self {
                        Self(unsafe { $load(from) })
                    }
                    #[inline(always)]
                    unsafe fn store(self, to: *mut f32) {
                        unsafe { $store(to, self.0) }
                    }
                    $(
                        #[inline(always)]
                        unsafe fn $binary(self, other: Self) -> Self {
                            Self(unsafe { $instruction(self.0, other.0) })
                        }
                    )*
                    #[inline(always)]
                    unsafe fn multiply_add(self, b: Self, c: Self) -> Self {
                        Self(unsafe { $fma(self.0, b.0, c.0) })
                    }
                    #[inline(always)]
                    unsafe fn transpose(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
                        unsafe { $transpose(from, from_stride, to, to_stride) }
                    }
                    outlined!(#[target_feature(enable = $features)] $span);
                }
            }
        };
    }

    vector! {
        /// Sixteen numbers in an AVX-512 register.
        Wide, wide, __m512, 16, 8, 6 x 4, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma",
        _mm512_set1_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_fmadd_ps, transpose_wide,
        add = _mm512_add_ps, subtract = _mm512_sub_ps, multiply = _mm512_mul_ps
    }

    vector! {
        /// Eight numbers in an AVX2 register.
        Half, half, __m256, 8, 6, 6 x 2, "avx2,fma",
        _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_fmadd_ps, transpose_half,
        add = _mm256_add_ps, subtract = _mm256_sub_ps, multiply = _mm256_mul_ps
    }

    /// Pairs of rows, then groups of four, are interleaved within the 128-bit parts; then the parts are exchanged.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn transpose_wide(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        let low = |a, b| _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
        let high = |a, b| _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
        let mut fours = [_mm512_setzero_ps(); 16];
        for group in (0..16).step_by(4) {
            // SAFETY: by the caller.
            let row = |i: usize| unsafe { _mm512_loadu_ps(from.add((group + i) * from_stride)) };
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
            (fours[group], fours[group + 1]) = (low(ab, cd), high(ab, cd));
            let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
            (fours[group + 2], fours[group + 3]) = (low(ab, cd), high(ab, cd));
        }
        for i in 0..4 {
            let (a, b, c, d) = (fours[i], fours[4 + i], fours[8 + i], fours[12 + i]);
            let (even, odd) = (_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
            let (even_next, odd_next) = (_mm512_shuffle_f32x4(c, d, 0x88), _mm512_shuffle_f32x4(c, d, 0xdd));
            // SAFETY: by the caller.
            unsafe {
                _mm512_storeu_ps(to.add(i * to_stride), _mm512_shuffle_f32x4(even, even_next, 0x88));
                _mm512_storeu_ps(to.add((4 + i) * to_stride), _mm512_shuffle_f32x4(odd, odd_next, 0x88));
                _mm512_storeu_ps(to.add((8 + i) * to_stride), _mm512_shuffle_f32x4(even, even_next, 0xdd));
                _mm512_storeu_ps(to.add((12 + i) * to_stride), _mm512_shuffle_f32x4(odd, odd_next, 0xdd));
            }
        }
    }

    /// Transposes eight rows in the same way.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn transpose_half(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        let low = |a, b| _mm256_castpd_ps(_mm256_unpacklo_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
        let high = |a, b| _mm256_castpd_ps(_mm256_unpackhi_pd(_mm256_castps_pd(a), _mm256_castps_pd(b)));
        let mut fours = [_mm256_setzero_ps(); 8];
        for group in (0..8).step_by(4) {
            // SAFETY: by the caller.
            let row = |i: usize| unsafe { _mm256_loadu_ps(from.add((group + i) * from_stride)) };
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
            (fours[group], fours[group + 1]) = (low(ab, cd), high(ab, cd));
            let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
            (fours[group + 2], fours[group + 3]) = (low(ab, cd), high(ab, cd));
        }
        for i in 0..4 {
            // SAFETY: by the caller.
            unsafe {
                let (a, b) = (fours[i], fours[4 + i]);
                _mm256_storeu_ps(to.add(i * to_stride), _mm256_permute2f128_ps(a, b, 0x20));
                _mm256_storeu_ps(to.add((4 + i) * to_stride), _mm256_permute2f128_ps(a, b, 0x31));
            }
        }
    }
}
