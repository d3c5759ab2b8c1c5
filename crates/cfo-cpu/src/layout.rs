//! Concatenation and embedding, by copying rows.

use super::Io;
use super::scalar::Real;
use super::thread_team::chunks;
use cfo_engine::Shape;
use cfo_engine::ops::Embed;

const TASK: usize = 256;

pub(super) fn embed<T: Real>(op: &Embed, input: &Shape, io: &Io<'_>) {
    let inner: usize = input.axes()[op.axis + 1..].iter().product();
    let (width, whole, start) = (input.axes()[op.axis] * inner, op.whole * inner, op.start * inner);
    let x = io.input::<T>(0);
    chunks(io.output::<T>(0), whole * TASK, |task, rows| {
        for (i, row) in rows.chunks_mut(whole).enumerate() {
            let from = (task * TASK + i) * width;
            row[..start].fill(T::ZERO);
            row[start..start + width].copy_from_slice(&x[from..from + width]);
            row[start + width..].fill(T::ZERO);
        }
    });
}

pub(super) fn concat<T: Real>(width: impl Fn(usize) -> usize + Sync, io: &Io<'_>) {
    let whole: usize = (0..io.inputs.len()).map(&width).sum();
    chunks(io.output::<T>(0), whole * TASK, |task, rows| {
        let mut start = 0;
        for i in 0..io.inputs.len() {
            let (x, width) = (io.input::<T>(i), width(i));
            for (row, to) in rows.chunks_mut(whole).enumerate() {
                let from = (task * TASK + row) * width;
                to[start..start + width].copy_from_slice(&x[from..from + width]);
            }
            start += width;
        }
    });
}

/// Copies every input to the output with its index, where they do not share memory.
pub(super) fn copy<T: Real>(io: &Io<'_>) {
    for index in 0..io.outputs.len() {
        if index > 0 || !io.aliased(0) {
            io.output::<T>(index).copy_from_slice(io.input::<T>(index));
        }
    }
}
