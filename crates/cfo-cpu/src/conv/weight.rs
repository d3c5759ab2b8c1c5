//! The convolution's adjoint in the weight: for every tap, a product of the transposed cotangent with the shifted
//! input.
#![allow(unsafe_code)]

use super::ConvGeometry;
use crate::Io;
use crate::gemm::{
    Columns, Destination, InnerRun, Shared, Vector, VectorWork, WIDEST, for_each_task, lanes,
    multiply_columns, pack_left,
};
use crate::scalar::Real;

/// Number of output channels per task.
const CHANNELS: usize = 16;
/// Number of pixels that are summed before the sums are written to memory.
const PIXELS: usize = 256;
/// Number of parts of the pixels where taps and channels are packed.
const PARTS: usize = 8;

/// Whether a panel of input channels can be read without packing.
fn in_place(g: &ConvGeometry) -> bool {
    g.inputs.is_multiple_of(WIDEST)
}

/// Number of output rows whose pixels are summed before the sums are written to memory.
fn row_step(g: &ConvGeometry) -> usize {
    (PIXELS / g.columns).clamp(1, PIXELS)
}

/// Number of elements in which a task packs the cotangents of its channels.
fn left_elements(g: &ConvGeometry) -> usize {
    (CHANNELS + 8) * row_step(g) * g.columns
}

/// Number of columns of the packed form.
fn packed_columns(g: &ConvGeometry) -> usize {
    (g.kernel[0] * g.kernel[1] * g.inputs).next_multiple_of(WIDEST)
}

/// Number of pixels packed at once.
fn packed_pixels(g: &ConvGeometry) -> usize {
    ((1 << 16) / packed_columns(g)).clamp(8, PIXELS)
}

/// Real elements of scratch memory.
pub(super) fn scratch(g: &ConvGeometry) -> usize {
    if in_place(g) {
        return lanes() * left_elements(g);
    }
    PARTS * g.outputs * packed_columns(g) + lanes() * packed_pixels(g) * packed_columns(g)
}

pub(super) fn run<T: Real>(g: &ConvGeometry, io: &Io<'_>) {
    let (x, dy) = (io.input::<T>(0), io.input::<T>(1));
    if !in_place(g) {
        return packed::<T>(g, io);
    }
    let dw = Shared::new(io.output::<T>(0));
    let tasks = g.outputs.div_ceil(CHANNELS) * g.kernel[0];
    for_each_task(tasks, io.scratch::<T>(), left_elements(g), |task, left| {
        let first = task / g.kernel[0] * CHANNELS;
        let outputs = first..g.outputs.min(first + CHANNELS);
        T::dispatch(Taps { g, x, dy, dw, left, outputs, p: task % g.kernel[0] });
    });
}

/// One row of taps for some output channels.
struct Taps<'a, T> {
    g: &'a ConvGeometry,
    x: &'a [T],
    dy: &'a [T],
    dw: Shared<T>,
    left: &'a mut [T],
    outputs: std::ops::Range<usize>,
    p: usize,
}

impl<T: Real> Taps<'_, T> {
    /// The runs of pixels in output rows `rows` of all samples that read the field with tap `q`. Cotangents are packed
    /// in blocks of `block` channels.
    #[inline(always)]
    fn segments(&self, rows: std::ops::Range<usize>, q: usize, block: usize, into: &mut [InnerRun]) -> usize {
        let g = self.g;
        // The first and the last column whose tap is in the field.
        let first = g.padding[1].saturating_sub(q).div_ceil(g.stride[1]);
        let end = (g.width + g.padding[1]).saturating_sub(q).div_ceil(g.stride[1]).min(g.columns);
        let mut count = 0;
        for row in rows.clone() {
            let (batch, i) = (row / g.rows, row % g.rows);
            let Some(y) = g.y(i, self.p).filter(|_| first < end) else { continue };
            let x = first * g.stride[1] + q - g.padding[1];
            into[count] = InnerRun {
                a: ((row - rows.start) * g.columns + first) * block,
                b: ((batch * g.height + y) * g.width + x) * g.inputs,
                length: end - first,
            };
            count += 1;
        }
        count
    }
}

