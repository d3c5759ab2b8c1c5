//! Fused pointwise expressions: one generated kernel each, with constant index arithmetic.

use std::fmt::Write as _;

use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, blocks};
use cfo_engine::Shape;
use cfo_engine::ops::{Binary, Expression, Line, Unary, View};

/// The operand whose memory the result may reuse: read whole, in order and in no other way.
pub(crate) fn in_place(expression: &Expression, same: impl Fn(usize, usize) -> bool) -> Option<usize> {
    let dense = expression.shape.strides();
    let whole = |view: &View| view.offset == 0 && view.strides == dense && !view.strides.is_empty();
    let position = expression.views.iter().position(whole)?;
    let alone =
        (0..expression.views.len()).all(|other| !same(position, other) || whole(&expression.views[other]));
    alone.then_some(position)
}

pub(crate) fn lower(expression: &Expression, io: &OpIo, to: &mut Lowering) {
    let half = io.inputs.iter().chain(&io.outputs).any(|value| value.scalar == Scalar::Bf16);
    let width = width(expression, half);
    let total = expression.shape.len() / width;
    let parameters = Parameters::new().reads_all("in", &io.inputs).writes("out", io.outputs[0]);
    to.launch(KernelFile::Prelude, parameters, body(expression, width, total), blocks(total));
}

/// Number of elements per thread: neighbours along the last axis that are contiguous or broadcast in every operand.
fn width(expression: &Expression, half: bool) -> usize {
    let last = expression.shape.last();
    let fits = |width: usize| {
        last.is_multiple_of(width)
            && expression.views.iter().all(|view| match view.strides.split_last() {
                None => false,
                Some((0, _)) => true,
                Some((1, outer)) => {
                    view.offset % width == 0 && outer.iter().all(|stride| stride % width == 0)
                }
                Some(_) => false,
            })
    };
    let widths: &[usize] = if half { &[8, 4, 2] } else { &[4, 2] };
    widths.iter().copied().find(|&width| fits(width)).unwrap_or(1)
}

/// The kernel: positions of the operands' elements, one load each, then all lines for each element.
fn body(expression: &Expression, width: usize, total: usize) -> String {
    let axes = expression.shape.axes();
    let integer = if total * width < 1 << 31 { "u32" } else { "u64" };
    let mut text = format!(
        "const {integer} at = ({integer})blockIdx.x * 256 + threadIdx.x;\nif (at >= {total}u) return;\n"
    );
    // Indices along the axes, from the last to the first.
    if expression.views.iter().any(|view| !dense(view, axes)) {
        let _ = writeln!(text, "{integer} rest = at;");
        for (axis, &length) in axes.iter().enumerate().rev() {
            let length = if axis + 1 == axes.len() { length / width } else { length };
            match axis {
                0 => writeln!(text, "const {integer} i0 = rest;"),
                _ => writeln!(text, "const {integer} i{axis} = rest % {length}u; rest /= {length}u;"),
            }
            .expect("writing to a string does not fail");
        }
    }
    for (operand, view) in expression.views.iter().enumerate() {
        let _ = writeln!(text, "float x{operand}[{width}];");
        let mut place = format!("{}u", view.offset);
        if dense(view, axes) {
            let _ = write!(place, " + at * {width}u");
        } else {
            for (axis, &stride) in view.strides.iter().enumerate().filter(|(_, stride)| **stride > 0) {
                let step = if axis + 1 == axes.len() { stride * width } else { stride };
                let _ = write!(place, " + i{axis} * {step}u");
            }
        }
        let broadcast = view.strides.last().copied().unwrap_or(0) == 0;
        let _ = match broadcast {
            true => writeln!(
                text,
                "{{ float value = real(in{operand}[{place}]);\n#pragma unroll\nfor (int i = 0; i < {width}; ++i) x{operand}[i] = value; }}"
            ),
            false => writeln!(text, "load<{width}>(in{operand} + ({place}), x{operand});"),
        };
    }
    let _ = writeln!(text, "float y[{width}];\n#pragma unroll\nfor (int i = 0; i < {width}; ++i) {{");
    for (line, instruction) in expression.code.iter().enumerate() {
        let _ = writeln!(text, "const float r{line} = {};", code(instruction));
    }
    let _ = writeln!(text, "y[i] = r{};\n}}", expression.code.len() - 1);
    let _ = write!(text, "store<{width}>(out + at * {width}u, y);");
    text
}

