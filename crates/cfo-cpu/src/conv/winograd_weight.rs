//! The adjoint in the weight of three-tap convolutions with stride 1 by Winograd's minimal filtering.
//!
//! Input and cotangents are transformed tile by tile. At each point the filter's transformed gradient is one product
//! over all tiles, which is transformed back at the end.
#![allow(unsafe_code)]

use super::ConvGeometry;
use super::transform::{CotangentTransform, GradientTransform, POINTS, TAPS, TILE, both};
use super::winograd::{SKEW, Winograd};
use crate::Io;
use crate::gemm::{
    Columns, Destination, InnerRun, Shared, Vector, VectorWork, for_each_task, multiply_columns,
};
use crate::scalar::Real;

/// Number of elements of transformed fields that are kept at once.
const KEPT: usize = 1 << 18;
/// Number of tiles below which transforming the products back costs more than it saves.
const FEWEST: usize = 16;
/// Number of tiles that one task transforms.
const TILES: usize = 8;
/// Number of output channels that one task multiplies.
const CHANNELS: usize = 64;
/// Number of tiles that are summed before the sums are written to memory.
const INNER: usize = 256;

/// The gradient of the filter of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterGradient {
    of: Winograd,
}

impl FilterGradient {
    /// The gradient, if minimal filtering is worth while.
    pub(super) fn new(g: &ConvGeometry) -> Option<Self> {
        Winograd::new(g, false).filter(|of| of.tiles() >= FEWEST).map(|of| Self { of })
    }

    /// Number of tiles transformed at once.
    fn chunk(&self) -> usize {
        let each = self.of.points() * (self.of.inner + self.of.outputs);
        (KEPT / each).next_multiple_of(TILES).max(4 * TILES).min(self.of.tiles())
    }

    fn strides(&self) -> [usize; 3] {
        let of = &self.of;
        [self.chunk() * of.inner + SKEW, self.chunk() * of.outputs + SKEW, of.inner * of.outputs + SKEW]
    }

    /// Real elements of scratch memory.
    pub(super) fn scratch(&self) -> usize {
        let zeros = self.of.inner.max(self.of.outputs);
        zeros + self.of.points() * self.strides().iter().sum::<usize>()
    }

    pub(super) fn run<T: Real>(&self, io: &Io<'_>) {
        let (x, dy) = (io.input::<T>(0), io.input::<T>(1));
        let of = &self.of;
        let [field, cotangent, _] = self.strides();
        let (zeros, rest) = io.scratch::<T>().split_at_mut(of.inner.max(of.outputs));
        zeros.fill(T::ZERO);
        let (fields, rest) = rest.split_at_mut(of.points() * field);
        let (cotangents, products) = rest.split_at_mut(of.points() * cotangent);
        let dw = Shared::new(io.output::<T>(0));
        let at = Shares {
            of: self,
            x,
            dy,
            zeros,
            fields: Shared::new(fields),
            cotangents: Shared::new(cotangents),
            products: Shared::new(products),
            dw,
        };
        for first in (0..of.tiles()).step_by(self.chunk()) {
            let end = of.tiles().min(first + self.chunk());
            for_each_task((end - first).div_ceil(TILES), &mut [], 0, |task, _: &mut [T]| {
                let start = first + task * TILES;
                T::dispatch(Fields { at: &at, first, tiles: start..end.min(start + TILES) });
            });
            let groups = of.outputs.div_ceil(CHANNELS);
            for_each_task(of.points() * groups, &mut [], 0, |task, _: &mut [T]| {
                let start = task % groups * CHANNELS;
                let outputs = start..of.outputs.min(start + CHANNELS);
                T::dispatch(Products { at: &at, first, tiles: end - first, point: task / groups, outputs });
            });
        }
        for_each_task(of.outputs, &mut [], 0, |output, _: &mut [T]| {
            T::dispatch(Gradients { at: &at, output });
        });
    }
}

/// Data that all tasks share.
struct Shares<'a, T> {
    of: &'a FilterGradient,
    x: &'a [T],
    dy: &'a [T],
    zeros: &'a [T],
    /// `[point][tile][input channel]`.
    fields: Shared<T>,
    /// `[point][tile][output channel]`.
    cotangents: Shared<T>,
    /// `[point][output channel][input channel]`.
    products: Shared<T>,
    dw: Shared<T>,
}

/// Transforms some tiles of both fields; `first` is the first tile of the chunk.
struct Fields<'a, T> {
    at: &'a Shares<'a, T>,
    first: usize,
    tiles: std::ops::Range<usize>,
}

