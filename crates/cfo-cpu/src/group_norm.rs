//! Group normalisation: one pass for the statistics and one to normalise, in both directions.
//!
//! A sample is divided into blocks of rows, and a row into lanes. A lane is a channel, or with few channels one of
//! several neighbouring positions of a channel, so that the innermost loop is long enough for vectors. Sums are
//! computed per block and lane in the precision of the data and combined in `f64` in a fixed order.
#![allow(unsafe_code)]

mod backward;

pub(super) use backward::{run_backward, scratch_backward};

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::{Shared, chunks, for_each_outer};
use cfo_engine::Shape;
use cfo_engine::ops::{Activation, GroupNorm};

const BLOCK: usize = 1 << 14;
/// Maximum number of lanes over several positions of few channels.
const LANES: usize = 512;

/// Division of a field `[batch, positions, channels]`.
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

    /// Number of elements of a block in each lane, and number of lanes with one more.
    fn counts(&self, block: usize) -> (usize, usize) {
        let length = self.block.min(self.sample() - block * self.block);
        (length / self.lanes, length % self.lanes)
    }

    /// Repeats a value per channel over the lanes.
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

/// Scratch memory of a sample: two sums for each block and lane, four coefficients for each lane.
fn forward_scratch(cut: &Cut) -> usize {
    (2 * cut.blocks + 4) * cut.lanes
}

pub(super) fn scratch(op: &GroupNorm, x: &Shape) -> usize {
    let cut = Cut::new(op, x);
    cut.batch * forward_scratch(&cut)
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
            // SAFETY: outputs and scratch memory have this size for each sample, and each sample belongs to one task.
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
/// For each lane of a block the sums of `x - first` and of its square; its first element is close to the mean.
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
