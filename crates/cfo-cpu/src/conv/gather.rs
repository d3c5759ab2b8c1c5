//! The convolution and its adjoint in the input as matrix products with rows gathered by pointer. Each row is a pixel
//! of the result, each run of a row is a tap of the kernel, and padding is a row of zeros. The input is not copied.
#![allow(unsafe_code)]

use super::ConvGeometry;
use crate::Io;
use crate::gemm::{
    Ahead, Destination, Rows, Shared, Strided, Vector, VectorWork, WIDEST, for_each_task, lanes,
    multiply_rows, pack,
};
use crate::scalar::Real;

/// Number of pixels per task.
const PIXELS: usize = 64;
/// Number of tasks below which channels are divided too.
const TASKS: usize = 8;

/// One product, for pixels of the result with the same taps.
#[derive(Clone, Copy, Debug)]
pub(super) struct PixelGather {
    g: ConvGeometry,
    /// Whether this is the adjoint.
    adjoint: bool,
    /// First pixel along both axes; `size` pixels follow at distance `step`.
    first: [usize; 2],
    step: [usize; 2],
    size: [usize; 2],
    /// First tap along both axes; `taps` taps follow at distance `hop`.
    tap: [usize; 2],
    hop: [usize; 2],
    taps: [usize; 2],
    /// Number of panels per task.
    group: usize,
}

impl PixelGather {
    /// The forward convolution.
    pub(super) fn forward(g: ConvGeometry) -> Self {
        Self {
            g,
            adjoint: false,
            first: [0, 0],
            step: [1, 1],
            size: [g.rows, g.columns],
            tap: [0, 0],
            hop: [1, 1],
            taps: g.kernel,
            group: 0,
        }
        .grouped()
    }

    /// The adjoint, for the pixels whose distance to the padded edge has the given remainders modulo the stride.
    pub(super) fn input(g: ConvGeometry, remainder: [usize; 2]) -> Self {
        let lengths = [g.height, g.width];
        let first = [0, 1].map(|axis| {
            (remainder[axis] + g.stride[axis] - g.padding[axis] % g.stride[axis]) % g.stride[axis]
        });
        let size = [0, 1].map(|axis| lengths[axis].saturating_sub(first[axis]).div_ceil(g.stride[axis]));
        let taps = [0, 1].map(|axis| g.kernel[axis].saturating_sub(remainder[axis]).div_ceil(g.stride[axis]));
        let (step, hop) = (g.stride, g.stride);
        Self { g, adjoint: true, first, step, size, tap: remainder, hop, taps, group: 0 }.grouped()
    }

    fn grouped(mut self) -> Self {
        let panels = self.outputs().div_ceil(WIDEST);
        let parts = TASKS.div_ceil(self.pixels().div_ceil(PIXELS).max(1)).min(panels);
        self.group = panels.div_ceil(parts);
        self
    }

    fn pixels(&self) -> usize {
        self.g.batch * self.size[0] * self.size[1]
    }

    fn tap_count(&self) -> usize {
        self.taps[0] * self.taps[1]
    }

    /// Number of channels read and of channels written.
    fn inner(&self) -> usize {
        if self.adjoint { self.g.outputs } else { self.g.inputs }
    }

    fn outputs(&self) -> usize {
        if self.adjoint { self.g.inputs } else { self.g.outputs }
    }

    fn panel_elements(&self) -> usize {
        self.tap_count() * self.inner() * self.outputs().next_multiple_of(WIDEST)
    }

    /// Number of pointers per task, in elements.
    fn table_elements(&self) -> usize {
        2 * (PIXELS + 8) * (self.tap_count() + 1)
    }

    /// Real elements of scratch memory.
    pub(super) fn scratch(&self) -> usize {
        self.panel_elements() + self.inner().next_multiple_of(16) + lanes() * self.table_elements()
    }

    /// Computes the pixels of this product.
    pub(super) fn run<T: Real>(&self, io: &Io<'_>) {
        if self.pixels() == 0 {
            return;
        }
        let (x, w) = (io.input::<T>(0), io.input::<T>(1));
        let (panels, rest) = io.scratch::<T>().split_at_mut(self.panel_elements());
        let (zeros, tables) = rest.split_at_mut(self.inner().next_multiple_of(16));
        zeros.fill(T::ZERO);
        let panels = Shared::new(panels);
        let width = self.group * WIDEST;
        let groups = self.outputs().div_ceil(width);
        let narrow = self.outputs().div_ceil(WIDEST);
        for_each_task(narrow, &mut [], 0, |task, _: &mut [T]| {
            let columns = task * WIDEST..self.outputs().min((task + 1) * WIDEST);
            T::dispatch(Packing { gather: self, w, panels, columns });
        });
        let y = Shared::new(io.output::<T>(0));
        let blocks = self.pixels().div_ceil(PIXELS);
        for_each_task(blocks * groups, tables, self.table_elements(), |task, table| {
            let pixels = task / groups * PIXELS..self.pixels().min((task / groups + 1) * PIXELS);
            let columns = task % groups * width..self.outputs().min((task % groups + 1) * width);
            T::dispatch(Block { gather: self, x, zeros, panels, y, pixels, columns, table });
        });
    }
}

struct Packing<'a, T> {
    gather: &'a PixelGather,
    w: &'a [T],
    panels: Shared<T>,
    columns: std::ops::Range<usize>,
}

