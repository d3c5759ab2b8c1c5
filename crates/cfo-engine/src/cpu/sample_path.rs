//! The batch sampler. Sample `i` of step `n` draws from the counter `[i, n, stream, 0]`; its noise from the counters
//! `[block, n, stream, i + 1]`.
#![allow(unsafe_code)]

use cfo_numerics::philox4x32;

use super::Io;
use super::random::normals;
use super::real::Real;
use super::simd::vectorized;
use super::team::{Shared, for_each};
use crate::ops::{PathData, SamplePath};

pub(super) fn run<T: Real>(op: &SamplePath, io: &Io<'_>) {
    let (values, times) = (io.input::<T>(0), io.input::<f64>(1));
    let (offsets, step) = (io.input::<u32>(2), io.input::<u32>(3)[0]);
    let size = values.len() / times.len();
    let trajectories = offsets.len() - 1;
    let key = [op.seed as u32, (op.seed >> 32) as u32];
    let [drawn, states, targets] = [0, 1, 2].map(|output| io.output::<T>(output));
    let (batch, task) = (drawn.len(), (512 / size).max(1));
    let outputs = [drawn, states, targets].map(Shared::new);
    let choices = Shared::new(io.output::<u32>(3));
    for_each(batch.div_ceil(task), |block| {
        for i in block * task..batch.min((block + 1) * task) {
            // SAFETY: every sample is drawn once, into its own place.
            let (time, state, target, chosen) = unsafe {
                let field = i * size..(i + 1) * size;
                let (state, target) = (outputs[1].range(field.clone()), outputs[2].range(field));
                (&mut outputs[0].range(i..i + 1)[0], state, target, &mut choices.range(i..i + 1)[0])
            };
            let words = philox4x32([i as u32, step, op.stream, 0], key);
            let trajectory = scaled(words[0], trajectories);
            let (first, end) = (offsets[trajectory] as usize, offsets[trajectory + 1] as usize);
            let row = |k: usize| &values[(first + k) * size..][..size];
            *chosen = trajectory as u32;
            match op.data {
                PathData::Pair => {
                    let k = scaled(words[1], end - first - 1);
                    *time = T::of(times[first + k]);
                    state.copy_from_slice(row(k));
                    target.copy_from_slice(row(k + 1));
                }
                PathData::Flow { path, noise } => {
                    let times = &times[first..end];
                    let (start, stop) = (times[0], times[times.len() - 1]);
                    let t = start + (stop - start) * unit(words[1], words[2]);
                    *time = T::of(t);
                    let weights = path.supported(times.len()).weights(times, t);
                    for k in 0..weights.count {
                        let (value, velocity) = (T::of(weights.value[k]), T::of(weights.velocity[k]));
                        accumulate(row(weights.first + k), [value, velocity], k == 0, state, target);
                    }
                    if noise.amplitude != 0.0 {
                        let gamma = T::of(noise.gamma(weights.segment.tau));
                        let rate = T::of(noise.rate(weights.segment.tau, weights.segment.length));
                        for (block, (state, target)) in
                            state.chunks_mut(4).zip(target.chunks_mut(4)).enumerate()
                        {
                            let z =
                                normals::<T>(philox4x32([block as u32, step, op.stream, i as u32 + 1], key));
                            for ((state, target), z) in state.iter_mut().zip(target).zip(z) {
                                *state += gamma * z;
                                *target += rate * z;
                            }
                        }
                    }
                }
            }
        }
    });
}

/// A word spread evenly over `0..count`.
fn scaled(word: u32, count: usize) -> usize {
    ((u64::from(word) * count as u64) >> 32) as usize
}

/// Two words as a number of `[0, 1)` with 53 random bits.
fn unit(low: u32, high: u32) -> f64 {
    ((u64::from(high) << 32 | u64::from(low)) >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

vectorized! {
/// Adds a weighted snapshot to state and velocity, or starts them with it.
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

/// Rows of a table by index; an index past the end yields the last row.
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
