//! Attention by kernels of our own: on tensor cores in bf16, else one thread a row.

use super::lower::{File, Io, Lowering};
use super::scalar::Scalar;
use crate::shape::Shape;

/// Threads a block.
const THREADS: u32 = 128;

/// Batch, tokens and width of a head.
fn sizes(heads: usize, qkv: &Shape) -> [usize; 3] {
    let [batch, tokens, width]: [usize; 3] =
        qkv.axes().try_into().expect("the graph checked that tokens have three axes");
    [batch, tokens, width / 3 / heads]
}

/// Rows that a block owns on tensor cores.
const ROWS: usize = 64;

/// How the rows are shared out: suffix of the kernels' names, their template arguments, rows a block.
fn way(heads: usize, [_, tokens, head]: [usize; 3], scalar: Scalar) -> (&'static str, String, usize) {
    match scalar == Scalar::Half && head % 16 == 0 && head <= 128 {
        true => ("_cores", format!("{tokens}u, {heads}u, {head}"), ROWS),
        false => {
            let numbers = format!("{}, {tokens}u, {heads}u, {head}, {THREADS}", scalar.name());
            ("", numbers, THREADS as usize)
        }
    }
}

/// Bytes of scratch memory of the backward operation: a number a query.
pub(super) fn scratch_backward(heads: usize, qkv: &Shape) -> usize {
    let [batch, tokens, _] = sizes(heads, qkv);
    4 * batch * heads * tokens
}

pub(super) fn lower(heads: usize, qkv: &Shape, io: &Io, to: &mut Lowering) {
    let [batch, tokens, head] = sizes(heads, qkv);
    let scalar = io.inputs[0].scalar.name();
    let scale = (1.0 / (head as f64).sqrt()) as f32;
    let (suffix, numbers, rows) = way(heads, [batch, tokens, head], io.inputs[0].scalar);
    let grid = [tokens.div_ceil(rows) as u32, (batch * heads) as u32, 1];
    let body = format!("attention{suffix}<{numbers}>(qkv, out, log_sum_exp, scale);");
    let parameters = format!("const {scalar}* qkv, {scalar}* out, float* log_sum_exp, float scale");
    let arguments = vec![
        io.inputs[0].address.into(),
        io.outputs[0].address.into(),
        io.outputs[1].address.into(),
        scale.to_bits().into(),
    ];
    to.launch_with(File::Attention, &parameters, body, (grid, THREADS, 0), arguments);
}

pub(super) fn lower_backward(heads: usize, qkv: &Shape, io: &Io, to: &mut Lowering) {
    let [batch, tokens, head] = sizes(heads, qkv);
    let scalar = io.inputs[0].scalar.name();
    let scale = (1.0 / (head as f64).sqrt()) as f32;
    let (suffix, numbers, rows) = way(heads, [batch, tokens, head], io.inputs[0].scalar);
    let grid = [tokens.div_ceil(rows) as u32, (batch * heads) as u32, 1];
    let [qkv, out, peaks, dout] = [0, 1, 2, 3].map(|index| io.inputs[index].address.into());
    let dqkv = io.outputs[0].address.into();
    to.launch_with(
        File::Attention,
        &format!(
            "const {scalar}* qkv, const {scalar}* out, const float* peaks, const {scalar}* dout, {scalar}* dqkv, float* inner, float scale"
        ),
        format!("attention_queries{suffix}<{numbers}>(qkv, out, peaks, dout, dqkv, inner, scale);"),
        (grid, THREADS, 0),
        vec![qkv, out, peaks, dout, dqkv, io.scratch.into(), scale.to_bits().into()],
    );
    to.launch_with(
        File::Attention,
        &format!("const {scalar}* qkv, const float* peaks, const {scalar}* dout, {scalar}* dqkv, const float* inner, float scale"),
        format!("attention_keys{suffix}<{numbers}>(qkv, peaks, dout, dqkv, inner, scale);"),
        (grid, THREADS, 0),
        vec![qkv, peaks, dout, dqkv, io.scratch.into(), scale.to_bits().into()],
    );
}
