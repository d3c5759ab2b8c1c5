//! Matrix products by cuBLASLt, with bias and activation in the epilogue where the library has one.
//!
//! cuBLASLt is column-major: a row-major product is computed as `c' = b' a'`, where `'` is the memory read by columns.

use crate::op::{expression, reduce};
use crate::product::gemm_gelu_sm90::GeluProduct;
use crate::product::gemm_split_tf32::SplitProduct;
use crate::product::gemm_thin::ThinProduct;
use crate::program::instruction::{Extras, MatMul, Sum};
use crate::program::{
    Gpu, GpuWork, KernelFile, Lowering, OpIo, Parameters, Scalar, Scalars, Selected, Value, blocks, vector,
};
use cfo_engine::ops::{self, Activation, Operand, Unary};
use cfo_engine::{Precision, Shape};

/// An operand of the library: `rows x columns`, stored by columns at the given distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Matrix {
    pub(crate) address: u64,
    pub(crate) scalar: Scalar,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) distance: usize,
    pub(crate) batch_stride: usize,
    pub(crate) transpose: bool,
}

/// The library's epilogue: its operation on the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Epilogue {
    None,
    Bias,
    Relu,
    ReluBias,
    Gelu,
    GeluBias,
    /// Multiplication by the derivative of GELU at `kept`.
    GeluSlope,
    /// The sums over the rows of the second factor are written to `bias`.
    Sums,
}

/// One call of the library: `d = epilogue(a b + added)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    pub(crate) precision: Precision,
    pub(crate) batch: usize,
    pub(crate) a: Matrix,
    pub(crate) b: Matrix,
    pub(crate) d: Matrix,
    pub(crate) epilogue: Epilogue,
    pub(crate) bias: u64,
    /// Address of the value before the activation: written or, for a derivative, read; 0 for none.
    pub(crate) kept: u64,
    /// Address of an added value with the layout of the result; 0 for none.
    pub(crate) added: u64,
}

/// The values (or types) of a product besides its factors and itself, in the order of the operation.
pub(crate) struct Extra<T = Value> {
    pub(crate) bias: Option<T>,
    pub(crate) add: Option<T>,
    pub(crate) slope: Option<T>,
    pub(crate) kept: Option<T>,
    pub(crate) sums: Option<T>,
    pub(crate) totals: Option<T>,
}

impl<T: Copy> Extra<T> {
    pub(crate) fn of(op: &MatMul, inputs: &[T], outputs: &[T]) -> Self {
        let (mut inputs, mut outputs) = (inputs[2..].iter(), outputs[1..].iter());
        let mut input = |there: bool| there.then(|| *inputs.next().expect("an input for each extra"));
        let mut output = |there: bool| there.then(|| *outputs.next().expect("an output for each extra"));
        Self {
            bias: input(op.bias),
            add: input(op.extras.add),
            slope: input(op.extras.slope.is_some()),
            kept: output(op.keep_input),
            sums: output(op.extras.sums),
            totals: output(op.extras.totals),
        }
    }
}

enum Algorithm {
    /// One side is short.
    Thin(ThinProduct),
    /// Long, in bf16, followed by GELU or its derivative.
    GeluSm90(GeluProduct),
    SplitTf32(SplitProduct),
    /// By the library, with one of our kernels for the missing part of its epilogue.
    Library,
}

impl Algorithm {
    fn of(op: &MatMul, scalars: &Scalars, has_scratch: bool, target: Gpu) -> Self {
        let thin = || ThinProduct::of(op, scalars, has_scratch, target.multiprocessors).map(Self::Thin);
        let gelu = || GeluProduct::of(op, scalars, target).map(Self::GeluSm90);
        let split = || SplitProduct::of(op, scalars, has_scratch, target).map(Self::SplitTf32);
        thin().or_else(gelu).or_else(split).unwrap_or(Self::Library)
    }

    fn scratch(&self, op: &MatMul, target: Gpu) -> usize {
        let sum = |(sum, shape): (Sum, Shape)| reduce::select(&sum, &shape, target).scratch;
        let row_sums = || if op.extras.sums { sum(row_sum(op)) } else { 0 };
        match self {
            Self::Thin(product) => product.scratch(op).max(row_sums()),
            Self::GeluSm90(product) => product.scratch(op),
            Self::SplitTf32(product) => product.scratch(op),
            Self::Library => row_sums().max(if op.extras.totals { sum(total(op)) } else { 0 }),
        }
    }
}

/// Selects the algorithm of a product. Products that represent convolutions have no scratch memory of their own.
pub(crate) fn select<'a>(op: &'a MatMul, scalars: &Scalars, has_scratch: bool, target: Gpu) -> Selected<'a> {
    if op.inner == 0 {
        return Selected::new(0, |_, _| {});
    }
    let algorithm = Algorithm::of(op, scalars, has_scratch, target);
    Selected::new(algorithm.scratch(op, target), move |io, to| {
        let extra = Extra::of(op, &io.inputs, &io.outputs);
        match algorithm {
            Algorithm::Thin(product) => {
                product.lower(op, io, to);
                sum_rows(op, &extra, io, to);
            }
            Algorithm::GeluSm90(product) => product.lower(op, &extra, io, to),
            Algorithm::SplitTf32(product) => product.lower(op, &extra, io, to),
            Algorithm::Library => by_library(op, &extra, io, to),
        }
    })
}

