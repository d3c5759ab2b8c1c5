//! Group normalisation: one pass for the statistics, one to normalise; backward two passes as well.
//!
//! A sample is cut into blocks of rows, a row into lanes: a lane is a channel, or with few channels one of several
//! neighbouring positions of a channel, so that the innermost loop is long enough for vectors. Sums run per block and
//! lane in the precision of the data and are put together in `f64` in a fixed order.
#![allow(unsafe_code)]

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::{Shared, chunks, for_each_outer};
use cfo_engine::Shape;
use cfo_engine::ops::{Activation, GroupNorm};

/// Elements of one block, about.
const BLOCK: usize = 1 << 14;
/// Lanes that several positions of few channels are spread over, at most.
const LANES: usize = 512;

/// How a field `[batch, positions, channels]` is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    batch: usize,
    positions: usize,
    channels: usize,
    groups: usize,
    /// A multiple of the channels.
    lanes: usize,
    /// Elements of a block, a multiple of the lanes; the last block of a sample may be shorter.
    block: usize,
    blocks: usize,
}

impl Cut {
    fn new(op: &GroupNorm, x: &Shape) -> Self {
        let (batch, channels) = (x.axes()[0], x.last());
        let positions = x.axes()[1] * x.axes()[2];
        let repeat = (1..=16).find(|repeat| repeat * channels % 16 == 0).expect("16 times anything is even");
        let lanes = if repeat * channels <= LANES { repeat * channels } else { channels };
        let block = (BLOCK / lanes).max(1) * lanes;
        let blocks = (positions * channels).div_ceil(block);
        Self { batch, positions, channels, groups: op.groups, lanes, block, blocks }
    }

    fn sample(&self) -> usize {
        self.positions * self.channels
    }

    /// A block of a sample.
    fn cut<'a, T>(&self, sample: &'a [T], block: usize) -> &'a [T] {
        &sample[block * self.block..sample.len().min((block + 1) * self.block)]
    }

    /// Channels of a group.
    fn width(&self) -> usize {
        self.channels / self.groups
    }

    /// Elements of a block that fall into each lane, and how many lanes have one more.
    fn counts(&self, block: usize) -> (usize, usize) {
        let length = self.block.min(self.sample() - block * self.block);
        (length / self.lanes, length % self.lanes)
    }

    /// Repeats a value for each channel over the lanes.
    fn spread<T: Copy>(&self, lanes: &mut [T], value: impl Fn(usize) -> T) {
        let (first, rest) = lanes.split_at_mut(self.channels);
        for (c, lane) in first.iter_mut().enumerate() {
            *lane = value(c);
        }
        for copy in rest.chunks_mut(self.channels) {
            copy.copy_from_slice(first);
        }
    }
}

/// Scratch of a sample: two sums for each block and lane, four coefficients for each lane.
fn forward_scratch(cut: &Cut) -> usize {
    (2 * cut.blocks + 4) * cut.lanes
}

/// Scratch of a sample: four sums for each block and lane, five coefficients for each lane, three sums a channel.
fn backward_scratch(cut: &Cut) -> usize {
    (4 * cut.blocks + 5) * cut.lanes + 3 * cut.channels
}

/// Real elements of scratch memory.
pub(super) fn scratch(op: &GroupNorm, x: &Shape) -> usize {
    let cut = Cut::new(op, x);
    cut.batch * forward_scratch(&cut)
}

/// Real elements of scratch memory of the backward operation.
pub(super) fn scratch_backward(op: &GroupNorm, x: &Shape) -> usize {
    let cut = Cut::new(op, x);
    cut.batch * backward_scratch(&cut)
}

pub(super) fn run<T: Real>(op: &GroupNorm, shape: &Shape, io: &Io<'_>) {
    let cut = Cut::new(op, shape);
    let (x, scale, bias) = (io.input::<T>(0), io.input::<T>(1), io.input::<T>(2));
    let offset: &[T] = if op.offset { io.input(3) } else { &[] };
    let shift: &[T] = if op.shift { io.input(3 + usize::from(op.offset)) } else { &[] };
    let outputs = [0, 1, 2].map(|output| Shared::new(io.output::<T>(output)));
    let scratch = Shared::new(io.scratch::<T>());
    for_each_outer(cut.batch, |b| {
        let x = &x[b * cut.sample()..][..cut.sample()];
        let part = |all: Shared<T>, size: usize| {
            // SAFETY: outputs and scratch memory have room for so much for each sample, which is this task's alone.
            unsafe { all.range(b * size..(b + 1) * size) }
        };
        let (y, mean) = (part(outputs[0], cut.sample()), part(outputs[1], op.groups));
        let inverse = part(outputs[2], op.groups);
        let (sums, lanes) = part(scratch, forward_scratch(&cut)).split_at_mut(2 * cut.blocks * cut.lanes);
        chunks(sums, 2 * cut.lanes, |block, sums| block_sums(cut.cut(x, block), sums));
        moments(&cut, op.epsilon, x, offset, sums, mean, inverse);
        let (center, rest) = lanes.split_at_mut(cut.lanes);
        let (factor, rest) = rest.split_at_mut(cut.lanes);
        let (term, after) = rest.split_at_mut(cut.lanes);
        cut.spread(center, |c| mean[c / cut.width()] - offset.get(c).copied().unwrap_or(T::ZERO));
        cut.spread(factor, |c| inverse[c / cut.width()] * scale[c]);
        cut.spread(term, |c| bias[c]);
        cut.spread(after, |c| shift.get(b * cut.channels + c).copied().unwrap_or(T::ZERO));
        let lanes = [&*center, &*factor, &*term, &*after];
        chunks(y, cut.block, |block, y| normalize(op.activation, lanes, cut.cut(x, block), y));
    });
}