impl<T: Real> VectorWork<T> for Fields<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let (at, of) = (self.at, &self.at.of.of);
        let [field, cotangent, _] = at.of.strides();
        for tile in self.tiles {
            let n = tile - self.first;
            // SAFETY: the scratch memory holds a chunk of tiles, and only this task writes these tiles.
            unsafe {
                let to = at.fields.pointer().add(n * of.inner);
                of.transform_field::<V>(tile, at.x.as_ptr(), at.zeros.as_ptr(), to, field);
                let to = at.cotangents.pointer().add(n * of.outputs);
                transform_cotangents::<V>(of, tile, at.dy.as_ptr(), at.zeros.as_ptr(), to, cotangent);
            }
        }
    }
}

/// Transforms the cotangents of one tile for all channels.
#[inline(always)]
unsafe fn transform_cotangents<V: Vector>(
    of: &Winograd,
    tile: usize,
    dy: *const V::Scalar,
    zeros: *const V::Scalar,
    to: *mut V::Scalar,
    stride: usize,
) {
    let (batch, first) = of.place(tile);
    let pixels = if of.flat { TILE } else { TILE * TILE };
    let mut starts = [zeros; TILE * TILE];
    for (n, start) in starts[..pixels].iter_mut().enumerate() {
        let (i, j) = (first[0] + n / TILE, first[1] + n % TILE);
        if i < of.result[0] && j < of.result[1] {
            *start = dy.wrapping_add(((batch * of.result[0] + i) * of.result[1] + j) * of.outputs);
        }
    }
    // SAFETY: the pixels are in the field or are zeros, each with all channels; `to` is the caller's.
    unsafe {
        for channel in (0..of.outputs).step_by(V::WIDTH) {
            let mut taken = [[V::splat(V::Scalar::ZERO); TILE]; TILE];
            for (n, taken) in taken.as_flattened_mut()[..pixels].iter_mut().enumerate() {
                *taken = V::load(starts[n].add(channel));
            }
            let done = both::<V, CotangentTransform, 4, 6>(of.flat, taken);
            for (point, &value) in done.as_flattened()[..of.points()].iter().enumerate() {
                value.store(to.add(point * stride + channel));
            }
        }
    }
}

/// Multiplies at one point for some output channels, over the tiles of a chunk.
struct Products<'a, T> {
    at: &'a Shares<'a, T>,
    first: usize,
    tiles: usize,
    point: usize,
    outputs: std::ops::Range<usize>,
}

impl<T: Real> VectorWork<T> for Products<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let (at, of) = (self.at, &self.at.of.of);
        let [field, cotangent, product] = at.of.strides();
        for tile in (0..self.tiles).step_by(INNER) {
            let length = INNER.min(self.tiles - tile);
            let segment = InnerRun { a: tile * of.outputs, b: tile * of.inner, length };
            for column in (0..of.inner).step_by(V::PANEL) {
                for output in self.outputs.clone().step_by(V::ROWS) {
                    // SAFETY: both fields of the chunk were transformed before; only this task writes these products.
                    unsafe {
                        let to = at.products.pointer();
                        let to = to.add(self.point * product + output * of.inner + column);
                        multiply_columns::<V>(
                            V::ROWS.min(self.outputs.end - output),
                            &Columns {
                                segments: &segment,
                                count: 1,
                                a: at.cotangents.pointer().add(self.point * cotangent + output),
                                a_stride: of.outputs,
                                b: at.fields.pointer().add(self.point * field + column),
                                b_stride: of.inner,
                                c: Destination::strided(to, of.inner, V::PANEL, self.first + tile > 0),
                            },
                        );
                    }
                }
            }
        }
    }
}

/// Transforms the products of one output channel back.
struct Gradients<'a, T> {
    at: &'a Shares<'a, T>,
    output: usize,
}

impl<T: Real> VectorWork<T> for Gradients<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let (at, of) = (self.at, &self.at.of.of);
        let [_, _, stride] = at.of.strides();
        let taps = if of.flat { TAPS } else { TAPS * TAPS };
        // SAFETY: all products were computed before; only this task writes the gradient of this output channel.
        unsafe {
            let from = at.products.pointer().add(self.output * of.inner).cast_const();
            let to = at.dw.pointer().add(self.output * taps * of.inner);
            for channel in (0..of.inner).step_by(V::WIDTH) {
                let mut taken = [[V::splat(T::ZERO); POINTS]; POINTS];
                for (point, taken) in taken.as_flattened_mut()[..of.points()].iter_mut().enumerate() {
                    *taken = V::load(from.add(point * stride + channel));
                }
                let done = both::<V, GradientTransform, 6, 3>(of.flat, taken);
                for (tap, &value) in done.as_flattened()[..taps].iter().enumerate() {
                    value.store(to.add(tap * of.inner + channel));
                }
            }
        }
    }
}