impl<T: Real> VectorWork<T> for Packing<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let (gather, g) = (self.gather, &self.gather.g);
        let (taps, inner) = (gather.tap_count(), gather.inner());
        let size = g.kernel[0] * g.kernel[1] * g.inputs;
        for column in self.columns.clone().step_by(V::PANEL) {
            for t in 0..taps {
                let p = gather.tap[0] + t / gather.taps[1] * gather.hop[0];
                let q = gather.tap[1] + t % gather.taps[1] * gather.hop[1];
                let tap = (p * g.kernel[1] + q) * g.inputs;
                let (start, row, across) = match gather.adjoint {
                    false => (column * size + tap, 1, size),
                    true => (tap + column, size, 1),
                };
                // SAFETY: inside the weight, whose sizes the graph checked. The scratch memory holds all panels, and
                // tasks write disjoint ones.
                unsafe {
                    let from = Strided { start: self.w.as_ptr().add(start), row, column: across };
                    let to = self.panels.pointer().add((column * taps + t * V::PANEL) * inner);
                    pack::<V>(from, inner, V::PANEL.min(self.columns.end - column), to);
                }
            }
        }
    }
}

struct Block<'a, T> {
    gather: &'a PixelGather,
    x: &'a [T],
    zeros: &'a [T],
    panels: Shared<T>,
    y: Shared<T>,
    pixels: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    table: &'a mut [T],
}

impl<T: Real> Block<'_, T> {
    /// Fills the table. For each block of `rows` pixels and each tap it holds the starts of the runs that the pixels
    /// read. At the end it holds the position to which each pixel is written.
    #[inline(always)]
    unsafe fn point(&mut self, rows: usize) -> (*const *const T, *const *mut T) {
        let (gather, g) = (self.gather, &self.gather.g);
        let taps = gather.tap_count();
        let table = self.table.as_mut_ptr().cast::<*const T>();
        let length = if gather.adjoint { [g.rows, g.columns] } else { [g.height, g.width] };
        let whole = if gather.adjoint { [g.height, g.width] } else { [g.rows, g.columns] };
        let (inner, outputs) = (gather.inner(), gather.outputs());
        let mut at = self.pixels.start;
        let mut j = at % gather.size[1];
        at /= gather.size[1];
        let mut i = at % gather.size[0];
        let mut batch = at / gather.size[0];
        // SAFETY: the table has room for the pointers of PIXELS + 8 pixels; pointers into the fields are made only for
        // pixels inside them.
        unsafe {
            let targets = table.add((PIXELS + 8) * taps).cast::<*mut T>();
            for n in 0..self.pixels.len() {
                let entry = table.add(n / rows * rows * taps + n % rows);
                let pixel = [gather.first[0] + i * gather.step[0], gather.first[1] + j * gather.step[1]];
                let offset = (batch * whole[0] + pixel[0]) * whole[1] + pixel[1];
                *targets.add(n) = self.y.pointer().add(offset * outputs);
                // Start of the first tap, as an integer that may wrap below 0, and the distance to the next tap.
                let start = [0, 1].map(|axis| match gather.adjoint {
                    false => (pixel[axis] * g.stride[axis]).wrapping_sub(g.padding[axis]),
                    true => (pixel[axis] + g.padding[axis] - gather.tap[axis]).wrapping_div(g.stride[axis]),
                });
                let source = self.x.as_ptr().wrapping_add(batch * length[0] * length[1] * inner);
                let mut t = 0;
                for p in 0..gather.taps[0] {
                    let y = if gather.adjoint { start[0].wrapping_sub(p) } else { start[0].wrapping_add(p) };
                    for q in 0..gather.taps[1] {
                        let x =
                            if gather.adjoint { start[1].wrapping_sub(q) } else { start[1].wrapping_add(q) };
                        let inside = y < length[0] && x < length[1];
                        *entry.add(t * rows) = match inside {
                            true => source.add((y * length[1] + x) * inner),
                            false => self.zeros.as_ptr(),
                        };
                        t += 1;
                    }
                }
                j += 1;
                if j == gather.size[1] {
                    (j, i) = (0, i + 1);
                    if i == gather.size[0] {
                        (i, batch) = (0, batch + 1);
                    }
                }
            }
            (table.cast_const(), targets.cast_const())
        }
    }
}

impl<T: Real> VectorWork<T> for Block<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(mut self) {
        let (taps, inner) = (self.gather.tap_count(), self.gather.inner());
        // SAFETY: the table's pointers lead to runs of `inner` elements or to pixels of the result. No other task
        // writes these pixels in these columns. The panels were packed before.
        unsafe {
            let (table, targets) = self.point(V::ROWS);
            for column in self.columns.clone().step_by(V::PANEL) {
                let valid = V::PANEL.min(self.columns.end - column);
                let b = self.panels.pointer().add(column * taps * inner).cast_const();
                for pixel in (0..self.pixels.len()).step_by(V::ROWS) {
                    let rows = targets.add(pixel);
                    let first = std::ptr::null_mut();
                    let c = Destination { rows, first, stride: 0, column, valid, accumulate: false };
                    let a = table.add(pixel * taps);
                    let product = Rows { a, taps, inner, b, b_stride: V::PANEL, c, ahead: Ahead::nothing() };
                    multiply_rows::<V>(V::ROWS.min(self.pixels.len() - pixel), &product);
                }
            }
        }
    }
}
