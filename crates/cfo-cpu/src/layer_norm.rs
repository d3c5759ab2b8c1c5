//! Layer normalisation, token by token, with both passes over a token while it is in the L1 cache.
#![allow(unsafe_code)]

use std::ops::Range;

use super::Io;
use super::scalar::Real;
use super::simd::{add, vectorized};
use super::thread_team::{Shared, for_each};
use cfo_engine::Shape;
use cfo_engine::ops::{LayerNorm, LayerNormBackward};

const ROWS: usize = 32;
const PARTS: usize = 32;

/// Real elements of scratch memory of the backward operation: two sums for each block of tokens.
pub(super) fn scratch_backward(op: &LayerNormBackward, x: &Shape) -> usize {
    let [b, n, d] = [x.axes()[0], x.axes()[1], x.axes()[2]];
    if op.modulated { b * n.div_ceil(ROWS) * 2 * d } else { 0 }
}

pub(super) fn run<T: Real>(op: &LayerNorm, shape: &Shape, io: &Io<'_>) {
    let d = shape.axes()[2];
    let x = io.input::<T>(0);
    let modulation = op.modulated.then(|| (io.input::<T>(1), io.input::<T>(2)));
    let outputs = [0, 1, 2].map(|output| Shared::new(io.output::<T>(output)));
    for_each_block(shape, |b, rows| {
        let modulation = modulation.map(|(shift, scale)| (&shift[b * d..][..d], &scale[b * d..][..d]));
        // SAFETY: blocks of tokens are disjoint, and so are their results.
        let [y, mean, inverse] = unsafe {
            let cut = |output: usize, width: usize| outputs[output].range(scaled(&rows, width));
            [cut(0, d), cut(1, 1), cut(2, 1)]
        };
        forward(modulation, T::of(op.epsilon), &x[scaled(&rows, d)], y, mean, inverse);
    });
}

/// Runs one task for each block of tokens, with its sample and the tokens' indices.
fn for_each_block(shape: &Shape, work: impl Fn(usize, Range<usize>) + Sync) {
    let [batch, n] = [shape.axes()[0], shape.axes()[1]];
    let blocks = n.div_ceil(ROWS);
    for_each(batch * blocks, |task| {
        let (b, i) = (task / blocks, task % blocks);
        work(b, b * n + i * ROWS..b * n + n.min((i + 1) * ROWS));
    });
}

fn scaled(rows: &Range<usize>, width: usize) -> Range<usize> {
    rows.start * width..rows.end * width
}

/// Sum of `term(i)` for `i < count` in interleaved parts.
#[inline(always)]
fn sum<T: Real>(count: usize, term: impl Fn(usize) -> T) -> T {
    let mut parts = [T::ZERO; PARTS];
    let whole = count / PARTS * PARTS;
    for start in (0..whole).step_by(PARTS) {
        for (i, part) in parts.iter_mut().enumerate() {
            *part += term(start + i);
        }
    }
    let mut sum = T::ZERO;
    for part in parts {
        sum += part;
    }
    for i in whole..count {
        sum += term(i);
    }
    sum
}

vectorized! {
fn forward<T>(
    modulation: Option<(&[T], &[T])>,
    epsilon: T,
    x: &[T],
    y: &mut [T],
    mean: &mut [T],
    inverse: &mut [T],
) {
    let d = x.len() / mean.len();
    let share = T::of(1.0 / d as f64);
    for (((x, y), mean), inverse) in
        x.chunks_exact(d).zip(y.chunks_exact_mut(d)).zip(mean.iter_mut()).zip(inverse.iter_mut())
    {
        let center = share * sum(d, |i| x[i]);
        let variance = share * sum(d, |i| (x[i] - center) * (x[i] - center));
        let factor = T::ONE / (variance + epsilon).sqrt();
        (*mean, *inverse) = (center, factor);
        match modulation {
            Some((shift, scale)) => {
                let (shift, scale) = (&shift[..d], &scale[..d]);
                for i in 0..d {
                    y[i] = (x[i] - center) * factor * (T::ONE + scale[i]) + shift[i];
                }
            }
            None => {
                for i in 0..d {
                    y[i] = (x[i] - center) * factor;
                }
            }
        }
    }
}
}

pub(super) fn run_backward<T: Real>(op: &LayerNormBackward, shape: &Shape, io: &Io<'_>) {
    let [n, d] = [shape.axes()[1], shape.axes()[2]];
    let at = usize::from(op.modulated);
    let x = io.input::<T>(0);
    let scale = op.modulated.then(|| io.input::<T>(1));
    let (mean, inverse, dy) = (io.input::<T>(1 + at), io.input::<T>(2 + at), io.input::<T>(3 + at));
    let (dx, scratch) = (Shared::new(io.output::<T>(0)), io.scratch::<T>());
    let (sums, room) = (Shared::new(scratch), scratch.len());
    let blocks = n.div_ceil(ROWS);
    for_each_block(shape, |b, rows| {
        let data = (&x[scaled(&rows, d)], &dy[scaled(&rows, d)]);
        let statistics = (&mean[rows.clone()], &inverse[rows.clone()]);
        let block = b * blocks + (rows.start - b * n) / ROWS;
        // SAFETY: blocks of tokens are disjoint, and so are their results and sums.
        let (dx, sums) = unsafe { (dx.range(scaled(&rows, d)), sums.chunk(block, 2 * d, room)) };
        backward(scale.map(|scale| &scale[b * d..][..d]), data, statistics, dx, sums);
    });
    if !op.modulated {
        return;
    }
    let (dshift, dscale) = (io.output::<T>(1), io.output::<T>(2));
    let totals = dshift.chunks_mut(d).zip(dscale.chunks_mut(d));
    for ((dshift, dscale), sums) in totals.zip(scratch.chunks(blocks * 2 * d)) {
        dshift.fill(T::ZERO);
        dscale.fill(T::ZERO);
        for sums in sums.chunks(2 * d) {
            add(&sums[..d], dshift);
            add(&sums[d..], dscale);
        }
    }
}

vectorized! {
/// The cotangent of a block of tokens; `sums` receives those of shift and scale, if it is not empty.
fn backward<T>(
    scale: Option<&[T]>,
    data: (&[T], &[T]),
    statistics: (&[T], &[T]),
    dx: &mut [T],
    sums: &mut [T],
) {
    let ((x, dy), (mean, inverse)) = (data, statistics);
    let d = x.len() / mean.len();
    let share = T::of(1.0 / d as f64);
    sums.fill(T::ZERO);
    for (row, ((x, dy), dx)) in
        x.chunks_exact(d).zip(dy.chunks_exact(d)).zip(dx.chunks_exact_mut(d)).enumerate()
    {
        let (center, factor) = (mean[row], inverse[row]);
        match scale {
            Some(scale) => {
                let scale = &scale[..d];
                let (dshift, dscale) = sums.split_at_mut(d);
                for i in 0..d {
                    dx[i] = dy[i] * (T::ONE + scale[i]);
                    dshift[i] += dy[i];
                    dscale[i] += dy[i] * (x[i] - center) * factor;
                }
            }
            None => dx.copy_from_slice(dy),
        }
        let constant = share * sum(d, |i| dx[i]);
        let slope = share * factor * factor * sum(d, |i| dx[i] * (x[i] - center));
        for i in 0..d {
            dx[i] = factor * (dx[i] - constant - (x[i] - center) * slope);
        }
    }
}
}
