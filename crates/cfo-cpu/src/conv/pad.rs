//! Padding and its adjoint, by copying or adding rows.

use crate::Io;
use crate::scalar::Real;
use crate::thread_team::chunks;
use cfo_engine::Shape;
use cfo_engine::ops::Pad;

pub(crate) fn pad<T: Real>(op: &Pad, input: &Shape, io: &Io<'_>) {
    let [_, height, width, channels] = input.axes() else { unreachable!("the graph checked the rank") };
    let (height, width, channels) = (*height, *width, *channels);
    let rows = op.before[0] + height + op.after[0];
    let columns = op.before[1] + width + op.after[1];
    let x = io.input::<T>(0);
    chunks(io.output::<T>(0), columns * channels, |row, to| {
        let (batch, row) = (row / rows, row % rows);
        let Some(y) = op.mode.source(row, op.before[0], height) else {
            to.fill(T::ZERO);
            return;
        };
        let from = &x[(batch * height + y) * width * channels..][..width * channels];
        let edge = |position: usize, to: &mut [T]| match op.mode.source(position, op.before[1], width) {
            Some(x) => to.copy_from_slice(&from[x * channels..][..channels]),
            None => to.fill(T::ZERO),
        };
        let (before, rest) = to.split_at_mut(op.before[1] * channels);
        let (inside, after) = rest.split_at_mut(width * channels);
        inside.copy_from_slice(from);
        for (position, to) in before.chunks_mut(channels).enumerate() {
            edge(position, to);
        }
        for (position, to) in after.chunks_mut(channels).enumerate() {
            edge(op.before[1] + width + position, to);
        }
    });
}

/// Adds the padding to the field: `output` is the shape of the result, the field without padding.
pub(crate) fn fold<T: Real>(op: &Pad, output: &Shape, io: &Io<'_>) {
    let [_, height, width, channels] = output.axes() else { unreachable!("the graph checked the rank") };
    let (height, width, channels) = (*height, *width, *channels);
    let rows = op.before[0] + height + op.after[0];
    let columns = op.before[1] + width + op.after[1];
    let dy = io.input::<T>(0);
    chunks(io.output::<T>(0), width * channels, |row, to| {
        let (batch, y) = (row / height, row % height);
        let padded = |row: usize| &dy[(batch * rows + row) * columns * channels..][..columns * channels];
        to.copy_from_slice(&padded(y + op.before[0])[op.before[1] * channels..][..width * channels]);
        for row in 0..rows {
            if op.mode.source(row, op.before[0], height) != Some(y) {
                continue;
            }
            let inner_row = row == y + op.before[0];
            for position in 0..columns {
                let inner = (op.before[1]..op.before[1] + width).contains(&position);
                let Some(x) = op.mode.source(position, op.before[1], width).filter(|_| !(inner_row && inner))
                else {
                    continue;
                };
                let from = &padded(row)[position * channels..][..channels];
                for (to, &from) in to[x * channels..][..channels].iter_mut().zip(from) {
                    *to += from;
                }
            }
        }
    });
}