fn by_library(op: &MatMul, extra: &Extra, io: &OpIo, to: &mut Lowering) {
    let (outer, inner_batch) = batches(op);
    let fused = fused(op, extra, io, to);
    let (epilogue, whole) = fused.map_or((Epilogue::None, false), |(epilogue, whole)| (epilogue, whole));
    // Without a fused activation the product is written where the activation reads it.
    let target = if whole { io.outputs[0] } else { extra.kept.unwrap_or(io.outputs[0]) };
    let added = extra.add.filter(|add| add.scalar == target.scalar);
    for step in 0..outer {
        let address =
            |value: u64, scalar: Scalar, stride: usize| value + (step * stride * scalar.bytes()) as u64;
        let [a, b, c] = [op.a, op.b, op.c].map(|operand| outer_stride(op, operand));
        let x = (address(io.inputs[0].address, io.inputs[0].scalar, a), io.inputs[0].scalar);
        let y = (address(io.inputs[1].address, io.inputs[1].scalar, b), io.inputs[1].scalar);
        let z = (address(target.address, target.scalar, c), target.scalar);
        let mut product = product(op, to.target.precision, (x, y, z), inner_batch);
        product.added = added.map_or(0, |add| add.address);
        finish_by_library(&mut product, epilogue, extra);
        to.append(GpuWork::Product(product));
    }
    if !whole {
        let added = extra.add.filter(|_| added.is_none());
        finish(op, extra, added, io, to);
    }
    if epilogue != Epilogue::Sums {
        sum_rows(op, extra, io, to);
    }
    if let Some(totals) = extra.totals {
        let (sum, shape) = total(op);
        let io = OpIo { inputs: vec![io.outputs[0]], outputs: vec![totals], scratch: io.scratch };
        reduce::select(&sum, &shape, to.target).lower(&io, to);
    }
}

fn finish_by_library(product: &mut Product, epilogue: Epilogue, extra: &Extra) {
    let address = |value: Option<Value>| value.map_or(0, |value| value.address);
    product.epilogue = epilogue;
    product.bias = match epilogue {
        Epilogue::Sums => address(extra.sums),
        Epilogue::None => 0,
        _ => address(extra.bias),
    };
    product.kept = match epilogue {
        Epilogue::GeluSlope => address(extra.slope),
        Epilogue::Gelu | Epilogue::GeluBias => address(extra.kept),
        _ => 0,
    };
}

/// The library's epilogue, and whether it is complete; `None` for no epilogue.
fn fused(op: &MatMul, extra: &Extra, io: &OpIo, to: &Lowering) -> Option<(Epilogue, bool)> {
    let (whole, epilogue) = epilogue(op);
    if epilogue == Epilogue::None {
        return whole.then_some((epilogue, extra.add.is_none_or(|add| add.scalar == io.outputs[0].scalar)));
    }
    let result = io.outputs[0];
    let alike = [extra.add, extra.slope].into_iter().flatten().all(|value| value.scalar == result.scalar);
    let sums_alike = extra.sums.is_none_or(|sums| sums.scalar == result.scalar);
    if !alike || !sums_alike || (epilogue == Epilogue::Sums && to.deterministic) {
        return (epilogue == Epilogue::Sums).then_some((Epilogue::None, true));
    }
    let at = |value: Value| (value.address, value.scalar);
    let mut plain =
        product(op, to.target.precision, (at(io.inputs[0]), at(io.inputs[1]), at(result)), batches(op).1);
    plain.added = extra.add.map_or(0, |add| add.address);
    let mut product = plain;
    finish_by_library(&mut product, epilogue, extra);
    // The bytes that a separate epilogue kernel reads and writes.
    let bytes = match epilogue {
        Epilogue::Sums => op.inner * op.columns * io.inputs[1].scalar.bytes(),
        _ => {
            result.count * result.scalar.bytes() * if op.keep_input || extra.slope.is_some() { 3 } else { 2 }
        }
    };
    let merged = op.extras != Extras::default();
    let possible = match merged {
        true => to.worthwhile(&product, &plain, bytes),
        false => to.supports(&product),
    };
    match (possible, epilogue) {
        (true, _) => Some((epilogue, true)),
        (false, Epilogue::Sums) => Some((Epilogue::None, true)),
        (false, _) => None,
    }
}

/// Number of library calls, and number of matrices per call.
pub(crate) fn batches(op: &MatMul) -> (usize, usize) {
    match op.batch {
        [p, 1] => (1, p),
        [p, q] if joined(op, q) => (1, p * q),
        [p, q] => (p, q),
    }
}

/// Whether both levels of the batch are one level with uniform strides.
fn joined(op: &MatMul, inner: usize) -> bool {
    [op.a, op.b, op.c].iter().all(|operand| operand.batch[0] == inner * operand.batch[1])
}

