//! Matrix products: rows are cut into fixed blocks, each a call of the GEMM crate on one core.
#![allow(unsafe_code)]

use rayon::prelude::*;

use super::Io;
use super::expression::unary;
use super::real::Real;
use super::simd::vectorized;
use crate::ops::{Activation, MatMul, Operand};

/// Rows that one task multiplies.
const ROWS: usize = 256;

/// Real elements of scratch memory.
pub(super) fn scratch(_: &MatMul) -> usize {
    0
}

pub(super) fn run<T: Real>(op: &MatMul, io: &Io<'_>) {
    let (a, b) = (io.input::<T>(0), io.input::<T>(1));
    let bias: &[T] = if op.bias { io.input::<T>(2) } else { &[] };
    let output = Target { pointer: io.output::<T>(0).as_mut_ptr() as usize };
    let kept =
        if op.keep_input { Some(Target { pointer: io.output::<T>(1).as_mut_ptr() as usize }) } else { None };
    let blocks = op.rows.div_ceil(ROWS);
    let tasks = op.batch[0] * op.batch[1] * blocks;
    let work = |task: usize| {
        let (matrix, block) = (task / blocks, task % blocks);
        let at = [matrix / op.batch[1], matrix % op.batch[1]];
        let (first, rows) = (block * ROWS, ROWS.min(op.rows - block * ROWS));
        let start = |operand: &Operand, row: usize| {
            operand.batch[0] * at[0] + operand.batch[1] * at[1] + row * operand.row
        };
        let (from_a, from_b, to) = (start(&op.a, first), start(&op.b, 0), start(&op.c, first));
        // SAFETY: the graph checked that every operand holds the elements its strides reach, and tasks write disjoint
        // rows of the output.
        unsafe {
            let c = (output.pointer as *mut T).add(to);
            multiply(
                [rows, op.inner, op.columns],
                (a[from_a..].as_ptr(), op.a),
                (b[from_b..].as_ptr(), op.b),
                (c, op.c),
            );
            if op.bias || op.activation != Activation::Identity {
                for row in 0..rows {
                    let c = std::slice::from_raw_parts_mut(c.add(row * op.c.row), op.columns);
                    add_bias(bias, c);
                    if let Some(kept) = &kept {
                        let kept = (kept.pointer as *mut T).add(to + row * op.c.row);
                        std::ptr::copy_nonoverlapping(c.as_ptr(), kept, op.columns);
                    }
                    activate(op.activation, c);
                }
            }
        }
    };
    if tasks == 1 { work(0) } else { (0..tasks).into_par_iter().for_each(work) }
}

struct Target {
    pointer: usize,
}

vectorized! {
fn add_bias<T>(bias: &[T], row: &mut [T]) {
    for (c, &bias) in row.iter_mut().zip(bias) {
        *c += bias;
    }
}
}

vectorized! {
fn activate<T>(activation: Activation, row: &mut [T]) {
    let Some(function) = activation.function() else { return };
    let mut block = [T::ZERO; 256];
    for row in row.chunks_mut(256) {
        let block = &mut block[..row.len()];
        block.copy_from_slice(row);
        unary(function, block, row);
    }
}
}

/// `c = a b` for one block of rows.
///
/// # Safety
/// Every element that the strides reach must exist.
unsafe fn multiply<T: Real>(
    [m, k, n]: [usize; 3],
    (a, at): (*const T, Operand),
    (b, bt): (*const T, Operand),
    (c, ct): (*mut T, Operand),
) {
    let stride = |stride: usize| stride as isize;
    // SAFETY: by the caller; `T` is one of the two types compared with.
    unsafe {
        if std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>() {
            matrixmultiply::sgemm(
                m,
                k,
                n,
                1.0,
                a.cast(),
                stride(at.row),
                stride(at.column),
                b.cast(),
                stride(bt.row),
                stride(bt.column),
                0.0,
                c.cast(),
                stride(ct.row),
                stride(ct.column),
            );
        } else {
            matrixmultiply::dgemm(
                m,
                k,
                n,
                1.0,
                a.cast(),
                stride(at.row),
                stride(at.column),
                b.cast(),
                stride(bt.row),
                stride(bt.column),
                0.0,
                c.cast(),
                stride(ct.row),
                stride(ct.column),
            );
        }
    }
}

/// `c = alpha a b + beta c` for matrices given by pointer, row and column stride; the columns of `c` are dense.
///
/// # Safety
/// Every element that the strides reach must exist.
pub(super) unsafe fn product<T: Real>(
    [m, k, n]: [usize; 3],
    alpha: T,
    (a, a_row, a_column): (*const T, usize, usize),
    (b, b_row, b_column): (*const T, usize, usize),
    beta: T,
    (c, c_row): (*mut T, usize),
) {
    let [ar, ac, br, bc, cr] = [a_row, a_column, b_row, b_column, c_row].map(|stride| stride as isize);
    let (single, alpha, beta) =
        (std::any::TypeId::of::<T>() == std::any::TypeId::of::<f32>(), alpha.double(), beta.double());
    // SAFETY: by the caller; `T` is one of the two types compared with.
    unsafe {
        if single {
            let (a, b, c) = (a.cast(), b.cast(), c.cast());
            matrixmultiply::sgemm(m, k, n, alpha as f32, a, ar, ac, b, br, bc, beta as f32, c, cr, 1);
        } else {
            let (a, b, c) = (a.cast(), b.cast(), c.cast());
            matrixmultiply::dgemm(m, k, n, alpha, a, ar, ac, b, br, bc, beta, c, cr, 1);
        }
    }
}
