//! Three-tap convolutions with stride 1 by Winograd's minimal filtering: 36 instead of 144 products for a 4x4 tile of
//! the result, or 6 instead of 12 for a run of 4.
//!
//! The filter is transformed first, once per call. Every task then transforms some tiles of the input, multiplies at
//! each point with all channels, and transforms back. Its memory fits into the second-level cache.
#![allow(unsafe_code)]

use super::ConvGeometry;
use super::transform::{FieldTransform, FilterTransform, OutputTransform, POINTS, TAPS, TILE, both};
use super::winograd_panels as panels;
use crate::Io;
use crate::gemm::{
    Ahead, Destination, Rows, Shared, Vector, VectorWork, WIDEST, for_each_task, lanes, multiply_rows,
};
use crate::scalar::Real;

/// Number of tiles per task.
const TILES: usize = 16;
/// Number of the result's channels that a task computes before it transforms them back.
const PASS: usize = 2 * WIDEST;
/// Number of tasks below which channels are divided too.
const TASKS: usize = 4;
/// Number of tiles below which transforming the filter costs more than it saves.
const FEWEST: usize = 8;
/// Number of elements of transformed filters that fit into the second-level cache beside the tiles.
const FILTERS: usize = 1 << 18;
/// Largest number of tiles that counts as few.
const FEW: usize = 64;
/// Additional elements between arrays that are read together, so that they use different cache lines.
pub(super) const SKEW: usize = 16;

/// A convolution, or its adjoint in the input, which is a convolution with reversed kernel and exchanged channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Winograd {
    adjoint: bool,
    /// Whether the kernel has one row.
    pub(super) flat: bool,
    batch: usize,
    /// Height and width of the source and of the result.
    pub(super) source: [usize; 2],
    pub(super) result: [usize; 2],
    padding: [usize; 2],
    /// Number of channels read and written.
    pub(super) inner: usize,
    pub(super) outputs: usize,
}

/// Whether minimal filtering supports the kernel, stride and channels.
pub(super) fn applies(g: &ConvGeometry) -> bool {
    let kernel = g.kernel[1] == TAPS && (g.kernel[0] == TAPS || g.kernel[0] == 1);
    let padding = (0..2).all(|axis| g.padding[axis] < g.kernel[axis]);
    let channels = g.inputs.is_multiple_of(WIDEST) && g.outputs.is_multiple_of(WIDEST);
    kernel && padding && channels && g.stride == [1, 1]
}

impl Winograd {
    /// The convolution or its adjoint, if minimal filtering is worth while.
    pub(super) fn new(g: &ConvGeometry, adjoint: bool) -> Option<Self> {
        let (mut source, mut result) = ([g.height, g.width], [g.rows, g.columns]);
        let (mut inner, mut outputs, mut padding) = (g.inputs, g.outputs, g.padding);
        if adjoint {
            (source, result, inner, outputs) = (result, source, outputs, inner);
            padding = [0, 1].map(|axis| (g.kernel[axis] - 1).saturating_sub(padding[axis]));
        }
        let (flat, batch) = (g.kernel[0] == 1, g.batch);
        let found = Self { adjoint, flat, batch, source, result, padding, inner, outputs };
        (applies(g) && found.tiles() >= FEWEST).then_some(found)
    }

    pub(super) fn points(&self) -> usize {
        if self.flat { POINTS } else { POINTS * POINTS }
    }

    /// Number of tiles of one sample along height and width.
    fn grid(&self) -> [usize; 2] {
        [
            if self.flat { self.result[0] } else { self.result[0].div_ceil(TILE) },
            self.result[1].div_ceil(TILE),
        ]
    }

    pub(super) fn tiles(&self) -> usize {
        self.batch * self.grid()[0] * self.grid()[1]
    }

    /// Number of elements of the transformed filter at one point for one panel.
    fn filter_stride(&self, panel: usize) -> usize {
        self.inner * panel + SKEW
    }

    fn filter_elements(&self) -> usize {
        self.outputs / WIDEST * self.points() * (self.inner * WIDEST + 2 * SKEW)
    }

    fn lane_elements(&self) -> usize {
        let each = TILES * self.inner + SKEW + TILES * PASS + SKEW;
        self.points() * each
    }

    /// Whether the transformed filters are too large to be written and read again for few tiles. They are then computed
    /// where they are used.
    fn by_panels(&self) -> bool {
        let filters = self.points() * self.inner * self.outputs;
        filters > FILTERS && (self.tiles() <= FEW || filters > 8 * FILTERS)
    }

    /// Real elements of scratch memory.
    pub(super) fn scratch(&self) -> usize {
        if self.by_panels() {
            return panels::scratch(self);
        }
        self.inner.next_multiple_of(16) + self.filter_elements() + lanes() * self.lane_elements()
    }

