//! The batch sampler: one launch that draws samples, computes weights and gathers.

use crate::program::{KernelFile, Lowering, OpIo, Parameters};
use cfo_engine::Shape;
use cfo_engine::ops::{PathData, SamplePath};
use cfo_numerics::{DrawBy, Path};

/// Maximum number of elements of a field that one thread samples.
const POINTS: usize = 32;
/// Number of packs of four elements that each thread of a large field writes.
const EACH: usize = 2;

fn stencil(path: Path) -> usize {
    path.stencil.clamp(2, Path::MAX_STENCIL)
}

fn point(by: DrawBy) -> &'static str {
    match by {
        DrawBy::Time => "TIME",
        DrawBy::Interval => "INTERVAL",
        DrawBy::Snapshot => "SNAPSHOT",
    }
}

/// The parameters of all kernels of samples: the tensors, the number of trajectories and the keys of the random numbers.
fn parameters(op: &SamplePath, offsets: &Shape, io: &OpIo) -> Parameters {
    let inputs = ["values", "times", "offsets", "counter"];
    let outputs = ["time", "state", "target", "chosen", "instants", "lengths"];
    Parameters::new()
        .reads_each(inputs.into_iter().zip(io.inputs.iter().copied()))
        .writes_each(outputs.into_iter().zip(io.outputs.iter().copied()))
        .u32("trajectories", (offsets.len() - 1) as u32)
        .u32("stream", op.draw.stream)
        .u32("key0", op.draw.seed as u32)
        .u32("key1", (op.draw.seed >> 32) as u32)
}

pub(crate) fn lower(op: &SamplePath, values: &Shape, offsets: &Shape, io: &OpIo, to: &mut Lowering) {
    let size = values.len() / values.axes()[0].max(1);
    if let PathData::Window { intervals } = op.draw.data {
        return windows(op, (intervals, size), offsets, io, to);
    }
    let (smoothness, stencil, draws, noise) = match op.draw.data {
        PathData::Pair | PathData::Window { .. } => (0, 2, "PAIR", None),
        PathData::Flow { by, path, noise } => {
            (path.spline.smoothness(), stencil(path), point(by), Some(noise))
        }
        PathData::Whole { path, .. } => (path.spline.smoothness(), stencil(path), "TIME", None),
    };
    let noisy = noise.is_some_and(|noise| noise.amplitude != 0.0);
    let scalar = io.outputs[1].scalar.name();
    let parameters = parameters(op, offsets, io)
        .f64("amplitude", noise.map_or(0.0, |noise| noise.amplitude))
        .u32("exponent", noise.map_or(0, |noise| noise.exponent))
        .f64("decay", noise.map_or(0.0, |noise| noise.decay))
        .u32("first", op.draw.first);
    let (kind, last, grid, threads) = match size <= POINTS {
        true => ("points", op.batch, [op.batch.div_ceil(64) as u32, 1, 1], 64),
        false => {
            let threads = (size.div_ceil(4 * EACH)).next_power_of_two().clamp(32, 256);
            let across = size.div_ceil(4 * EACH * threads) as u32;
            ("fields", EACH, [across, op.batch as u32, 1], threads as u32)
        }
    };
    let staged = if op.staged { op.draw.data.window() } else { 0 };
    if let Some(frames) = op.draw.data.frames() {
        let body = format!(
            "sample_whole<{scalar}, {smoothness}, {stencil}, {frames}u, {size}u, {staged}u>(values, times, offsets, counter, time, state, \
             target, chosen, trajectories, stream, key0, key1, first);"
        );
        let threads = size.next_power_of_two().clamp(32, 256);
        let across = size.div_ceil(EACH * threads) as u32;
        let grid = [across, frames as u32, op.batch as u32];
        return to.launch_with(KernelFile::SamplePath, parameters, body, (grid, threads as u32, 0));
    }
    let body = format!(
        "sample_{kind}<{scalar}, {smoothness}, {stencil}, {draws}, {noisy}, {size}u, {last}u, {staged}u>(values, times, offsets, counter, \
         time, state, target, chosen, trajectories, stream, key0, key1, amplitude, exponent, decay, first);"
    );
    to.launch_with(KernelFile::SamplePath, parameters, body, (grid, threads, 0));
}

/// Windows of snapshots: one thread for every four elements of a sample's field.
fn windows(
    op: &SamplePath,
    (intervals, size): (usize, usize),
    offsets: &Shape,
    io: &OpIo,
    to: &mut Lowering,
) {
    let scalar = io.outputs[1].scalar.name();
    let parameters = parameters(op, offsets, io).u32("first", op.draw.first);
    let (threads, staged) = (128, op.staged);
    let grid = [(op.batch * size.div_ceil(4)).div_ceil(threads) as u32, 1, 1];
    let batch = op.batch;
    let body = format!(
        "sample_windows<{scalar}, {intervals}u, {size}u, {batch}u, {staged}>(values, times, offsets, counter, \
         time, state, target, chosen, instants, lengths, trajectories, stream, key0, key1, first);"
    );
    to.launch_with(KernelFile::SamplePath, parameters, body, (grid, threads as u32, 0));
}
