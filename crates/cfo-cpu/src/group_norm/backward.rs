//! The gradient of group normalisation: one pass for the sums, one for the result.
#![allow(unsafe_code)]

use super::Cut;
use crate::Io;
use crate::scalar::Real;
use crate::simd::vectorized;
use crate::thread_team::{Shared, chunks, for_each_outer};
use cfo_engine::Shape;
use cfo_engine::ops::{Activation, GroupNorm};

/// Scratch memory of a sample: four sums per block and lane, five coefficients per lane, three sums per channel.
fn backward_scratch(cut: &Cut) -> usize {
    (4 * cut.blocks + 5) * cut.lanes + 3 * cut.channels
}

pub(crate) fn scratch_backward(op: &GroupNorm, x: &Shape) -> usize {
    let cut = Cut::new(op, x);
    cut.batch * backward_scratch(&cut)
}

pub(crate) fn run_backward<T: Real>(op: &GroupNorm, shape: &Shape, io: &Io<'_>) {
    let cut = Cut::new(op, shape);
    let (x, scale, bias) = (io.input::<T>(0), io.input::<T>(1), io.input::<T>(2));
    let (mean, inverse) = (io.input::<T>(3), io.input::<T>(4));
    let offset: &[T] = if op.offset { io.input(5) } else { &[] };
    let dy = io.input::<T>(5 + usize::from(op.offset));
    let dx = io.output::<T>(0);
    let scratch = io.scratch::<T>();
    let (all, rooms) = (Shared::new(dx), Shared::new(scratch));
    for_each_outer(cut.batch, |b| {
        let data = b * cut.sample()..(b + 1) * cut.sample();
        let room = b * backward_scratch(&cut)..(b + 1) * backward_scratch(&cut);
        // SAFETY: there is memory of this size for each sample, and each sample belongs to one task.
        let (dx, scratch) = unsafe { (all.range(data.clone()), rooms.range(room)) };
        let (sums, rest) = scratch.split_at_mut(4 * cut.blocks * cut.lanes);
        let (lanes, totals) = rest.split_at_mut(5 * cut.lanes);
        let statistics = b * op.groups..(b + 1) * op.groups;
        let (mean, inverse) = (&mean[statistics.clone()], &inverse[statistics]);
        let sample = Sample { scale, bias, offset, mean, inverse };
        backward_sample(op, &cut, &sample, (&x[data.clone()], &dy[data], dx), (sums, lanes, totals));
    });
    let sample = backward_scratch(&cut);
    let from = sample - 3 * cut.channels;
    let over_batch = |which: usize, to: &mut [T]| {
        for (c, to) in to.iter_mut().enumerate() {
            let at = from + which * cut.channels + c;
            *to = T::of((0..cut.batch).map(|b| scratch[b * sample + at].double()).sum());
        }
    };
    over_batch(0, io.output(1));
    over_batch(1, io.output(2));
    if op.offset {
        over_batch(2, io.output(3));
    }
    if op.shift {
        let dshift = io.output::<T>(3 + usize::from(op.offset));
        for (b, dshift) in dshift.chunks_mut(cut.channels).enumerate() {
            for (c, to) in dshift.iter_mut().enumerate() {
                *to = T::of(channel_sum(&cut, &scratch[b * sample..][..4 * cut.blocks * cut.lanes], 3, c));
            }
        }
    }
}

/// Normalisation data of one sample.
struct Sample<'a, T> {
    scale: &'a [T],
    bias: &'a [T],
    offset: &'a [T],
    mean: &'a [T],
    inverse: &'a [T],
}

/// Both passes over a sample; writes its contribution to the channels' sums (scale, bias, offset) to `totals`.
fn backward_sample<T: Real>(
    op: &GroupNorm,
    cut: &Cut,
    of: &Sample<'_, T>,
    (x, dy, dx): (&[T], &[T], &mut [T]),
    (sums, lanes, totals): (&mut [T], &mut [T], &mut [T]),
) {
    let width = cut.width();
    let (center, rest) = lanes.split_at_mut(cut.lanes);
    let (factor, rest) = rest.split_at_mut(cut.lanes);
    let (term, rest) = rest.split_at_mut(cut.lanes);
    let (constant, slope) = rest.split_at_mut(cut.lanes);
    cut.spread(center, |c| of.mean[c / width] - of.offset.get(c).copied().unwrap_or(T::ZERO));
    cut.spread(factor, |c| of.inverse[c / width] * of.scale[c]);
    cut.spread(term, |c| of.bias[c]);
    let statistics = [&*center, &*factor, &*term];
    chunks(sums, 4 * cut.lanes, |block, sums| {
        backward_sums(op.activation, statistics, cut.cut(x, block), cut.cut(dy, block), sums);
    });
    for group in 0..cut.groups {
        let inverse = of.inverse[group].double();
        let channels = group * width..(group + 1) * width;
        let (mut constants, mut slopes) = (0.0, 0.0);
        for c in channels.clone() {
            let scale = of.scale[c].double();
            constants += scale * channel_sum(cut, sums, 0, c);
            slopes += scale * channel_sum(cut, sums, 1, c);
        }
        let count = (cut.positions * width) as f64;
        // dx = d * inverse * scale - inverse * mean(d scale) - (x - center) inverse^3 mean(d scale (x - center)).
        let constants = inverse * constants / count;
        let slopes = inverse * inverse * inverse * slopes / count;
        for c in channels {
            (constant[c], slope[c]) = (T::of(constants), T::of(slopes));
            let [bias, scaled, centered] = [0, 1, 2].map(|which| channel_sum(cut, sums, which, c));
            totals[c] = T::of(inverse * scaled);
            totals[cut.channels + c] = T::of(bias);
            let position = inverse * of.scale[c].double() * bias - cut.positions as f64 * constants;
            totals[2 * cut.channels + c] = T::of(position - slopes * centered);
        }
    }
    for start in (cut.channels..cut.lanes).step_by(cut.channels) {
        constant.copy_within(..cut.channels, start);
        slope.copy_within(..cut.channels, start);
    }
    let lanes = [&*center, &*factor, &*term, &*constant, &*slope];
    chunks(dx, cut.block, |block, dx| {
        backward_normalize(op.activation, lanes, cut.cut(x, block), cut.cut(dy, block), dx);
    });
}