vectorized! {
/// For each lane of a block the sum of `x - first` and of its square, `first` being the lane's first element: near
/// the mean whatever that is, so that nothing cancels.
fn block_sums<T>(x: &[T], sums: &mut [T]) {
    let lanes = sums.len() / 2;
    sums.fill(T::ZERO);
    let (sum, square) = sums.split_at_mut(lanes);
    let first = &x[..lanes.min(x.len())];
    for row in x.chunks(lanes).skip(1) {
        for (((&x, &first), sum), square) in row.iter().zip(first).zip(&mut *sum).zip(&mut *square) {
            let d = x - first;
            *sum += d;
            *square += d * d;
        }
    }
}
}

/// Mean and inverse deviation of each group of a sample from its block sums.
fn moments<T: Real>(
    cut: &Cut,
    epsilon: f64,
    x: &[T],
    offset: &[T],
    sums: &[T],
    mean: &mut [T],
    inverse: &mut [T],
) {
    let width = cut.width();
    let total = (cut.positions * width) as f64;
    let lane_moments = |group: usize, visit: &mut dyn FnMut(f64, f64, f64)| {
        for (block, sums) in sums.chunks(2 * cut.lanes).enumerate() {
            let (whole, more) = cut.counts(block);
            let inverses = [1.0 / whole.max(1) as f64, 1.0 / (whole + 1) as f64];
            let first = &x[block * cut.block..];
            for start in (group * width..cut.lanes).step_by(cut.channels) {
                for lane in start..start + width {
                    let one_more = usize::from(lane < more);
                    let count = whole + one_more;
                    if count == 0 {
                        break;
                    }
                    let before = offset.get(group * width + lane - start).map_or(0.0, |o| o.double());
                    let (sum, square) = (sums[lane].double(), sums[cut.lanes + lane].double());
                    let shifted = sum * inverses[one_more];
                    visit(count as f64, first[lane].double() + before + shifted, square - sum * shifted);
                }
            }
        }
    };
    for (group, (mean, inverse)) in mean.iter_mut().zip(inverse).enumerate() {
        let mut sum = 0.0;
        lane_moments(group, &mut |count, lane_mean, _| sum += count * lane_mean);
        let center = sum / total;
        let mut squares = 0.0;
        lane_moments(group, &mut |count, lane_mean, within| {
            squares += within + count * (lane_mean - center) * (lane_mean - center);
        });
        *mean = T::of(center);
        *inverse = T::of(1.0 / (squares.max(0.0) / total + epsilon).sqrt());
    }
}

vectorized! {
fn normalize<T>(activation: Activation, lanes: [&[T]; 4], x: &[T], y: &mut [T]) {
    match activation {
        Activation::Identity => normalize_with(lanes, x, y, |x| x),
        Activation::Relu => normalize_with(lanes, x, y, |x| x.larger(T::ZERO)),
        Activation::Silu => normalize_with(lanes, x, y, T::silu),
        Activation::Gelu => normalize_with(lanes, x, y, T::gelu),
    }
}
}

#[inline(always)]
fn normalize_with<T: Real>(
    [center, factor, term, after]: [&[T]; 4],
    x: &[T],
    y: &mut [T],
    f: impl Fn(T) -> T,
) {
    let lanes = center.len();
    for (x, y) in x.chunks(lanes).zip(y.chunks_mut(lanes)) {
        let n = x.len();
        let (y, center, factor) = (&mut y[..n], &center[..n], &factor[..n]);
        let (term, after) = (&term[..n], &after[..n]);
        for i in 0..n {
            y[i] = f((x[i] - center[i]) * factor[i] + term[i]) + after[i];
        }
    }
}

pub(super) fn run_backward<T: Real>(op: &GroupNorm, shape: &Shape, io: &Io<'_>) {
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
        // SAFETY: there is room for so much for each sample, which is this task's alone.
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

/// What one sample is normalised with.
struct Sample<'a, T> {
    scale: &'a [T],
    bias: &'a [T],
    offset: &'a [T],
    mean: &'a [T],
    inverse: &'a [T],
}

/// Both passes over a sample; leaves its share of the channels' sums (scale, bias, offset) in `totals`.
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
