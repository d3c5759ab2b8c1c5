//! Convolutions of fields of one row by our own kernels on tensor cores, without padded fields or patches.

use crate::convolution::conv::{ConvPass, Geometry};
use crate::op::reduce;
use crate::program::instruction::Sum;
use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, Value};
use cfo_engine::{Precision, Shape, ops};

/// Whether a device of this compute capability has the tensor cores and the shared memory that the kernels need.
pub(crate) fn supported(architecture: u32) -> bool {
    matches!(architecture, 90 | 100 | 103)
}

/// Number of channels of the result per block; 64 in the kernels.
const CHANNELS: usize = 64;
/// Number of blocks that occupy a device. Fixed, so that results do not depend on the device.
const BLOCKS: usize = 128;
/// Number of rows per block.
const ROWS: usize = 104;
const FEWEST_ROWS: usize = 32;
/// Maximum bytes of shared memory per block.
const SHARED: usize = 200 << 10;
const STAGES: usize = 3;
const WEIGHT_STAGES: usize = 2;
/// Number of threads of a block for the gradient of a weight.
const WEIGHT_THREADS: usize = 512;

/// Whether the kernels support a convolution.
pub(crate) fn fits(geometry: &Geometry) -> bool {
    let Geometry { x, w, y, stride, padding, precision, .. } = *geometry;
    let multiple = match precision {
        Precision::Tf32 => 16,
        Precision::Bf16 => 32,
        _ => return false,
    };
    let flat = [x[1], w[1], y[1], stride[0]] == [1; 4] && padding[0] == 0;
    let taps = (2..=5).contains(&w[2]) && (1..=2).contains(&stride[1]);
    let aligned = w[0] % multiple == 0 && w[3] % multiple == 0;
    let small = [x, w, y].iter().all(|shape| shape.iter().product::<usize>() < 1 << 30);
    flat && taps && aligned && small && padding[1] < 8
}

/// Number of places that a run of rows reads; `Windows` in the kernels.
fn places(rows: usize, rows_of_sample: usize, step: usize, taps: usize) -> usize {
    let window = ((rows_of_sample - 1) * step + taps).next_multiple_of(step);
    let further = match rows % rows_of_sample {
        0 => rows / rows_of_sample - 1,
        _ => (rows + rows_of_sample - 2) / rows_of_sample,
    };
    ((rows - 1) * step + taps + further * (window - rows_of_sample * step)).next_multiple_of(step)
}

/// Template arguments that describe the convolution.
fn numbers(geometry: &Geometry) -> String {
    let ([b, _, l, ci], [co, _, k, _], t) = (geometry.x, geometry.w, geometry.y[2]);
    let (stride, padding) = (geometry.stride[1], geometry.padding[1]);
    format!(
        "ConvRow<{b}u, {l}u, {ci}u, {t}u, {co}u, {k}u, {stride}u, {padding}, {}>",
        u32::from(geometry.periodic)
    )
}

/// Division of the forward product or its adjoint into blocks.
#[derive(Clone, Copy, Debug)]
struct Tile {
    rows: usize,
    columns: usize,
    shared: usize,
    grid: [u32; 3],
}

impl Tile {
    fn new(geometry: &Geometry) -> Self {
        let ([batch, _, length, inputs], [outputs, _, kernel, _], coarse) =
            (geometry.x, geometry.w, geometry.y[2]);
        let stride = geometry.stride[1];
        let (step, taps, of_sample, channels, shifts) = match geometry.form {
            ConvPass::Input => (1, kernel.div_ceil(stride), length.div_ceil(stride), inputs, stride),
            _ => (stride, kernel, coarse, outputs, 1),
        };
        let blocks = |rows: usize| (batch * of_sample).div_ceil(rows) * channels.div_ceil(CHANNELS) * shifts;
        let shared = |rows: usize| {
            let stage = places(rows, of_sample, step, taps) * 64 + taps * 64 * CHANNELS;
            (STAGES * stage).max(rows.next_multiple_of(8) * (CHANNELS + 4) * 4)
        };
        // Whole samples if they are short enough, then parts of them.
        let mut samples = (ROWS / of_sample).clamp(1, batch);
        let mut rows = (samples * of_sample).min(ROWS);
        while (blocks(rows) < BLOCKS || shared(rows) > SHARED) && rows > FEWEST_ROWS {
            samples /= 2;
            rows = if samples > 0 { samples * of_sample } else { rows / 2 };
        }
        let grid = [(batch * of_sample).div_ceil(rows), channels.div_ceil(CHANNELS), shifts];
        // More warps if a multiprocessor has only one block, or if a warp's work is small.
        let alone = geometry.form == ConvPass::Forward && blocks(rows) <= BLOCKS + 4;
        let columns = if alone || geometry.precision == Precision::Bf16 { 4 } else { 2 };
        Self { rows, columns, shared: shared(rows), grid: grid.map(|count| count as u32) }
    }
}

