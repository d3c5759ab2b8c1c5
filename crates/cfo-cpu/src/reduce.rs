//! Sums over axes. Blocks are fixed, so that results do not depend on the number of threads.

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::chunks;
use cfo_engine::Shape;
use cfo_engine::ops::Sum;

const BLOCK: usize = 1 << 14;
const COLUMNS: usize = 64;

/// Maximum number of axes.
const AXES: usize = 8;

/// Real elements of scratch memory: one for each block of a sum over all axes.
pub(super) fn scratch(input: &Shape) -> usize {
    input.len().div_ceil(BLOCK)
}

pub(super) fn run<T: Real>(op: &Sum, input: &Shape, io: &Io<'_>) {
    let (x, y) = (io.input::<T>(0), io.output::<T>(0));
    let (groups, count) = groups(op, input);
    match groups[..count] {
        [(false, kept), (true, reduced)] => rows(x, kept, reduced, y, io.scratch::<T>()),
        [(true, reduced), (false, kept)] => columns(x, reduced, kept, y),
        [(true, reduced)] => rows(x, 1, reduced, y, io.scratch::<T>()),
        [(false, _)] => y.copy_from_slice(x),
        [(false, outer), (true, reduced), (false, kept)] => {
            chunks(&mut y[..outer * kept], kept, |i, y| {
                column_sums(&x[i * reduced * kept..][..reduced * kept], kept, 0, y);
            });
        }
        ref groups => general(x, groups, y),
    }
}

/// Axes merged into alternating groups of (reduced?, length), and the number of groups.
fn groups(op: &Sum, input: &Shape) -> ([(bool, usize); AXES], usize) {
    let (mut groups, mut count) = ([(true, 1); AXES], 0);
    for (axis, &length) in input.axes().iter().enumerate().filter(|(_, length)| **length != 1) {
        let reduced = op.axes.contains(&axis);
        match groups[..count].last_mut() {
            Some((same, total)) if *same == reduced => *total *= length,
            _ => {
                groups[count] = (reduced, length);
                count += 1;
            }
        }
    }
    (groups, count.max(1))
}

fn rows<T: Real>(x: &[T], kept: usize, reduced: usize, y: &mut [T], scratch: &mut [T]) {
    if kept == 1 && reduced > BLOCK {
        chunks(scratch, 1, |i, sum| sum[0] = total(&x[i * BLOCK..x.len().min((i + 1) * BLOCK)]));
        y[0] = T::of(scratch.iter().map(|sum| sum.double()).sum());
    } else {
        let task = (BLOCK / reduced.max(1)).max(1);
        chunks(y, task, |i, y| {
            for (j, y) in y.iter_mut().enumerate() {
                *y = total(&x[(i * task + j) * reduced..][..reduced]);
            }
        });
    }
}

fn columns<T: Real>(x: &[T], reduced: usize, kept: usize, y: &mut [T]) {
    chunks(y, COLUMNS, |i, y| {
        column_sums(&x[..reduced * kept], kept, i * COLUMNS, y);
    });
}

vectorized! {
/// Sum of a run of elements in sixteen interleaved parts.
pub(super) fn total<T>(x: &[T]) -> T {
    let mut parts = [T::ZERO; 16];
    let chunks = x.chunks_exact(16);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (part, &x) in parts.iter_mut().zip(chunk) {
            *part += x;
        }
    }
    let mut sum = T::ZERO;
    for part in parts {
        sum += part;
    }
    for &x in rest {
        sum += x;
    }
    sum
}
}

vectorized! {
/// Sums over the rows of a matrix with `width` columns, for the columns from `start` on.
fn column_sums<T>(x: &[T], width: usize, start: usize, y: &mut [T]) {
    y.fill(T::ZERO);
    for row in x.chunks_exact(width) {
        for (y, &x) in y.iter_mut().zip(&row[start..]) {
            *y += x;
        }
    }
}
}

fn general<T: Real>(x: &[T], groups: &[(bool, usize)], y: &mut [T]) {
    y.fill(T::ZERO);
    let mut index = [0usize; AXES];
    for &x in x {
        let mut to = 0;
        for (&(reduced, length), &index) in groups.iter().zip(&index) {
            if !reduced {
                to = to * length + index;
            }
        }
        y[to] += x;
        for axis in (0..groups.len()).rev() {
            index[axis] += 1;
            if index[axis] < groups[axis].1 {
                break;
            }
            index[axis] = 0;
        }
    }
}