pub(crate) fn batch_stride(op: &MatMul, operand: Operand) -> usize {
    match op.batch {
        [_, 1] => operand.batch[0],
        _ => operand.batch[1],
    }
}

/// Distance between the calls, if there are several.
fn outer_stride(op: &MatMul, operand: Operand) -> usize {
    match op.batch {
        [_, 1] => 0,
        _ => operand.batch[0],
    }
}

/// The library's epilogue for a product: whether it is complete, and which one it is.
fn epilogue(op: &MatMul) -> (bool, Epilogue) {
    let aligned = op.columns.is_multiple_of(8) && op.c.column == 1 && op.c.row.is_multiple_of(8);
    if op.extras.sums {
        return (true, if aligned && op.rows.is_multiple_of(8) { Epilogue::Sums } else { Epilogue::None });
    }
    if op.extras.slope.is_some() {
        return (false, if aligned && !op.bias { Epilogue::GeluSlope } else { Epilogue::None });
    }
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

/// Sums over the rows of the second factor with our own kernel.
fn sum_rows(op: &MatMul, extra: &Extra, io: &OpIo, to: &mut Lowering) {
    if let Some(sums) = extra.sums {
        let (sum, shape) = row_sum(op);
        let io = OpIo { inputs: vec![io.inputs[1]], outputs: vec![sums], scratch: io.scratch };
        reduce::select(&sum, &shape, to.target).lower(&io, to);
    }
}

/// The sum over the rows of the second factor, and that factor's shape.
fn row_sum(op: &MatMul) -> (Sum, Shape) {
    (ops::Sum { axes: vec![0] }.into(), Shape::from([op.inner, op.columns]))
}

/// The sum over the rows of the result, and the result's shape.
fn total(op: &MatMul) -> (Sum, Shape) {
    (ops::Sum { axes: vec![0] }.into(), Shape::from([op.rows, op.columns]))
}

type Address = (u64, Scalar);

/// The library's view of a product; see the module's documentation.
fn product(
    op: &MatMul,
    precision: Precision,
    (a, b, c): (Address, Address, Address),
    batch: usize,
) -> Product {
    let by_rows = op.c.column == 1;
    // One of our matrices, read by columns: itself if its rows are at distance 1, otherwise its transpose.
    let matrix = |(address, scalar): Address, operand: Operand, rows: usize, columns: usize, wanted: bool| {
        let batch_stride = batch_stride(op, operand);
        let stored_by_rows = operand.column == 1 && !(operand.row == 1 && columns > 1);
        let (rows, columns, distance) = match stored_by_rows {
            true => (columns, rows, operand.row),
            false => (rows, columns, operand.column),
        };
        // `wanted`: whether the library should use the transpose of our matrix.
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
    Product { precision, batch, a, b, d, epilogue: Epilogue::None, bias: 0, kept: 0, added: 0 }
}

/// The part of the epilogue that the library did not execute; operands not in `added` have been added already.
fn finish(op: &MatMul, extra: &Extra, added: Option<Value>, io: &OpIo, to: &mut Lowering) {
    let function = op.activation.function();
    if extra.bias.is_none() && added.is_none() && function.is_none() && extra.slope.is_none() {
        return;
    }
    let (from, y) = (extra.kept.unwrap_or(io.outputs[0]), io.outputs[0]);
    let width = vector(y.scalar == Scalar::Bf16, [op.columns, op.c.row]);
    let total = y.count / width;
    let mut parameters =
        Parameters::new().with(&format!("{}*", y.scalar.name()), "x", from.address).writes("y", y);
    let each = |text: &str| format!("#pragma unroll\nfor (int i = 0; i < {width}; ++i) value[i] = {text};\n");
    // Reads another operand and combines it with the value.
    let mut further = |place: &str, operand: Value, text: &str| {
        let name = format!("operand{}", parameters.len());
        parameters = std::mem::take(&mut parameters).reads(&name, operand);
        let loaded = format!("float other[{width}];\nload<{width}>({name} + {place} * {width}u, other);\n");
        format!("{{\n{loaded}{}}}\n", each(text))
    };
    let mut steps = String::new();
    if let Some(bias) = extra.bias {
        let place = format!("(at % {}ull)", op.columns / width);
        steps += &further(&place, bias, "value[i] + other[i]");
    }
    if let Some(added) = added {
        steps += &further("at", added, "value[i] + other[i]");
    }
    if op.keep_input && !steps.is_empty() {
        steps += &format!("store<{width}>(x + at * {width}u, value);\n");
    }
    if let Some(slope) = extra.slope {
        let text = format!("value[i] * {}", expression::unary(Unary::GeluSlope, "other[i]"));
        steps += &further("at", slope, &text);
    }
    if let Some(function) = function {
        steps += &each(&expression::unary(function, "value[i]"));
    }
    let body = format!(
        "const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;
if (at >= {total}ull) return;
float value[{width}];
load<{width}>(x + at * {width}u, value);
{steps}store<{width}>(y + at * {width}u, value);"
    );
    to.launch(KernelFile::Prelude, parameters, body, blocks(total));
}