/// Division of the rows of a weight's gradient.
#[derive(Clone, Copy, Debug)]
struct Parts {
    rows: usize,
    /// Number of runs of rows in each part.
    chunks: usize,
    parts: usize,
    shared: usize,
}

impl Parts {
    fn new(geometry: &Geometry) -> Self {
        let ([batch, .., inputs], [outputs, _, kernel, _], coarse) = (geometry.x, geometry.w, geometry.y[2]);
        let (most, terms, pitch) = match geometry.precision {
            Precision::Bf16 => (112, 16, CHANNELS * 2 + 16),
            _ => (104, 8, CHANNELS * 4 + 32),
        };
        // Half of the threads pass their sums to the other half.
        let sums = kernel * 16 * WEIGHT_THREADS / 2 * 4;
        let shared = |rows: usize| {
            let held = rows + places(rows, coarse, geometry.stride[1], kernel);
            (WEIGHT_STAGES * held * pitch).max(sums)
        };
        let mut rows = most;
        while shared(rows) > SHARED && rows > terms {
            rows = (rows / 2).next_multiple_of(terms);
        }
        let all = (batch * coarse).div_ceil(rows);
        let tiles = outputs.div_ceil(CHANNELS) * inputs.div_ceil(CHANNELS);
        let chunks = all.div_ceil((BLOCKS / tiles).max(1));
        Self { rows, chunks, parts: all.div_ceil(chunks), shared: shared(rows) }
    }

    /// The sum over the parts, and their shape.
    fn sum(&self, geometry: &Geometry) -> (Sum, Shape) {
        let count = geometry.w.iter().product::<usize>();
        (ops::Sum { axes: vec![0] }.into(), Shape::from([self.parts, count]))
    }
}

/// Bytes of scratch memory, for the parts of a weight's gradient.
pub(crate) fn scratch(geometry: &Geometry) -> usize {
    match geometry.form {
        ConvPass::Weight => {
            let parts = Parts::new(geometry);
            4 * parts.sum(geometry).1.len()
        }
        _ => 0,
    }
}

pub(crate) fn lower(geometry: &Geometry, io: &OpIo, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    let (scalar, numbers) = (a.scalar.name(), numbers(geometry));
    let shared = "extern __shared__ __align__(16) char shared[];\n";
    if geometry.form == ConvPass::Weight {
        let parts = Parts::new(geometry);
        let grid = [parts.parts, geometry.w[0].div_ceil(CHANNELS), geometry.w[3].div_ceil(CHANNELS)];
        let body = format!(
            "{shared}ConvRowWeight<{scalar}, {numbers}, {}u, {WEIGHT_STAGES}>::run(x, dy, parts, {}u, shared);",
            parts.rows, parts.chunks
        );
        let parameters = Parameters::new().reads("x", a).reads("dy", b).scratch("parts", io.scratch);
        let shape = (grid.map(|count| count as u32), WEIGHT_THREADS as u32, parts.shared as u32);
        to.launch_with(KernelFile::ConvRow, parameters, body, shape);
        let (sum, shape) = parts.sum(geometry);
        let from = Value { address: io.scratch, scalar: Scalar::F32, count: shape.len() };
        let io = OpIo { inputs: vec![from], outputs: vec![c], scratch: 0 };
        reduce::select(&sum, &shape, to.target).lower(&io, to);
        return;
    }
    let body = format!("{shared}{}().run(x, w, y, shared);", product(geometry));
    let parameters = Parameters::new().reads("x", a).reads("w", b).writes("y", c);
    to.launch_with(KernelFile::ConvRow, parameters, body, launch(geometry));
}

/// The kernel's type for the forward product or its adjoint.
pub(crate) fn product(geometry: &Geometry) -> String {
    let tile = Tile::new(geometry);
    let scalar = if geometry.precision == Precision::Bf16 { Scalar::Bf16 } else { Scalar::F32 };
    format!(
        "ConvRowProduct<{}, {}, {}, {}u, {}, {STAGES}>",
        scalar.name(),
        geometry.form == ConvPass::Input,
        numbers(geometry),
        tile.rows,
        tile.columns
    )
}

/// Grid, threads and bytes of shared memory.
pub(crate) fn launch(geometry: &Geometry) -> ([u32; 3], u32, u32) {
    let tile = Tile::new(geometry);
    (tile.grid, 64 * tile.columns as u32, tile.shared as u32)
}

/// Whether each block has whole samples and whole groups of the result's channels.
pub(crate) fn has_whole(geometry: &Geometry, groups: usize) -> bool {
    let (of_sample, channels) = match geometry.form {
        ConvPass::Input => (geometry.x[2], geometry.x[3]),
        _ => (geometry.y[2], geometry.y[3]),
    };
    let tile = Tile::new(geometry);
    let samples = tile.rows.is_multiple_of(of_sample) && tile.rows <= 4 * of_sample;
    samples && tile.grid[2] == 1 && 32_usize.is_multiple_of(channels / groups)
}