impl<T: Real> VectorWork<T> for Taps<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let g = self.g;
        let all = g.batch * g.rows;
        let step = row_step(g);
        let mut table = [InnerRun::default(); PIXELS];
        let size = g.kernel[0] * g.kernel[1] * g.inputs;
        for row in (0..all).step_by(step) {
            let rows = row..all.min(row + step);
            let length = rows.len() * g.columns;
            // SAFETY: there is memory for the cotangents of these rows and channels.
            unsafe {
                let from = self.dy.as_ptr().add(row * g.columns * g.outputs + self.outputs.start);
                pack_left::<V>(from, g.outputs, length, self.outputs.len(), self.left.as_mut_ptr());
            }
            for q in 0..g.kernel[1] {
                let count = self.segments(rows.clone(), q, V::ROWS, &mut table);
                let tap = (self.p * g.kernel[1] + q) * g.inputs;
                for column in (0..g.inputs).step_by(V::PANEL) {
                    for output in self.outputs.clone().step_by(V::ROWS) {
                        // SAFETY: segments are inside both fields; only this task writes these taps of these outputs.
                        unsafe {
                            let to = self.dw.pointer().add(output * size + tap + column);
                            multiply_columns::<V>(
                                V::ROWS.min(self.outputs.end - output),
                                &Columns {
                                    segments: table.as_ptr(),
                                    count,
                                    a: self.left.as_ptr().add((output - self.outputs.start) * length),
                                    a_stride: V::ROWS,
                                    b: self.x.as_ptr().add(column),
                                    b_stride: g.stride[1] * g.inputs,
                                    c: Destination::strided(to, size, V::PANEL, row > 0),
                                },
                            );
                        }
                    }
                }
            }
        }
    }
}

/// The gradient for few channels or odd numbers of channels: taps and channels are packed together, for some pixels at
/// a time.
fn packed<T: Real>(g: &ConvGeometry, io: &Io<'_>) {
    let (x, dy) = (io.input::<T>(0), io.input::<T>(1));
    let (columns, pixels) = (packed_columns(g), packed_pixels(g));
    let (partial, rest) = io.scratch::<T>().split_at_mut(PARTS * g.outputs * columns);
    let all = g.batch * g.rows * g.columns;
    let share = all.div_ceil(PARTS).next_multiple_of(pixels);
    let parts = all.div_ceil(share);
    let sums = Shared::new(partial);
    for_each_task(parts, rest, pixels * columns, |part, panels| {
        T::dispatch(WeightPart {
            g,
            x,
            dy,
            sums,
            panels,
            part,
            pixels: part * share..all.min((part + 1) * share),
        });
    });
    let size = g.kernel[0] * g.kernel[1] * g.inputs;
    for (output, dw) in io.output::<T>(0).chunks_exact_mut(size).enumerate() {
        for (j, dw) in dw.iter_mut().enumerate() {
            *dw = (0..parts).map(|part| partial[(part * g.outputs + output) * columns + j]).sum();
        }
    }
}

/// The weight gradient over some of the pixels, with packed taps and channels.
struct WeightPart<'a, T> {
    g: &'a ConvGeometry,
    x: &'a [T],
    dy: &'a [T],
    sums: Shared<T>,
    panels: &'a mut [T],
    part: usize,
    pixels: std::ops::Range<usize>,
}

impl<T: Real> WeightPart<'_, T> {
    #[inline(always)]
    fn pack(&mut self, panel: usize, pixels: std::ops::Range<usize>) {
        let (g, room) = (self.g, packed_pixels(self.g));
        let first = pixels.start;
        for pixel in pixels {
            let (row, j) = (pixel / g.columns, pixel % g.columns);
            let (batch, i) = (row / g.rows, row % g.rows);
            let mut column = 0;
            for p in 0..g.kernel[0] {
                for q in 0..g.kernel[1] {
                    let from = g.y(i, p).zip(g.x(j, q));
                    let from = from.map(|(y, x)| ((batch * g.height + y) * g.width + x) * g.inputs);
                    for c in 0..g.inputs {
                        let value = from.map_or(T::ZERO, |from| self.x[from + c]);
                        let at = column / panel * panel * room + (pixel - first) * panel + column % panel;
                        self.panels[at] = value;
                        column += 1;
                    }
                }
            }
            for column in column..column.next_multiple_of(panel) {
                self.panels[column / panel * panel * room + (pixel - first) * panel + column % panel] =
                    T::ZERO;
            }
        }
    }
}

impl<T: Real> VectorWork<T> for WeightPart<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(mut self) {
        let (g, whole, room) = (self.g, packed_columns(self.g), packed_pixels(self.g));
        let used = (g.kernel[0] * g.kernel[1] * g.inputs).next_multiple_of(V::PANEL);
        for first in self.pixels.clone().step_by(room) {
            let end = self.pixels.end.min(first + room);
            self.pack(V::PANEL, first..end);
            let segment = InnerRun { a: first * g.outputs, b: 0, length: end - first };
            for column in (0..used).step_by(V::PANEL) {
                for output in (0..g.outputs).step_by(V::ROWS) {
                    // SAFETY: the panels were packed above, and only this task writes its part of the sums.
                    unsafe {
                        let to = self.sums.pointer().add((self.part * g.outputs + output) * whole + column);
                        multiply_columns::<V>(
                            V::ROWS.min(g.outputs - output),
                            &Columns {
                                segments: &segment,
                                count: 1,
                                a: self.dy.as_ptr().add(output),
                                a_stride: g.outputs,
                                b: self.panels.as_ptr().add(column * room),
                                b_stride: V::PANEL,
                                c: Destination::strided(to, whole, V::PANEL, first > self.pixels.start),
                            },
                        );
                    }
                }
            }
        }
    }
}
