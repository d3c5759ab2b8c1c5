//! Convolutions by their definition.

use rayon::prelude::*;

use super::Geometry;
use crate::cpu::Io;
use crate::cpu::real::Real;
use crate::cpu::simd::vectorized;

pub(in crate::cpu) fn forward<T: Real>(g: Geometry, io: &Io<'_>) {
    let (x, w) = (io.input::<T>(0), io.input::<T>(1));
    io.output::<T>(0).par_chunks_mut(g.columns * g.outputs).enumerate().for_each(|(row, y)| {
        forward_row(&g, row, x, w, y);
    });
}

vectorized! {
fn forward_row<T>(g: &Geometry, row: usize, x: &[T], w: &[T], y: &mut [T]) {
    let (batch, i) = (row / g.rows, row % g.rows);
    for (j, y) in y.chunks_exact_mut(g.outputs).enumerate() {
        y.fill(T::ZERO);
        for p in 0..g.kernel[0] {
            let Some(at) = g.y(i, p) else { continue };
            for q in 0..g.kernel[1] {
                let Some(column) = g.x(j, q) else { continue };
                let x = &x[((batch * g.height + at) * g.width + column) * g.inputs..][..g.inputs];
                for (o, y) in y.iter_mut().enumerate() {
                    let w = &w[((o * g.kernel[0] + p) * g.kernel[1] + q) * g.inputs..][..g.inputs];
                    *y += x.iter().zip(w).map(|(&x, &w)| x * w).sum();
                }
            }
        }
    }
}
}

pub(in crate::cpu) fn input<T: Real>(g: Geometry, io: &Io<'_>) {
    let (dy, w) = (io.input::<T>(0), io.input::<T>(1));
    io.output::<T>(0).par_chunks_mut(g.width * g.inputs).enumerate().for_each(|(row, dx)| {
        input_row(&g, row, dy, w, dx);
    });
}

vectorized! {
fn input_row<T>(g: &Geometry, row: usize, dy: &[T], w: &[T], dx: &mut [T]) {
    let (batch, at) = (row / g.height, row % g.height);
    for (column, dx) in dx.chunks_exact_mut(g.inputs).enumerate() {
        dx.fill(T::ZERO);
        for p in 0..g.kernel[0] {
            let Some(i) = g.i(at, p) else { continue };
            for q in 0..g.kernel[1] {
                let Some(j) = g.j(column, q) else { continue };
                let dy = &dy[((batch * g.rows + i) * g.columns + j) * g.outputs..][..g.outputs];
                for (o, &dy) in dy.iter().enumerate() {
                    let w = &w[((o * g.kernel[0] + p) * g.kernel[1] + q) * g.inputs..][..g.inputs];
                    for (dx, &w) in dx.iter_mut().zip(w) {
                        *dx += dy * w;
                    }
                }
            }
        }
    }
}
}

pub(in crate::cpu) fn weight<T: Real>(g: Geometry, io: &Io<'_>) {
    let (x, dy) = (io.input::<T>(0), io.input::<T>(1));
    let size = g.kernel[0] * g.kernel[1] * g.inputs;
    io.output::<T>(0).par_chunks_mut(size).enumerate().for_each(|(o, dw)| weight_row(&g, o, x, dy, dw));
}

vectorized! {
fn weight_row<T>(g: &Geometry, o: usize, x: &[T], dy: &[T], dw: &mut [T]) {
    dw.fill(T::ZERO);
    for (position, dy) in dy.chunks_exact(g.outputs).enumerate() {
        let (row, j) = (position / g.columns, position % g.columns);
        let (batch, i) = (row / g.rows, row % g.rows);
        for p in 0..g.kernel[0] {
            let Some(at) = g.y(i, p) else { continue };
            for q in 0..g.kernel[1] {
                let Some(column) = g.x(j, q) else { continue };
                let x = &x[((batch * g.height + at) * g.width + column) * g.inputs..][..g.inputs];
                let dw = &mut dw[(p * g.kernel[1] + q) * g.inputs..][..g.inputs];
                for (dw, &x) in dw.iter_mut().zip(x) {
                    *dw += dy[o] * x;
                }
            }
        }
    }
}
}
