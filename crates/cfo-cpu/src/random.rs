//! Philox numbers: block `i` of four holds elements `4 i ..`, with the counter `[i, step, stream, 0]`. With one
//! sequence per row, it is block `i` of a row, with `[i, step, stream, number]`.

use cfo_numerics::philox4x32;

use super::Io;
use super::scalar::Real;
use super::thread_team::chunks;
use cfo_engine::ops::{Distribution, Numbering, Random};

/// Number of elements per task; a multiple of 4.
const TASK: usize = 1 << 12;

pub(super) fn run<T: Real>(op: &Random, io: &Io<'_>) {
    let (counters, output) = (io.input::<u32>(0), io.output::<T>(0));
    let size = (output.len() / op.shape.axes().first().copied().unwrap_or(1).max(1)).max(1);
    let rows = (TASK / size).max(1);
    let each_row = |output: &mut [T], of: &(dyn Fn(usize) -> [u32; 2] + Sync)| {
        chunks(output, rows * size, |task, values| {
            for (row, values) in values.chunks_mut(size).enumerate() {
                fill(op, values, 0, of(task * rows + row));
            }
        });
    };
    match op.numbering {
        Numbering::Elements => chunks(output, TASK, |task, values| {
            fill(op, values, (task * TASK / 4) as u32, [counters[0], 0]);
        }),
        Numbering::Rows { first } => each_row(output, &|row| [counters[0], first + row as u32 + 1]),
        Numbering::Given => each_row(output, &|row| [counters[2 * row], counters[2 * row + 1]]),
    }
}

/// Draws values from block `first` on.
fn fill<T: Real>(op: &Random, values: &mut [T], first: u32, [step, number]: [u32; 2]) {
    let key = [op.seed as u32, (op.seed >> 32) as u32];
    for (i, values) in values.chunks_mut(4).enumerate() {
        let words = philox4x32([first + i as u32, step, op.stream, number], key);
        let drawn = match op.distribution {
            Distribution::Uniform => words.map(|word| T::of(f64::from(unit(word)))),
            Distribution::Normal => normals(words),
        };
        values.copy_from_slice(&drawn[..values.len()]);
    }
}

/// The upper 24 bits of a word as a number in `[0, 1)`.
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / (1 << 24) as f32)
}

/// Four standard normal numbers by the Box-Muller transform.
pub(super) fn normals<T: Real>(words: [u32; 4]) -> [T; 4] {
    let pair = |a: u32, b: u32| {
        let radius = (-2.0 * f64::from(1.0 - unit(a)).ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * f64::from(unit(b))).sin_cos();
        [T::of(radius * cosine), T::of(radius * sine)]
    };
    let [a, b] = pair(words[0], words[1]);
    let [c, d] = pair(words[2], words[3]);
    [a, b, c, d]
}
