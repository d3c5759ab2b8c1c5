//! Fused pointwise expressions: blocks of elements pass through all lines while they are in the first cache.

use rayon::prelude::*;

use super::Io;
use super::real::Real;
use super::simd::vectorized;
use crate::ops::{Binary, Expression, Instruction, Unary, View};

/// Elements that pass through the lines together.
const BLOCK: usize = 256;
/// Elements that one task handles; fixed, so that results do not depend on the number of threads.
const TASK: usize = 64 * BLOCK;
/// Results of lines alive at once that the register file has room for; fusion bounds the lines.
const REGISTERS: usize = 34;

/// The operand whose memory the result may take over: read whole, in order.
pub(super) fn in_place(expression: &Expression) -> Option<usize> {
    let dense = expression.shape.strides();
    expression
        .views
        .iter()
        .position(|view| view.offset == 0 && view.strides == dense && !view.strides.is_empty())
}

pub(super) fn run<T: Real>(expression: &Expression, io: &Io<'_>) {
    let output = io.output::<T>(0);
    let operands: [&[T]; 8] =
        std::array::from_fn(|i| if i < io.inputs.len() && !io.aliased(i) { io.input::<T>(i) } else { &[] });
    let code = Code::new(expression);
    let work =
        |task: usize, output: &mut [T]| block_loop::<T>(expression, &code, &operands, task * TASK, output);
    if output.len() <= TASK {
        work(0, output);
    } else {
        output.par_chunks_mut(TASK).enumerate().for_each(|(task, output)| work(task, output));
    }
}

/// Which register each line writes; registers are reused after a line's last reader.
struct Code {
    register: [u8; REGISTERS],
}

impl Code {
    fn new(expression: &Expression) -> Self {
        let lines = expression.code.len();
        let mut last = [0usize; REGISTERS];
        for (i, line) in expression.code.iter().enumerate() {
            match *line {
                Instruction::Load(_) => {}
                Instruction::Unary(_, a) => last[a] = i,
                Instruction::Binary(_, a, b) => (last[a], last[b]) = (i, i),
            }
        }
        last[lines - 1] = lines;
        let mut register = [0u8; REGISTERS];
        let mut busy = [false; REGISTERS];
        for i in 0..lines {
            // A line may not write where it still reads, so its operands are released only after it.
            let free = busy.iter().position(|&busy| !busy).expect("there are more registers than lines");
            register[i] = free as u8;
            busy[free] = true;
            for earlier in 0..i {
                if last[earlier] == i {
                    busy[register[earlier] as usize] = false;
                }
            }
        }
        Self { register }
    }
}

vectorized! {
fn block_loop<T>(expression: &Expression, code: &Code, operands: &[&[T]; 8], start: usize, output: &mut [T]) {
    let mut file = [[T::ZERO; BLOCK]; REGISTERS];
    let mut done = 0;
    while done < output.len() {
        let count = BLOCK.min(output.len() - done);
        for (i, line) in expression.code.iter().enumerate() {
            let to = code.register[i] as usize;
            match *line {
                Instruction::Load(operand) => {
                    let view = &expression.views[operand];
                    let register = &mut file[to][..count];
                    if operands[operand].is_empty() {
                        register.copy_from_slice(&output[done..done + count]);
                    } else {
                        load(operands[operand], view, expression.shape.axes(), start + done, register);
                    }
                }
                Instruction::Unary(function, a) => {
                    let (x, y) = two(&mut file, code.register[a] as usize, to);
                    unary(function, &x[..count], &mut y[..count]);
                }
                Instruction::Binary(function, a, b) => {
                    let (a, b) = (code.register[a] as usize, code.register[b] as usize);
                    let mut y = std::mem::replace(&mut file[to], [T::ZERO; BLOCK]);
                    binary(function, &file[a][..count], &file[b][..count], &mut y[..count]);
                    file[to] = y;
                }
            }
        }
        let last = code.register[expression.code.len() - 1] as usize;
        output[done..done + count].copy_from_slice(&file[last][..count]);
        done += count;
    }
}
}

/// Two different registers, the second to be written.
#[inline(always)]
fn two<T: Real>(
    file: &mut [[T; BLOCK]; REGISTERS],
    from: usize,
    to: usize,
) -> (&[T; BLOCK], &mut [T; BLOCK]) {
    if from < to {
        let (low, high) = file.split_at_mut(to);
        (&low[from], &mut high[0])
    } else {
        let (low, high) = file.split_at_mut(from);
        (&high[0], &mut low[to])
    }
}

