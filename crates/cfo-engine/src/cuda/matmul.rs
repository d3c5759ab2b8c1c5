//! Matrix products through cuBLASLt, with bias and activation on the way out where the library has them.
//!
//! The library thinks in columns. A product whose rows lie one after another is therefore handed over transposed:
//! `c' = b' a'`, where `'` means the same memory read by columns.

use super::expression;
use super::lower::{File, Io, Lowering, Work, blocks, vector};
use super::scalar::Scalar;
use crate::device::Precision;
use crate::ops::{Activation, MatMul, Operand};

/// One operand as the library sees it: `rows x columns`, stored by columns with the given distance between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Matrix {
    pub(super) address: u64,
    pub(super) scalar: Scalar,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) distance: usize,
    pub(super) batch_stride: usize,
    /// Whether the product takes its transpose.
    pub(super) transpose: bool,
}

/// What the library does to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Epilogue {
    None,
    Bias,
    Relu,
    ReluBias,
    Gelu,
    GeluBias,
}

/// One call of the library: `d = epilogue(a b)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Product {
    pub(super) precision: Precision,
    pub(super) batch: usize,
    pub(super) a: Matrix,
    pub(super) b: Matrix,
    pub(super) d: Matrix,
    pub(super) epilogue: Epilogue,
    pub(super) bias: u64,
    /// Where the value before the activation goes; 0 for nowhere.
    pub(super) kept: u64,
}

pub(super) fn lower(op: &MatMul, io: &Io, to: &mut Lowering) {
    if op.inner == 0 {
        return;
    }
    let (outer, inner_batch) = batches(op);
    let (mut fused, mut epilogue) = epilogue(op);
    if epilogue != Epilogue::None && !to.supports(&whole(op, io, to.precision, epilogue)) {
        (fused, epilogue) = (false, Epilogue::None);
    }
    // Without a fused activation the product goes where the activation reads it.
    let target = if op.keep_input && !fused { io.outputs[1] } else { io.outputs[0] };
    for step in 0..outer {
        let address =
            |value: u64, scalar: Scalar, stride: usize| value + (step * stride * scalar.bytes()) as u64;
        let [a, b, c] = [op.a, op.b, op.c].map(|operand| outer_stride(op, operand));
        let x = (address(io.inputs[0].address, io.inputs[0].scalar, a), io.inputs[0].scalar);
        let y = (address(io.inputs[1].address, io.inputs[1].scalar, b), io.inputs[1].scalar);
        let z = (address(target.address, target.scalar, c), target.scalar);
        let mut product = product(op, to.precision, (x, y, z), inner_batch);
        product.epilogue = epilogue;
        product.bias = if op.bias { io.inputs[2].address } else { 0 };
        product.kept = if fused && op.keep_input { io.outputs[1].address } else { 0 };
        to.append(Work::Product(product));
    }
    if !fused {
        finish(op, io, to);
    }
}

/// The fused product, to ask the library whether it can do it.
fn whole(op: &MatMul, io: &Io, precision: Precision, epilogue: Epilogue) -> Product {
    let at = |value: super::lower::Value| (value.address, value.scalar);
    let mut product =
        product(op, precision, (at(io.inputs[0]), at(io.inputs[1]), at(io.outputs[0])), batches(op).1);
    product.epilogue = epilogue;
    product.bias = if op.bias { io.inputs[2].address } else { 0 };
    product.kept = if op.keep_input { io.outputs[1].address } else { 0 };
    product
}

/// How often the library is called, and the matrices of one call.
fn batches(op: &MatMul) -> (usize, usize) {
    match op.batch {
        [p, 1] => (1, p),
        [p, q] if joined(op, q) => (1, p * q),
        [p, q] => (p, q),
    }
}

/// Whether both levels of the batch are one level of even strides.
fn joined(op: &MatMul, inner: usize) -> bool {
    [op.a, op.b, op.c].iter().all(|operand| operand.batch[0] == inner * operand.batch[1])
}

fn batch_stride(op: &MatMul, operand: Operand) -> usize {
    match op.batch {
        [_, 1] => operand.batch[0],
        _ => operand.batch[1],
    }
}

/// Distance between the calls, where there are several.
fn outer_stride(op: &MatMul, operand: Operand) -> usize {
    match op.batch {
        [_, 1] => 0,
        _ => operand.batch[0],
    }
}

