//! Layer normalisation: token by token, both passes over a token while it is in the first cache.

use rayon::prelude::*;

use super::Io;
use super::real::Real;
use super::simd::vectorized;
use crate::ops::{LayerNorm, LayerNormBackward};
use crate::shape::Shape;

/// Tokens that one task handles and that partial sums cover.
const ROWS: usize = 32;
/// Interleaved parts of a sum.
const PARTS: usize = 32;

/// Real elements of scratch memory of the backward operation: two sums for each block of tokens.
pub(super) fn scratch_backward(op: &LayerNormBackward, x: &Shape) -> usize {
    let [b, n, d] = [x.axes()[0], x.axes()[1], x.axes()[2]];
    if op.modulated { b * n.div_ceil(ROWS) * 2 * d } else { 0 }
}

pub(super) fn run<T: Real>(op: &LayerNorm, shape: &Shape, io: &Io<'_>) {
    let [n, d] = [shape.axes()[1], shape.axes()[2]];
    let x = io.input::<T>(0);
    let modulation = op.modulated.then(|| (io.input::<T>(1), io.input::<T>(2)));
    let samples = io.output::<T>(0).par_chunks_mut(n * d).zip(x.par_chunks(n * d));
    let statistics = io.output::<T>(1).par_chunks_mut(n).zip(io.output::<T>(2).par_chunks_mut(n));
    samples.zip(statistics).enumerate().for_each(|(b, ((y, x), (mean, inverse)))| {
        let modulation = modulation.map(|(shift, scale)| (&shift[b * d..][..d], &scale[b * d..][..d]));
        let blocks = y.par_chunks_mut(ROWS * d).zip(x.par_chunks(ROWS * d));
        let statistics = mean.par_chunks_mut(ROWS).zip(inverse.par_chunks_mut(ROWS));
        blocks.zip(statistics).for_each(|((y, x), (mean, inverse))| {
            forward(modulation, T::of(op.epsilon), x, y, mean, inverse);
        });
    });
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
    let block = |b: usize, i: usize, dx: &mut [T], sums: &mut [T]| {
        let from = b * n + i * ROWS;
        let rows = dx.len() / d;
        let data = (&x[from * d..][..rows * d], &dy[from * d..][..rows * d]);
        let statistics = (&mean[from..][..rows], &inverse[from..][..rows]);
        backward(scale.map(|scale| &scale[b * d..][..d]), data, statistics, dx, sums);
    };
    let samples = io.output::<T>(0).par_chunks_mut(n * d).enumerate();
    if !op.modulated {
        samples.for_each(|(b, dx)| {
            dx.par_chunks_mut(ROWS * d).enumerate().for_each(|(i, dx)| block(b, i, dx, &mut []));
        });
        return;
    }
    let scratch = io.scratch::<T>().par_chunks_mut(n.div_ceil(ROWS) * 2 * d);
    let totals = io.output::<T>(1).par_chunks_mut(d).zip(io.output::<T>(2).par_chunks_mut(d));
    samples.zip(scratch).zip(totals).for_each(|(((b, dx), scratch), (dshift, dscale))| {
        dx.par_chunks_mut(ROWS * d)
            .zip(scratch.par_chunks_mut(2 * d))
            .enumerate()
            .for_each(|(i, (dx, sums))| block(b, i, dx, sums));
        dshift.fill(T::ZERO);
        dscale.fill(T::ZERO);
        for sums in scratch.chunks(2 * d) {
            add(&sums[..d], dshift);
            add(&sums[d..], dscale);
        }
    });
}

vectorized! {
fn add<T>(from: &[T], to: &mut [T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += from;
    }
}
}

vectorized! {
/// The cotangent of a block of tokens; `sums` receives those of shift and scale, if there is room for them.
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
