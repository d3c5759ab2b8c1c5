//! The batch sampler. Sample `i` of step `n` uses counter `[i, n, stream, 0]`, its noise `[block, n, stream, i + 1]`.
#![allow(unsafe_code)]

use cfo_numerics::{Path, philox4x32};

use super::Io;
use super::random::normals;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::{Shared, for_each};
use cfo_engine::ops::{PathData, SamplePath};

pub(super) fn run<T: Real>(op: &SamplePath, io: &Io<'_>) {
    match op.draw.data {
        PathData::Window { intervals } => windows::<T>(op, intervals, io),
        PathData::Flow { .. } | PathData::Pair | PathData::Whole { .. } => points::<T>(op, io),
    }
}

fn windows<T: Real>(op: &SamplePath, intervals: usize, io: &Io<'_>) {
    let (values, times) = (io.input::<T>(0), io.input::<f64>(1));
    let (offsets, step) = (io.input::<u32>(2), io.input::<u32>(3)[0]);
    let [starts, states, targets] = [0, 1, 2].map(|output| io.output::<T>(output));
    let [instants, lengths] = [4, 5].map(|output| io.output::<T>(output));
    let (batch, size) = (op.batch, states.len() / op.batch.max(1));
    for (i, chosen) in io.output::<u32>(3).iter_mut().enumerate() {
        let drawn = op.draw.sample(i, step, times, offsets);
        let first = if op.staged { i * (intervals + 1) } else { drawn.row };
        *chosen = drawn.trajectory as u32;
        starts[i] = T::of(drawn.time);
        // Shorter trajectories repeat their last snapshot.
        let within = |k: usize| k.min(drawn.count - 1);
        for k in 0..=intervals {
            let row = &values[(first + within(k)) * size..][..size];
            match k {
                0 => states[i * size..][..size].copy_from_slice(row),
                _ => targets[((k - 1) * batch + i) * size..][..size].copy_from_slice(row),
            }
            let time = times[drawn.row + within(k)];
            instants[k * batch + i] = T::of(time);
            if k > 0 {
                lengths[(k - 1) * batch + i] = T::of(time - times[drawn.row + within(k - 1)]);
            }
        }
    }
}

fn points<T: Real>(op: &SamplePath, io: &Io<'_>) {
    let (values, times) = (io.input::<T>(0), io.input::<f64>(1));
    let (offsets, step) = (io.input::<u32>(2), io.input::<u32>(3)[0]);
    let [drawn, states, targets] = [0, 1, 2].map(|output| io.output::<T>(output));
    let (size, window) = (states.len() / op.batch.max(1), op.draw.data.window());
    let key = [op.draw.seed as u32, (op.draw.seed >> 32) as u32];
    let stream = op.draw.stream;
    let frames = op.draw.data.frames().unwrap_or(1);
    let (batch, task) = (drawn.len(), (512 / (size * frames).max(1)).max(1));
    let outputs = [drawn, states, targets].map(Shared::new);
    let choices = Shared::new(io.output::<u32>(3));
    for_each(batch.div_ceil(task), |block| {
        for i in block * task..batch.min((block + 1) * task) {
            // SAFETY: every sample is drawn once, to its own position.
            let (time, state, target, chosen) = unsafe {
                let state = outputs[1].range(i * size..(i + 1) * size);
                let target = outputs[2].range(i * size * frames..(i + 1) * size * frames);
                (&mut outputs[0].range(i..i + 1)[0], state, target, &mut choices.range(i..i + 1)[0])
            };
            let drawn = op.draw.sample(i, step, times, offsets);
            let first = if op.staged { i * window } else { drawn.row };
            let row = |k: usize| &values[(first + k) * size..][..size];
            *chosen = drawn.trajectory as u32;
            *time = T::of(drawn.time);
            if let PathData::Whole { path, frames, .. } = op.draw.data {
                let own = offsets[drawn.trajectory] as usize..offsets[drawn.trajectory + 1] as usize;
                state.copy_from_slice(row(0));
                whole(path, &times[own], (row, frames), target);
                continue;
            }
            let (PathData::Flow { noise, .. }, Some(weights)) = (op.draw.data, drawn.weights) else {
                state.copy_from_slice(row(0));
                target.copy_from_slice(row(1));
                continue;
            };
            for k in 0..weights.count {
                let (value, velocity) = (T::of(weights.value[k]), T::of(weights.velocity[k]));
                accumulate(row(k), [value, velocity], k == 0, state, target);
            }
            if noise.amplitude != 0.0 {
                let gamma = T::of(noise.gamma(weights.segment.tau));
                let rate = T::of(noise.rate(weights.segment.tau, weights.segment.length));
                for (block, (state, target)) in state.chunks_mut(4).zip(target.chunks_mut(4)).enumerate() {
                    let z = normals::<T>(philox4x32(
                        [block as u32, step, stream, op.draw.first + i as u32 + 1],
                        key,
                    ));
                    for ((state, target), z) in state.iter_mut().zip(target).zip(z) {
                        *state += gamma * z;
                        *target += rate * z;
                    }
                }
            }
        }
    });
}

/// The values of a trajectory at equidistant times.
fn whole<'a, T: Real>(
    path: Path,
    times: &[f64],
    (row, frames): (impl Fn(usize) -> &'a [T], usize),
    target: &mut [T],
) {
    let (path, size) = (path.supported(times.len()), target.len() / frames.max(1));
    for (frame, target) in target.chunks_mut(size.max(1)).enumerate() {
        let weights = path.weights(times, PathData::frame_time(times, frame, frames));
        for k in 0..weights.count {
            add_weighted(row(weights.first + k), T::of(weights.value[k]), k == 0, target);
        }
    }
}

vectorized! {
/// Adds a weighted snapshot, or initialises the sum with it.
fn add_weighted<T>(row: &[T], weight: T, first: bool, target: &mut [T]) {
    if first {
        for (target, &u) in target.iter_mut().zip(row) {
            *target = weight * u;
        }
    } else {
        for (target, &u) in target.iter_mut().zip(row) {
            *target += weight * u;
        }
    }
}
}

vectorized! {
/// Adds a weighted snapshot to state and velocity, or initialises them with it.
fn accumulate<T>(row: &[T], weights: [T; 2], first: bool, state: &mut [T], target: &mut [T]) {
    let [value, velocity] = weights;
    if first {
        for ((state, target), &u) in state.iter_mut().zip(target.iter_mut()).zip(row) {
            *state = value * u;
            *target = velocity * u;
        }
    } else {
        for ((state, target), &u) in state.iter_mut().zip(target.iter_mut()).zip(row) {
            *state += value * u;
            *target += velocity * u;
        }
    }
}
}

/// Rows of a table by index; an index past the end gives the last row.
pub(super) fn gather<T: Real>(io: &Io<'_>) {
    let (table, index, output) = (io.input::<T>(0), io.input::<u32>(1), io.output::<T>(0));
    let size = output.len() / index.len().max(1);
    if size == 0 {
        return;
    }
    let last = table.len() / size - 1;
    for (to, &index) in output.chunks_mut(size).zip(index) {
        let from = (index as usize).min(last) * size;
        to.copy_from_slice(&table[from..from + size]);
    }
}
