//! Fused pointwise expressions: blocks of elements pass through all lines while they are in the first-level cache.

use super::Io;
use super::scalar::Real;
use super::simd::{Level, vectorized};
use super::thread_team::chunks;
use cfo_engine::ops::{Binary, Expression, Line, Unary, View};

/// Number of elements that pass through the lines together.
const BLOCK: usize = 256;
/// Number of elements of one task; fixed, so that results do not depend on the number of threads.
const TASK: usize = 64 * BLOCK;
/// Number of registers for results that are alive at once; fusion limits the lines accordingly.
const REGISTERS: usize = 34;
/// Number of registers that suffices for most expressions.
const FEW: usize = 6;

/// The operand whose memory the result may reuse: read whole, in order.
pub(super) fn in_place(expression: &Expression) -> Option<usize> {
    expression
        .views
        .iter()
        .position(|view| view.offset == 0 && dense(expression, view) && !view.strides.is_empty())
}

/// Whether a view reads its operand contiguously in the order of the result.
fn dense(expression: &Expression, view: &View) -> bool {
    let mut stride = 1;
    view.strides.iter().zip(expression.shape.axes()).rev().all(|(&found, &length)| {
        let fits = found == stride;
        stride *= length;
        fits
    })
}

pub(super) fn run<T: Real>(expression: &Expression, io: &Io<'_>) {
    let output = io.output::<T>(0);
    let operands: [&[T]; 8] =
        std::array::from_fn(|i| if i < io.inputs.len() && !io.aliased(i) { io.input::<T>(i) } else { &[] });
    let code = Code::new(expression, &operands);
    let work = |task: usize, output: &mut [T]| {
        let (start, operands) = (task * TASK, &operands);
        // Most expressions need few registers, and clearing a register has a cost.
        if code.registers <= FEW {
            block_loop(expression, &code, operands, start, output, &mut [[T::ZERO; BLOCK]; FEW]);
        } else {
            block_loop(expression, &code, operands, start, output, &mut [[T::ZERO; BLOCK]; REGISTERS]);
        }
    };
    chunks(output, TASK, work);
}

#[derive(Clone, Copy)]
enum Place {
    /// In a register.
    Register(usize),
    /// In the operand's memory, at the position of the output.
    Operand(usize),
}

/// Destinations of the lines' values; registers are reused after a line's last reader.
struct Code {
    place: [Place; REGISTERS],
    registers: usize,
}

impl Code {
    fn new<T>(expression: &Expression, operands: &[&[T]; 8]) -> Self {
        let lines = expression.code.len();
        let mut last = [0usize; REGISTERS];
        for (i, line) in expression.code.iter().enumerate() {
            match *line {
                Line::Load(_) => {}
                Line::Unary(_, a) => last[a] = i,
                Line::Binary(_, a, b) => (last[a], last[b]) = (i, i),
            }
        }
        last[lines - 1] = lines;
        let mut place = [Place::Register(0); REGISTERS];
        let mut busy = [false; REGISTERS];
        let mut registers = 0;
        for (i, line) in expression.code.iter().enumerate() {
            if let Line::Load(operand) = *line
                && i + 1 < lines
                && dense(expression, &expression.views[operand])
                && !operands[operand].is_empty()
            {
                place[i] = Place::Operand(operand);
                continue;
            }
            // A line must not overwrite its operands, so they are released only after it.
            let free = busy.iter().position(|&busy| !busy).expect("there are more registers than lines");
            (place[i], busy[free]) = (Place::Register(free), true);
            registers = registers.max(free + 1);
            for earlier in 0..i {
                if let Place::Register(register) = place[earlier]
                    && last[earlier] == i
                {
                    busy[register] = false;
                }
            }
        }
        Self { place, registers }
    }
}

vectorized! {
fn block_loop<T>(
    expression: &Expression,
    code: &Code,
    operands: &[&[T]; 8],
    start: usize,
    output: &mut [T],
    file: &mut [[T; BLOCK]],
) {
    let last = expression.code.len() - 1;
    let mut done = 0;
    while done < output.len() {
        let count = BLOCK.min(output.len() - done);
        for (i, line) in expression.code.iter().enumerate() {
            let Place::Register(register) = code.place[i] else { continue };
            // The register is split off while it is written, so that the others can be read.
            let (before, rest) = file.split_at_mut(register);
            let (to, after) = rest.split_first_mut().expect("every line's register is in the file");
            let value = |line: usize| match code.place[line] {
                Place::Register(from) if from < register => &before[from][..count],
                Place::Register(from) => &after[from - register - 1][..count],
                Place::Operand(operand) => {
                    &operands[operand][expression.views[operand].offset + start + done..][..count]
                }
            };
            let block = done..done + count;
            if let Line::Load(operand) = *line
                && operands[operand].is_empty()
            {
                to[..count].copy_from_slice(&output[block]);
                continue;
            }
            let to = if i == last { &mut output[block] } else { &mut to[..count] };
            match *line {
                Line::Load(operand) => {
                    let view = &expression.views[operand];
                    load(operands[operand], view, expression.shape.axes(), start + done, to);
                }
                Line::Unary(function, a) => unary(function, value(a), to),
                Line::Binary(function, a, b) => binary(function, value(a), value(b), to),
            }
        }
        done += count;
    }
}
}

/// Loads elements of the result's order from `start` on through a view.
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

/// Writes a function of each element of `x` to `y`, with the instructions of one level or of the processor's, if that
/// is lower.
#[doc(hidden)]
pub fn apply(level: Level, function: Unary, x: &[f32], y: &mut [f32]) {
    let most = Level::available().last().unwrap_or(Level::Plain);
    apply_at(level.min(most), function, x, y);
}

vectorized! {
@at level;
fn apply_at<T>(level: Level, function: Unary, x: &[T], y: &mut [T]) {
    let _ = level;
    unary(function, x, y);
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