    pub(super) fn run<T: Real>(&self, io: &Io<'_>) {
        if self.by_panels() {
            return panels::run::<T>(self, io);
        }
        let (x, w) = (io.input::<T>(0), io.input::<T>(1));
        let (zeros, rest) = io.scratch::<T>().split_at_mut(self.inner.next_multiple_of(16));
        let (filters, scratch) = rest.split_at_mut(self.filter_elements());
        zeros.fill(T::ZERO);
        let filters = Shared::new(filters);
        for_each_task(self.outputs / WIDEST, &mut [], 0, |task, _: &mut [T]| {
            T::dispatch(Filters { of: self, w, filters, first: task * WIDEST });
        });
        let y = Shared::new(io.output::<T>(0));
        let blocks = self.tiles().div_ceil(TILES);
        let passes = self.outputs.div_ceil(PASS);
        let groups = TASKS.div_ceil(blocks).min(passes);
        let width = passes.div_ceil(groups) * PASS;
        let groups = self.outputs.div_ceil(width);
        for_each_task(blocks * groups, scratch, self.lane_elements(), |task, scratch| {
            let tiles = task / groups * TILES..self.tiles().min((task / groups + 1) * TILES);
            let columns = task % groups * width..self.outputs.min((task % groups + 1) * width);
            T::dispatch(Tiles { of: self, x, zeros, filters, y, tiles, columns, scratch });
        });
    }
}

/// Transforms the filters of one panel of output channels.
struct Filters<'a, T> {
    of: &'a Winograd,
    w: &'a [T],
    filters: Shared<T>,
    first: usize,
}

impl<T: Real> VectorWork<T> for Filters<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let of = self.of;
        let stride = of.filter_stride(V::PANEL);
        for column in (self.first..self.first + WIDEST).step_by(V::PANEL) {
            // SAFETY: the scratch memory holds all filters, and only this task writes those of its panels.
            unsafe {
                let to = self.filters.pointer().add(column / V::PANEL * of.points() * stride);
                of.transform_filters::<V>(self.w.as_ptr(), column, 0..of.inner, to, stride);
            }
        }
    }
}

/// Computes some tiles of some output channels.
struct Tiles<'a, T> {
    of: &'a Winograd,
    x: &'a [T],
    zeros: &'a [T],
    filters: Shared<T>,
    y: Shared<T>,
    tiles: std::ops::Range<usize>,
    columns: std::ops::Range<usize>,
    scratch: &'a mut [T],
}

impl Winograd {
    /// Transforms the filters from some input channels to one panel of output channels, starting at `column`. Element
    /// `(point, channel, output)` is written to `to[point * stride + channel * PANEL + output]`, with channels relative
    /// to the first of the range.
    #[inline(always)]
    pub(super) unsafe fn transform_filters<V: Vector>(
        &self,
        w: *const V::Scalar,
        column: usize,
        channels: std::ops::Range<usize>,
        to: *mut V::Scalar,
        stride: usize,
    ) {
        let taps = if self.flat { TAPS } else { TAPS * TAPS };
        let mut turned = [V::Scalar::ZERO; TAPS * TAPS * 16 * WIDEST];
        // SAFETY: the weight has the sizes that the graph checked, all multiples of the panel; `to` is the caller's.
        unsafe {
            for k in channels.clone().step_by(V::WIDTH) {
                if !self.adjoint {
                    // Output channels are not contiguous in the weight: collect them.
                    for tap in 0..taps {
                        for half in [0, V::WIDTH] {
                            let from = w.add(((column + half) * taps + tap) * self.inner + k);
                            let to = turned.as_mut_ptr().add(tap * V::WIDTH * V::PANEL + half);
                            V::transpose(from, taps * self.inner, to, V::PANEL);
                        }
                    }
                }
                for i in 0..V::WIDTH {
                    for half in [0, V::WIDTH] {
                        let mut taken = [[V::splat(V::Scalar::ZERO); TAPS]; TAPS];
                        for (tap, taken) in taken.as_flattened_mut()[..taps].iter_mut().enumerate() {
                            *taken = V::load(match self.adjoint {
                                false => turned.as_ptr().add((tap * V::WIDTH + i) * V::PANEL + half),
                                true => {
                                    w.add(((k + i) * taps + taps - 1 - tap) * self.outputs + column + half)
                                }
                            });
                        }
                        let done = both::<V, FilterTransform, 3, 6>(self.flat, taken);
                        let to = to.add((k - channels.start + i) * V::PANEL + half);
                        for (point, &value) in done.as_flattened()[..self.points()].iter().enumerate() {
                            value.store(to.add(point * stride));
                        }
                    }
                }
            }
        }
    }

    /// Sample and first pixel of the result of a tile.
    #[inline(always)]
    pub(super) fn place(&self, tile: usize) -> (usize, [usize; 2]) {
        let [down, across] = self.grid();
        let (row, j) = (tile / across, tile % across);
        (row / down, [row % down * if self.flat { 1 } else { TILE }, j * TILE])
    }

