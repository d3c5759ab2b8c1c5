//! Concatenation, embedding and gathering: one pass over the result.

use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, Value, blocks, vector};
use cfo_engine::Shape;
use cfo_engine::ops::Embed;

fn any_half(io: &OpIo) -> bool {
    io.inputs.iter().chain(&io.outputs).any(|value| value.scalar == Scalar::Bf16)
}

/// Appends a launch whose body is run for each `at` below `total`.
fn launch(total: usize, parameters: Parameters, body: &str, to: &mut Lowering) {
    let index = "const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;";
    let body = format!("{index}\nif (at >= {total}ull) return;\n{body}");
    to.launch(KernelFile::Prelude, parameters, body, blocks(total));
}

pub(crate) fn embed(op: &Embed, input: &Shape, io: &OpIo, to: &mut Lowering) {
    let inner: usize = input.axes()[op.axis + 1..].iter().product();
    let (width, whole, start) = (input.axes()[op.axis] * inner, op.whole * inner, op.start * inner);
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let v = vector(any_half(io), [width, whole, start]);
    let total = y.count / v;
    let body = format!(
        "const u64 row = at / {packs}u;
const u32 column = (u32)(at % {packs}u) * {v}u;
float value[{v}] = {{}};
if (column >= {start}u && column < {end}u) load<{v}>(x + row * {width}u + column - {start}u, value);
store<{v}>(y + at * {v}u, value);",
        packs = whole / v,
        end = start + width,
    );
    launch(total, Parameters::new().reads("x", x).writes("y", y), &body, to);
}

/// Code that concatenates `v` numbers of values, from number `at v` on, into `value`. The values are `x0`, `x1`, ...
/// with rows of the given widths; a row of numbers is added to those that are `biased`.
pub(crate) fn side_by_side(widths: &[usize], biased: &[bool], v: usize) -> String {
    let whole: usize = widths.iter().sum();
    let mut body = format!(
        "const u64 row = at / {packs}u;\nconst u32 column = (u32)(at % {packs}u) * {v}u;\n",
        packs = whole / v
    );
    let (mut start, mut bias) = (0, widths.len());
    for (i, width) in widths.iter().enumerate() {
        let end = start + width;
        let mut read = format!("load<{v}>(x{i} + row * {width}u + column - {start}u, value);\n");
        if biased.get(i) == Some(&true) {
            read += &format!("float plus[{v}];\nload<{v}>(x{bias} + column - {start}u, plus);\n");
            read += &format!("#pragma unroll\nfor (int i = 0; i < {v}; ++i) value[i] += plus[i];\n");
            bias += 1;
        }
        body += &match i + 1 == widths.len() {
            true => format!("{{\n{read}}}\n"),
            false => format!("if (column < {end}u) {{\n{read}}} else "),
        };
        start = end;
    }
    body
}

/// Concatenates values with rows of the given widths; a row of numbers is added to those that are `biased`.
pub(crate) fn concat(widths: &[usize], biased: &[bool], io: &OpIo, to: &mut Lowering) {
    let y = io.outputs[0];
    let v = vector(any_half(io), widths.to_vec());
    let total = y.count / v;
    let body = format!(
        "float value[{v}];
{}store<{v}>(y + at * {v}u, value);",
        side_by_side(widths, biased, v)
    );
    launch(total, Parameters::new().reads_all("x", &io.inputs).writes("y", y), &body, to);
}

/// Rows of a table by index; an index past the end gives the last row.
pub(crate) fn gather(table: &Shape, io: &OpIo, to: &mut Lowering) {
    let rows = table.axes()[0];
    let size = table.len() / rows.max(1);
    let (x, y) = (io.inputs[0], io.outputs[0]);
    if size == 0 || rows == 0 {
        return;
    }
    let v = vector(any_half(io), [size]);
    let total = y.count / v;
    let body = format!(
        "const u64 row = min(index[at / {packs}u], {last}u);
float value[{v}];
load<{v}>(x + row * {size}u + (at % {packs}u) * {v}u, value);
store<{v}>(y + at * {v}u, value);",
        packs = size / v,
        last = rows - 1,
    );
    let parameters = Parameters::new().reads("x", x).reads("index", io.inputs[1]).writes("y", y);
    launch(total, parameters, &body, to);
}

/// Copies the first input to the first output, unless they share memory.
pub(crate) fn copy_value(x: Value, y: Value, to: &mut Lowering) {
    if x.address == y.address || y.count == 0 {
        return;
    }
    let v = vector([x, y].iter().any(|value| value.scalar.bytes() == 2), [y.count]);
    let total = y.count / v;
    let body = format!(
        "float value[{v}];
load<{v}>(x + at * {v}u, value);
store<{v}>(y + at * {v}u, value);"
    );
    launch(total, Parameters::new().reads("x", x).writes("y", y), &body, to);
}
