//! Wavelet transforms: sample by sample, level by level, along the width and then along the height.

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::chunk_pairs;
use cfo_engine::Shape;
use cfo_engine::ops::{Wavelet, WaveletTransform};

/// Real elements of scratch memory: a copy of the field.
pub(super) fn scratch(shape: &Shape) -> usize {
    shape.len()
}

pub(super) fn run<T: Real>(op: &WaveletTransform, shape: &Shape, io: &Io<'_>) {
    let [h, w, c] = [shape.axes()[1], shape.axes()[2], shape.axes()[3]];
    let (sample, Wavelet { levels, periodic, .. }) = ((h * w * c).max(1), op.wavelet);
    let x = io.input::<T>(0);
    chunk_pairs((io.output::<T>(0), sample), (io.scratch::<T>(), sample), |i, y, scratch| {
        y.copy_from_slice(&x[i * sample..][..sample]);
        for step in 0..levels {
            let level = if op.inverse { levels - 1 - step } else { step };
            let side = |length: usize| if length == 1 { 1 } else { length >> level };
            let (rows, columns) = (side(h), side(w));
            // The distance of neighbours along an axis and its length, and both for the other axis.
            let along_width =
                Lines { step: c, length: columns, across: w * c, count: rows, periodic: periodic[1] };
            let along_height =
                Lines { step: w * c, length: rows, across: c, count: columns, periodic: periodic[0] };
            for lines in if op.inverse { [along_height, along_width] } else { [along_width, along_height] } {
                if lines.length > 1 {
                    transform(op, lines, c, y, scratch);
                }
            }
        }
    });
}

/// Lines of points; each point is a run of channels.
#[derive(Clone, Copy)]
struct Lines {
    step: usize,
    length: usize,
    across: usize,
    count: usize,
    periodic: bool,
}

/// One level along one axis: averages to the first half of each line, details to the second; or the inverse.
fn transform<T: Real>(op: &WaveletTransform, lines: Lines, c: usize, y: &mut [T], scratch: &mut [T]) {
    for line in 0..lines.count {
        let at = |point: usize| line * lines.across + point * lines.step;
        for point in 0..lines.length {
            scratch[at(point)..][..c].fill(T::ZERO);
        }
        for (coefficient, point, weight) in op.wavelet.family.terms(lines.length, lines.periodic) {
            let (from, to) = if op.inverse { (coefficient, point) } else { (point, coefficient) };
            add_scaled(&y[at(from)..][..c], T::of(weight), &mut scratch[at(to)..][..c]);
        }
    }
    for line in 0..lines.count {
        for point in 0..lines.length {
            let at = line * lines.across + point * lines.step;
            y[at..at + c].copy_from_slice(&scratch[at..at + c]);
        }
    }
}

vectorized! {
fn add_scaled<T>(from: &[T], weight: T, to: &mut [T]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to += weight * from;
    }
}
}
