//! The transforms of Winograd's minimal filtering F(4, 3): four outputs of a three-tap filter by six products.
//!
//! The six points are 0, ±2/3, ±3/2 and infinity. With the usual 0, ±1, ±2 and infinity the error of a 4x4 tile of a
//! 3x3 convolution in `f32` is twice as large.
#![allow(unsafe_code)]

use crate::gemm::Vector;
use crate::scalar::Real;

/// Number of points of a transformed axis.
pub(super) const POINTS: usize = 6;
/// Number of outputs of a tile along an axis.
pub(super) const TILE: usize = 4;
/// Number of taps of the filter.
pub(super) const TAPS: usize = 3;

const A: f64 = 2.0 / 3.0;
const B: f64 = 3.0 / 2.0;

#[inline(always)]
unsafe fn constant<V: Vector>(value: f64) -> V {
    // SAFETY: by the caller, as for all functions here: the vector's instructions exist.
    unsafe { V::splat(V::Scalar::of(value)) }
}

/// A linear map of vectors along one axis.
pub(super) trait Transform<const I: usize, const O: usize> {
    /// # Safety
    /// The vector's instructions exist.
    unsafe fn apply<V: Vector>(x: [V; I]) -> [V; O];
}

/// Transform of the input.
pub(super) struct FieldTransform;

impl Transform<6, 6> for FieldTransform {
    #[inline(always)]
    unsafe fn apply<V: Vector>(d: [V; 6]) -> [V; 6] {
        // SAFETY: by the caller.
        unsafe {
            let sum = constant::<V>(-(A * A + B * B));
            let (aa, bb) = (constant::<V>(-A * A), constant::<V>(-B * B));
            let (a, b) = (constant::<V>(A), constant::<V>(B));
            let (minus_a, minus_b) = (constant::<V>(-A), constant::<V>(-B));
            let (even_a, odd_a) = (bb.multiply_add(d[2], d[4]), bb.multiply_add(d[1], d[3]));
            let (even_b, odd_b) = (aa.multiply_add(d[2], d[4]), aa.multiply_add(d[1], d[3]));
            [
                sum.multiply_add(d[2], d[0].add(d[4])),
                a.multiply_add(odd_a, even_a),
                minus_a.multiply_add(odd_a, even_a),
                b.multiply_add(odd_b, even_b),
                minus_b.multiply_add(odd_b, even_b),
                sum.multiply_add(d[3], d[1].add(d[5])),
            ]
        }
    }
}

/// Transform of the filter.
pub(super) struct FilterTransform;

impl Transform<3, 6> for FilterTransform {
    #[inline(always)]
    unsafe fn apply<V: Vector>(g: [V; 3]) -> [V; 6] {
        // SAFETY: by the caller.
        unsafe {
            let (na, nb) = norms();
            let (a0, a1, a2) = (constant::<V>(na), constant::<V>(A * na), constant::<V>(A * A * na));
            let (b0, b1, b2) = (constant::<V>(nb), constant::<V>(B * nb), constant::<V>(B * B * nb));
            let even_a = a2.multiply_add(g[2], a0.multiply(g[0]));
            let even_b = b2.multiply_add(g[2], b0.multiply(g[0]));
            let (odd_a, odd_b) = (a1.multiply(g[1]), b1.multiply(g[1]));
            [g[0], even_a.add(odd_a), even_a.subtract(odd_a), even_b.add(odd_b), even_b.subtract(odd_b), g[2]]
        }
    }
}

/// Transform from products to outputs.
pub(super) struct OutputTransform;

impl Transform<6, 4> for OutputTransform {
    #[inline(always)]
    unsafe fn apply<V: Vector>(m: [V; 6]) -> [V; 4] {
        // SAFETY: by the caller.
        unsafe {
            let (even_a, odd_a) = (m[1].add(m[2]), m[1].subtract(m[2]));
            let (even_b, odd_b) = (m[3].add(m[4]), m[3].subtract(m[4]));
            [
                m[0].add(even_a).add(even_b),
                constant::<V>(A).multiply_add(odd_a, constant::<V>(B).multiply(odd_b)),
                constant::<V>(A * A).multiply_add(even_a, constant::<V>(B * B).multiply(even_b)),
                constant::<V>(A * A * A)
                    .multiply_add(odd_a, constant::<V>(B * B * B).multiply_add(odd_b, m[5])),
            ]
        }
    }
}

/// The adjoint of [`OutputTransform`], for cotangents.
pub(super) struct CotangentTransform;

impl Transform<4, 6> for CotangentTransform {
    #[inline(always)]
    unsafe fn apply<V: Vector>(y: [V; 4]) -> [V; 6] {
        // SAFETY: by the caller.
        unsafe {
            let even_a = constant::<V>(A * A).multiply_add(y[2], y[0]);
            let even_b = constant::<V>(B * B).multiply_add(y[2], y[0]);
            let odd_a = constant::<V>(A * A * A).multiply_add(y[3], constant::<V>(A).multiply(y[1]));
            let odd_b = constant::<V>(B * B * B).multiply_add(y[3], constant::<V>(B).multiply(y[1]));
            [y[0], even_a.add(odd_a), even_a.subtract(odd_a), even_b.add(odd_b), even_b.subtract(odd_b), y[3]]
        }
    }
}

/// The adjoint of [`FilterTransform`], for the filter's gradient.
pub(super) struct GradientTransform;

impl Transform<6, 3> for GradientTransform {
    #[inline(always)]
    unsafe fn apply<V: Vector>(m: [V; 6]) -> [V; 3] {
        // SAFETY: by the caller.
        unsafe {
            let (na, nb) = norms();
            let (even_a, odd_a) = (m[1].add(m[2]), m[1].subtract(m[2]));
            let (even_b, odd_b) = (m[3].add(m[4]), m[3].subtract(m[4]));
            [
                constant::<V>(na).multiply_add(even_a, constant::<V>(nb).multiply_add(even_b, m[0])),
                constant::<V>(A * na).multiply_add(odd_a, constant::<V>(B * nb).multiply(odd_b)),
                constant::<V>(A * A * na)
                    .multiply_add(even_a, constant::<V>(B * B * nb).multiply_add(even_b, m[5])),
            ]
        }
    }
}

/// Reciprocals of the normalisation of the filter's values at ±2/3 and at ±3/2.
fn norms() -> (f64, f64) {
    (1.0 / (2.0 * A * A * (A * A - B * B)), 1.0 / (2.0 * B * B * (B * B - A * A)))
}

/// Applies a transform along both axes of a square, or along the second alone if the field has one row. `rows` is the
/// number of rows of the source, 1 or `I`; the result then has 1 or `O` rows.
#[inline(always)]
pub(super) unsafe fn both<V: Vector, F: Transform<I, O>, const I: usize, const O: usize>(
    flat: bool,
    source: [[V; I]; I],
) -> [[V; O]; O] {
    // SAFETY: by the caller.
    let zero = unsafe { V::splat(V::Scalar::ZERO) };
    let mut middle = [[zero; I]; O];
    if flat {
        middle[0] = source[0];
    } else {
        for j in 0..I {
            let mut column = [zero; I];
            for i in 0..I {
                column[i] = source[i][j];
            }
            let column = unsafe { F::apply(column) };
            for i in 0..O {
                middle[i][j] = column[i];
            }
        }
    }
    let mut result = [[zero; O]; O];
    for i in 0..if flat { 1 } else { O } {
        result[i] = unsafe { F::apply(middle[i]) };
    }
    result
}