    /// Transforms the input of one tile for all channels: element `(point, channel)` is written to `to[point * stride +
    /// channel]`.
    #[inline(always)]
    pub(super) unsafe fn transform_field<V: Vector>(
        &self,
        tile: usize,
        x: *const V::Scalar,
        zeros: *const V::Scalar,
        to: *mut V::Scalar,
        stride: usize,
    ) {
        let (batch, first) = self.place(tile);
        let mut pixels = [zeros; POINTS * POINTS];
        for (n, pixel) in pixels[..self.points()].iter_mut().enumerate() {
            let y = (first[0] + n / POINTS).wrapping_sub(self.padding[0]);
            let x_at = (first[1] + n % POINTS).wrapping_sub(self.padding[1]);
            if y < self.source[0] && x_at < self.source[1] {
                *pixel = x.wrapping_add(((batch * self.source[0] + y) * self.source[1] + x_at) * self.inner);
            }
        }
        // SAFETY: the pixels are in the field or are zeros, each with `inner` channels; `to` is the caller's.
        unsafe {
            for channel in (0..self.inner).step_by(V::WIDTH) {
                let mut taken = [[V::splat(V::Scalar::ZERO); POINTS]; POINTS];
                for (n, taken) in taken.as_flattened_mut()[..self.points()].iter_mut().enumerate() {
                    *taken = V::load(pixels[n].add(channel));
                }
                let done = both::<V, FieldTransform, 6, 6>(self.flat, taken);
                for (point, &value) in done.as_flattened()[..self.points()].iter().enumerate() {
                    value.store(to.add(point * stride + channel));
                }
            }
        }
    }
}

impl<T: Real> VectorWork<T> for Tiles<'_, T> {
    #[inline(always)]
    unsafe fn run<V: Vector<Scalar = T>>(self) {
        let of = self.of;
        let (stride, filter_stride) = (TILES * of.inner + SKEW, of.filter_stride(V::PANEL));
        let (fields, products) = self.scratch.split_at_mut(of.points() * stride);
        // SAFETY: the scratch memory holds TILES tiles of all channels read and PASS channels written. The filters were
        // transformed before, and no other task writes these pixels and channels.
        unsafe {
            for (n, tile) in self.tiles.clone().enumerate() {
                let to = fields.as_mut_ptr().add(n * of.inner);
                of.transform_field::<V>(tile, self.x.as_ptr(), self.zeros.as_ptr(), to, stride);
            }
            for pass in self.columns.clone().step_by(PASS) {
                let end = self.columns.end.min(pass + PASS);
                let product_stride = TILES * PASS + SKEW;
                for point in 0..of.points() {
                    for column in (pass..end).step_by(V::PANEL) {
                        let b = self
                            .filters
                            .pointer()
                            .add((column / V::PANEL * of.points() + point) * filter_stride);
                        for tile in (0..self.tiles.len()).step_by(V::ROWS) {
                            let mut a = [fields.as_ptr(); 8];
                            for (r, a) in a.iter_mut().enumerate() {
                                *a = a.wrapping_add(point * stride + (tile + r) * of.inner);
                            }
                            let c = products
                                .as_mut_ptr()
                                .add(point * product_stride + tile * PASS + column - pass);
                            let c = Destination::strided(c, PASS, V::PANEL, false);
                            let (a, b, inner) = (a.as_ptr(), b.cast_const(), of.inner);
                            let product =
                                Rows { a, taps: 1, inner, b, b_stride: V::PANEL, c, ahead: Ahead::nothing() };
                            multiply_rows::<V>(V::ROWS.min(self.tiles.len() - tile), &product);
                        }
                    }
                }
                for (n, tile) in self.tiles.clone().enumerate() {
                    let from = products.as_ptr().add(n * PASS);
                    write::<V>(of, tile, pass..end, from, product_stride, self.y.pointer());
                }
            }
        }
    }
}

/// Transforms the products of one tile back and writes the existing pixels.
#[inline(always)]
pub(super) unsafe fn write<V: Vector>(
    of: &Winograd,
    tile: usize,
    columns: std::ops::Range<usize>,
    from: *const V::Scalar,
    stride: usize,
    y: *mut V::Scalar,
) {
    let (batch, first) = of.place(tile);
    let down = if of.flat { 1 } else { TILE.min(of.result[0] - first[0]) };
    let across = TILE.min(of.result[1] - first[1]);
    // SAFETY: by the caller: products of this tile at all points, pixels inside the result.
    unsafe {
        for (n, column) in columns.step_by(V::WIDTH).enumerate() {
            let mut taken = [[V::splat(V::Scalar::ZERO); POINTS]; POINTS];
            for (point, taken) in taken.as_flattened_mut()[..of.points()].iter_mut().enumerate() {
                *taken = V::load(from.add(point * stride + n * V::WIDTH));
            }
            let done = both::<V, OutputTransform, 6, 4>(of.flat, taken);
            for (i, row) in done.iter().enumerate().take(down) {
                let start = ((batch * of.result[0] + first[0] + i) * of.result[1] + first[1]) * of.outputs;
                for (j, &value) in row.iter().enumerate().take(across) {
                    value.store(y.add(start + j * of.outputs + column));
                }
            }
        }
    }
}