/// One of the four sums of a channel over all blocks and its lanes.
fn channel_sum<T: Real>(cut: &Cut, sums: &[T], which: usize, channel: usize) -> f64 {
    sums.chunks(4 * cut.lanes)
        .map(|sums| {
            let lanes = &sums[which * cut.lanes..][..cut.lanes];
            lanes[channel..].iter().step_by(cut.channels).map(|sum| sum.double()).sum::<f64>()
        })
        .sum()
}

vectorized! {
/// For each lane of a block the sums of `d = dy slope`, `d (x - center)`, `x - center` and `dy`.
fn backward_sums<T>(activation: Activation, lanes: [&[T]; 3], x: &[T], dy: &[T], sums: &mut [T]) {
    match activation {
        Activation::Identity => backward_sums_with(lanes, x, dy, sums, |_| T::ONE),
        Activation::Relu => backward_sums_with(lanes, x, dy, sums, step),
        Activation::Silu => backward_sums_with(lanes, x, dy, sums, T::silu_slope),
        Activation::Gelu => backward_sums_with(lanes, x, dy, sums, T::gelu_slope),
    }
}
}

#[inline(always)]
fn step<T: Real>(x: T) -> T {
    if x > T::ZERO { T::ONE } else { T::ZERO }
}

#[inline(always)]
fn backward_sums_with<T: Real>(
    [center, factor, term]: [&[T]; 3],
    x: &[T],
    dy: &[T],
    sums: &mut [T],
    slope: impl Fn(T) -> T,
) {
    let lanes = center.len();
    sums.fill(T::ZERO);
    let (bias, rest) = sums.split_at_mut(lanes);
    let (scaled, rest) = rest.split_at_mut(lanes);
    let (centered, after) = rest.split_at_mut(lanes);
    for (x, dy) in x.chunks(lanes).zip(dy.chunks(lanes)) {
        let n = x.len();
        let (dy, center, factor, term) = (&dy[..n], &center[..n], &factor[..n], &term[..n]);
        let (bias, scaled) = (&mut bias[..n], &mut scaled[..n]);
        let (centered, after) = (&mut centered[..n], &mut after[..n]);
        for i in 0..n {
            let z = x[i] - center[i];
            let d = dy[i] * slope(z * factor[i] + term[i]);
            bias[i] += d;
            scaled[i] += d * z;
            centered[i] += z;
            after[i] += dy[i];
        }
    }
}

vectorized! {
fn backward_normalize<T>(activation: Activation, lanes: [&[T]; 5], x: &[T], dy: &[T], dx: &mut [T]) {
    match activation {
        Activation::Identity => backward_normalize_with(lanes, x, dy, dx, |_| T::ONE),
        Activation::Relu => backward_normalize_with(lanes, x, dy, dx, step),
        Activation::Silu => backward_normalize_with(lanes, x, dy, dx, T::silu_slope),
        Activation::Gelu => backward_normalize_with(lanes, x, dy, dx, T::gelu_slope),
    }
}
}

#[inline(always)]
fn backward_normalize_with<T: Real>(
    [center, factor, term, constant, slopes]: [&[T]; 5],
    x: &[T],
    dy: &[T],
    dx: &mut [T],
    slope: impl Fn(T) -> T,
) {
    let lanes = center.len();
    for ((x, dy), dx) in x.chunks(lanes).zip(dy.chunks(lanes)).zip(dx.chunks_mut(lanes)) {
        let n = x.len();
        let (dy, dx, center, factor) = (&dy[..n], &mut dx[..n], &center[..n], &factor[..n]);
        let (term, constant, slopes) = (&term[..n], &constant[..n], &slopes[..n]);
        for i in 0..n {
            let z = x[i] - center[i];
            let d = dy[i] * slope(z * factor[i] + term[i]);
            dx[i] = d * factor[i] - constant[i] - z * slopes[i];
        }
    }
}