/// Code that writes `WIDTH` neighbours from `at` on to `value`, for an expression whose operands are all read in order.
pub(crate) fn at(expression: &Expression) -> String {
    let mut text = String::new();
    for operand in 0..expression.views.len() {
        let _ = writeln!(text, "float x{operand}[WIDTH];\nload<WIDTH>(in{operand} + at, x{operand});");
    }
    let _ = writeln!(text, "#pragma unroll\nfor (int i = 0; i < WIDTH; ++i) {{");
    for (line, instruction) in expression.code.iter().enumerate() {
        let _ = writeln!(text, "const float r{line} = {};", code(instruction));
    }
    let _ = write!(text, "value[i] = r{};\n}}", expression.code.len() - 1);
    text
}

/// Whether the operand is read in order from its first element.
fn dense(view: &View, axes: &[usize]) -> bool {
    view.offset == 0 && view.strides == Shape::from(axes).strides()
}

fn code(instruction: &Line) -> String {
    match *instruction {
        Line::Load(operand) => format!("x{operand}[i]"),
        Line::Unary(function, a) => unary(function, &format!("r{a}")),
        Line::Binary(function, a, b) => binary(function, a, b),
    }
}

/// A number as an exact C++ literal.
pub(crate) fn literal(value: f64) -> String {
    format!("__int_as_float(0x{:08x})", (value as f32).to_bits())
}

pub(crate) fn unary(function: Unary, x: &str) -> String {
    match function {
        Unary::Affine { scale, shift } => match (scale, shift) {
            (_, 0.0) => format!("{} * {x}", literal(scale)),
            (1.0, _) => format!("{x} + {}", literal(shift)),
            _ => format!("{} * {x} + {}", literal(scale), literal(shift)),
        },
        Unary::Reciprocal => format!("f_reciprocal({x})"),
        Unary::Square => format!("{x} * {x}"),
        Unary::Sqrt => format!("sqrtf({x})"),
        Unary::Exp => format!("f_exp({x})"),
        Unary::Log => format!("logf({x})"),
        Unary::Sin => format!("sinf({x})"),
        Unary::Cos => format!("cosf({x})"),
        Unary::Tanh => format!("tanhf({x})"),
        Unary::Sigmoid => format!("f_sigmoid({x})"),
        Unary::Abs => format!("fabsf({x})"),
        Unary::Relu => format!("f_relu({x})"),
        Unary::Silu => format!("f_silu({x})"),
        Unary::Gelu => format!("f_gelu({x})"),
        Unary::Step => format!("f_step({x})"),
        Unary::Sign => format!("f_sign({x})"),
        Unary::SiluSlope => format!("f_silu_slope({x})"),
        Unary::GeluSlope => format!("f_gelu_slope({x})"),
    }
}

fn binary(function: Binary, a: usize, b: usize) -> String {
    match function {
        Binary::Add => format!("r{a} + r{b}"),
        Binary::Subtract => format!("r{a} - r{b}"),
        Binary::Multiply => format!("r{a} * r{b}"),
        Binary::Divide => format!("f_divide(r{a}, r{b})"),
        Binary::Maximum => format!("f_larger(r{a}, r{b})"),
        Binary::Minimum => format!("f_smaller(r{a}, r{b})"),
        Binary::AtLeast => format!("r{a} >= r{b} ? 1.0f : 0.0f"),
        Binary::Mask => format!("r{b} != 0.0f ? r{a} : 0.0f"),
    }
}