/// What the library does on the way out, and whether that is all.
fn epilogue(op: &MatMul) -> (bool, Epilogue) {
    let aligned = op.columns.is_multiple_of(8) && op.c.column == 1 && op.c.row.is_multiple_of(8);
    match (op.activation, op.bias) {
        (Activation::Identity, false) => (true, Epilogue::None),
        (Activation::Identity, true) if aligned => (true, Epilogue::Bias),
        (Activation::Relu, bias) if aligned && !op.keep_input => {
            (true, if bias { Epilogue::ReluBias } else { Epilogue::Relu })
        }
        (Activation::Gelu, bias) if aligned && op.batch == [1, 1] => {
            (true, if bias { Epilogue::GeluBias } else { Epilogue::Gelu })
        }
        _ => (false, Epilogue::None),
    }
}

type Address = (u64, Scalar);

/// The library's view of a product; see the top of this file.
fn product(
    op: &MatMul,
    precision: Precision,
    (a, b, c): (Address, Address, Address),
    batch: usize,
) -> Product {
    let by_rows = op.c.column == 1;
    // A matrix of our kind, read by columns: itself if its rows are 1 apart, else its transpose.
    let matrix = |(address, scalar): Address, operand: Operand, rows: usize, columns: usize, wanted: bool| {
        let batch_stride = batch_stride(op, operand);
        let stored_by_rows = operand.column == 1 && !(operand.row == 1 && columns > 1);
        let (rows, columns, distance) = match stored_by_rows {
            true => (columns, rows, operand.row),
            false => (rows, columns, operand.column),
        };
        // `wanted`: whether the library should see the transpose of our matrix.
        let transpose = stored_by_rows != wanted;
        Matrix { address, scalar, rows, columns, distance: distance.max(rows), batch_stride, transpose }
    };
    let left = matrix(a, op.a, op.rows, op.inner, by_rows);
    let right = matrix(b, op.b, op.inner, op.columns, by_rows);
    let (rows, columns, distance) = match by_rows {
        true => (op.columns, op.rows, op.c.row),
        false => (op.rows, op.columns, op.c.column),
    };
    let d = Matrix {
        address: c.0,
        scalar: c.1,
        rows,
        columns,
        distance: distance.max(rows),
        batch_stride: batch_stride(op, op.c),
        transpose: false,
    };
    let (a, b) = if by_rows { (right, left) } else { (left, right) };
    Product { precision, batch, a, b, d, epilogue: Epilogue::None, bias: 0, kept: 0 }
}

/// Bias and activation that the library did not apply.
fn finish(op: &MatMul, io: &Io, to: &mut Lowering) {
    let from = if op.keep_input { io.outputs[1] } else { io.outputs[0] };
    let y = io.outputs[0];
    let width = vector(y.scalar == Scalar::Half, [op.columns, op.c.row]);
    let total = y.count / width;
    let bias = op.bias.then(|| io.inputs[2]);
    let mut parameters = format!("{0}* x, {0}* y", y.scalar.name());
    let mut arguments = vec![from.address.into(), y.address.into()];
    let mut add = String::new();
    if let Some(bias) = bias {
        parameters += &format!(", const {}* bias", bias.scalar.name());
        arguments.push(bias.address.into());
        add = format!(
            "float shift[{width}];\nload<{width}>(bias + (at % {}ull) * {width}u, shift);\n#pragma unroll\nfor (int i = 0; i < {width}; ++i) value[i] += shift[i];\n",
            op.columns / width
        );
        if op.keep_input {
            add += &format!("store<{width}>(x + at * {width}u, value);\n");
        }
    }
    let activate = op.activation.function().map_or_else(String::new, |function| {
        format!(
            "#pragma unroll\nfor (int i = 0; i < {width}; ++i) {{ const float v = value[i]; value[i] = {}; }}\n",
            expression::unary(function, "v")
        )
    });
    let body = format!(
        "const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
if (at >= {total}ull) return;
float value[{width}];
load<{width}>(x + at * {width}u, value);
{add}{activate}store<{width}>(y + at * {width}u, value);"
    );
    to.launch(File::Prelude, &parameters, body, blocks(total), arguments);
}