/// Elements `start ..` of the result's order, read through a view.
#[inline(always)]
fn load<T: Real>(data: &[T], view: &View, axes: &[usize], start: usize, register: &mut [T]) {
    match (axes, view.strides.as_slice()) {
        ([], _) => register.fill(data[view.offset]),
        (_, strides) if strides.iter().all(|&stride| stride == 0) => register.fill(data[view.offset]),
        ([_], [1]) => register.copy_from_slice(&data[view.offset + start..][..register.len()]),
        _ => load_rows(data, view, axes, start, register),
    }
}

/// The general case: row by row along the last axis.
#[inline(always)]
fn load_rows<T: Real>(data: &[T], view: &View, axes: &[usize], start: usize, register: &mut [T]) {
    let last = axes.len() - 1;
    let (width, stride) = (axes[last], view.strides[last]);
    let mut index = [0usize; 8];
    let mut rest = start / width;
    let mut offset = view.offset;
    for axis in (0..last).rev() {
        index[axis] = rest % axes[axis];
        rest /= axes[axis];
        offset += index[axis] * view.strides[axis];
    }
    let mut column = start % width;
    let mut filled = 0;
    while filled < register.len() {
        let count = (width - column).min(register.len() - filled);
        let row = &mut register[filled..filled + count];
        let from = offset + column * stride;
        match stride {
            0 => row.fill(data[from]),
            1 => row.copy_from_slice(&data[from..from + count]),
            _ => row.iter_mut().enumerate().for_each(|(i, to)| *to = data[from + i * stride]),
        }
        filled += count;
        column = 0;
        for axis in (0..last).rev() {
            index[axis] += 1;
            offset += view.strides[axis];
            if index[axis] < axes[axis] {
                break;
            }
            offset -= index[axis] * view.strides[axis];
            index[axis] = 0;
        }
    }
}

#[inline(always)]
fn map<T: Real>(x: &[T], y: &mut [T], function: impl Fn(T) -> T) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = function(x);
    }
}

#[inline(always)]
pub(super) fn unary<T: Real>(function: Unary, x: &[T], y: &mut [T]) {
    match function {
        Unary::Affine { scale, shift } => {
            let (scale, shift) = (T::of(scale), T::of(shift));
            map(x, y, |x| scale * x + shift);
        }
        Unary::Reciprocal => map(x, y, |x| T::ONE / x),
        Unary::Square => map(x, y, |x| x * x),
        Unary::Sqrt => map(x, y, T::sqrt),
        Unary::Exp => map(x, y, T::exp),
        Unary::Log => map(x, y, T::ln),
        Unary::Sin => map(x, y, T::sin),
        Unary::Cos => map(x, y, T::cos),
        Unary::Tanh => map(x, y, T::tanh),
        Unary::Sigmoid => map(x, y, T::sigmoid),
        Unary::Abs => map(x, y, T::abs),
        Unary::Relu => map(x, y, |x| x.larger(T::ZERO)),
        Unary::Silu => map(x, y, T::silu),
        Unary::Gelu => map(x, y, T::gelu),
        Unary::Step => map(x, y, |x| if x > T::ZERO { T::ONE } else { T::ZERO }),
        Unary::Sign => map(x, y, |x| {
            if x > T::ZERO {
                T::ONE
            } else if x < T::ZERO {
                -T::ONE
            } else {
                T::ZERO
            }
        }),
        Unary::SiluSlope => map(x, y, T::silu_slope),
        Unary::GeluSlope => map(x, y, T::gelu_slope),
    }
}

#[inline(always)]
fn zip<T: Real>(a: &[T], b: &[T], y: &mut [T], function: impl Fn(T, T) -> T) {
    for ((y, &a), &b) in y.iter_mut().zip(a).zip(b) {
        *y = function(a, b);
    }
}

#[inline(always)]
fn binary<T: Real>(function: Binary, a: &[T], b: &[T], y: &mut [T]) {
    match function {
        Binary::Add => zip(a, b, y, |a, b| a + b),
        Binary::Subtract => zip(a, b, y, |a, b| a - b),
        Binary::Multiply => zip(a, b, y, |a, b| a * b),
        Binary::Divide => zip(a, b, y, |a, b| a / b),
        Binary::Maximum => zip(a, b, y, T::larger),
        Binary::Minimum => zip(a, b, y, T::smaller),
        Binary::Mask => zip(a, b, y, |a, b| if b != T::ZERO { a } else { T::ZERO }),
        Binary::AtLeast => zip(a, b, y, |a, b| if a >= b { T::ONE } else { T::ZERO }),
    }
}
