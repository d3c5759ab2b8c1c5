//! Wavelet transforms: sample by sample, level by level, along the width and then along the height.

use super::Io;
use super::scalar::Real;
use super::simd::vectorized;
use super::thread_team::chunk_pairs;
use cfo_engine::Shape;
use cfo_engine::ops::WaveletTransform;
use cfo_numerics::WaveletPass;

/// Real elements of scratch memory: a copy of the field.
pub(super) fn scratch(shape: &Shape) -> usize {
    shape.len()
}

pub(super) fn run<T: Real>(op: &WaveletTransform, shape: &Shape, io: &Io<'_>) {
    let field = [1, 2, 3].map(|axis| shape.axes()[axis]);
    let sample = field.iter().product::<usize>().max(1);
    let x = io.input::<T>(0);
    chunk_pairs((io.output::<T>(0), sample), (io.scratch::<T>(), sample), |i, y, scratch| {
        y.copy_from_slice(&x[i * sample..][..sample]);
        for pass in op.wavelet.passes(field, op.inverse) {
            transform(op, pass, field[2], y, scratch);
        }
    });
}

/// One level along one axis: averages to the first half of each line, details to the second; or the inverse.
fn transform<T: Real>(op: &WaveletTransform, pass: WaveletPass, c: usize, y: &mut [T], scratch: &mut [T]) {
    let WaveletPass { lines: (count, across), points: (length, step), periodic, .. } = pass;
    for line in 0..count {
        let at = |point: usize| line * across + point * step;
        for point in 0..length {
            scratch[at(point)..][..c].fill(T::ZERO);
        }
        for (coefficient, point, weight) in op.wavelet.family.terms(length, periodic) {
            let (from, to) = if op.inverse { (coefficient, point) } else { (point, coefficient) };
            add_scaled(&y[at(from)..][..c], T::of(weight), &mut scratch[at(to)..][..c]);
        }
    }
    for line in 0..count {
        for point in 0..length {
            let at = line * across + point * step;
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
