//! Minimal filtering with many channels and few tiles. The input is transformed first. Every task then computes the
//! filters of its own output channels where it uses them, so that all filters are never in memory at once.
#![allow(unsafe_code)]

use super::winograd::{SKEW, Winograd, write};
use crate::Io;
use crate::gemm::{
    Ahead, Destination, Rows, Shared, Vector, VectorWork, WIDEST, for_each_task, lanes, multiply_rows,
};
use crate::scalar::Real;

/// Number of tiles per task.
const TILES: usize = 64;
/// Number of channels whose filters are computed at once.
const CHANNELS: usize = 64;
/// Number of elements of the transformed input that are kept at once, or [`TILES`] tiles if that is more.
const KEPT: usize = 1 << 20;
/// Number of tiles that one task transforms.
const TRANSFORMED: usize = 4;

/// Number of tiles whose input is transformed at once.
fn chunk(of: &Winograd) -> usize {
    (KEPT / (of.points() * of.inner) / TILES * TILES).max(TILES).min(of.tiles())
}

fn field_stride(of: &Winograd) -> usize {
    chunk(of) * of.inner + SKEW
}

fn filter_stride() -> usize {
    CHANNELS * WIDEST + SKEW
}

fn product_stride(of: &Winograd) -> usize {
    TILES.min(of.tiles()) * WIDEST + SKEW
}

fn lane_elements(of: &Winograd) -> usize {
    of.points() * (filter_stride() + product_stride(of))
}

/// Real elements of scratch memory.
pub(super) fn scratch(of: &Winograd) -> usize {
    of.inner + of.points() * field_stride(of) + lanes() * lane_elements(of)
}

pub(super) fn run<T: Real>(of: &Winograd, io: &Io<'_>) {
    let (x, w) = (io.input::<T>(0), io.input::<T>(1));
    let (zeros, rest) = io.scratch::<T>().split_at_mut(of.inner);
    let (fields, scratch) = rest.split_at_mut(of.points() * field_stride(of));
    zeros.fill(T::ZERO);
    let (fields, y) = (Shared::new(fields), Shared::new(io.output::<T>(0)));
    for first in (0..of.tiles()).step_by(chunk(of)) {
        let end = of.tiles().min(first + chunk(of));
        for_each_task((end - first).div_ceil(TRANSFORMED), &mut [], 0, |task, _: &mut [T]| {
            let start = first + task * TRANSFORMED;
            T::dispatch(Fields { of, x, zeros, fields, first, tiles: start..end.min(start + TRANSFORMED) });
        });
        let panels = of.outputs / WIDEST;
        let blocks = (end - first).div_ceil(TILES);
        for_each_task(blocks * panels, scratch, lane_elements(of), |task, scratch| {
            let start = first + task / panels * TILES;
            let (tiles, column) = (start..end.min(start + TILES), task % panels * WIDEST);
            T::dispatch(Panel { of, w, fields, y, first, tiles, column, scratch });
        });
    }
}

/// Transforms some tiles of the input; `first` is the first tile of the chunk.
struct Fields<'a, T> {
    of: &'a Winograd,
    x: &'a [T],
    zeros: &'a [T],
    fields: Shared<T>,
    first: usize,
    tiles: std::ops::Range<usize>,
}

impl<T: Real> VectorWork<T> for Fields<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        for tile in self.tiles {
            // SAFETY: the scratch memory holds a chunk of tiles, and only this task writes these tiles.
            unsafe {
                let to = self.fields.pointer().add((tile - self.first) * self.of.inner);
                let (x, zeros) = (self.x.as_ptr(), self.zeros.as_ptr());
                self.of.transform_field::<V>(tile, x, zeros, to, field_stride(self.of));
            }
        }
    }
}

/// Computes some tiles of some output channels, from `column` on.
struct Panel<'a, T> {
    of: &'a Winograd,
    w: &'a [T],
    fields: Shared<T>,
    y: Shared<T>,
    first: usize,
    tiles: std::ops::Range<usize>,
    column: usize,
    scratch: &'a mut [T],
}

impl<T: Real> VectorWork<T> for Panel<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let of = self.of;
        let (filters, products) = self.scratch.split_at_mut(of.points() * filter_stride());
        let (stride, count) = (product_stride(of), self.tiles.len());
        for column in (self.column..self.column + WIDEST).step_by(V::PANEL) {
            for channel in (0..of.inner).step_by(CHANNELS) {
                let channels = channel..of.inner.min(channel + CHANNELS);
                let inner = channels.len();
                // SAFETY: the scratch memory holds the filters of these channels and the products of these tiles; the
                // input of the chunk was transformed before.
                unsafe {
                    let (w, to) = (self.w.as_ptr(), filters.as_mut_ptr());
                    of.transform_filters::<V>(w, column, channels, to, filter_stride());
                    for point in 0..of.points() {
                        let start = point * field_stride(of) + (self.tiles.start - self.first) * of.inner;
                        let a = self.fields.pointer().add(start + channel).cast_const();
                        let b = filters.as_ptr().add(point * filter_stride());
                        for tile in (0..count).step_by(V::ROWS) {
                            let mut starts = [a; 8];
                            for (r, start) in starts.iter_mut().enumerate() {
                                *start = a.wrapping_add((tile + r) * of.inner);
                            }
                            let c = products.as_mut_ptr().add(point * stride + tile * V::PANEL);
                            let c = Destination::strided(c, V::PANEL, V::PANEL, channel > 0);
                            let a = starts.as_ptr();
                            let product =
                                Rows { a, taps: 1, inner, b, b_stride: V::PANEL, c, ahead: Ahead::nothing() };
                            multiply_rows::<V>(V::ROWS.min(count - tile), &product);
                        }
                    }
                }
            }
            for (n, tile) in self.tiles.clone().enumerate() {
                // SAFETY: the products of this tile are complete; no other task writes these pixels and channels.
                unsafe {
                    let from = products.as_ptr().add(n * V::PANEL);
                    write::<V>(of, tile, column..column + V::PANEL, from, stride, self.y.pointer());
                }
            }
        }
    }
}
