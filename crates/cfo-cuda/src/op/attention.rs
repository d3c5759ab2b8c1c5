//! Attention by our own kernels: in bf16 on tensor cores, whole heads where they fit; otherwise a thread per row.

use crate::program::{Gpu, KernelFile, Lowering, OpIo, Parameters, Scalar, Selected};
use cfo_engine::Shape;

/// Number of threads per block, except with whole heads in shared memory.
const THREADS: u32 = 128;

/// Batch, tokens and width of a head.
fn sizes(heads: usize, qkv: &Shape) -> [usize; 3] {
    let [batch, tokens, width]: [usize; 3] =
        qkv.axes().try_into().expect("the graph checked that tokens have three axes");
    [batch, tokens, width / 3 / heads]
}

const ROWS: usize = 64;

/// Division of the rows: kernels' file, suffix of their names, their template arguments, rows per block.
fn rows_shared(
    heads: usize,
    [_, tokens, head]: [usize; 3],
    scalar: Scalar,
) -> (KernelFile, &'static str, String, usize) {
    match scalar == Scalar::Bf16 && head % 16 == 0 && head <= 128 {
        true => (KernelFile::AttentionTiles, "_tiles", format!("{tokens}u, {heads}u, {head}"), ROWS),
        false => {
            let numbers = format!("{}, {tokens}u, {heads}u, {head}, {THREADS}", scalar.name());
            (KernelFile::Attention, "", numbers, THREADS as usize)
        }
    }
}

/// Parameters for heads in shared memory: a block has a thread for each token and a warp for 32 tokens.
struct WholeHeads {
    /// Threads and bytes of shared memory of the forward pass.
    forward: (u32, u32),
    /// Threads and bytes of shared memory of the backward pass, and number of queries processed at a time.
    backward: (u32, u32),
    step: usize,
}

impl WholeHeads {
    /// Maximum number of tokens and width of a head for which a thread has enough registers.
    const MOST: [usize; 2] = [256, 64];
    /// Number of threads for which a multiprocessor has enough registers: half of 255 each in the forward pass.
    const RESIDENT: [u32; 2] = [512, 256];

    fn of([_, tokens, head]: [usize; 3], scalar: Scalar, shared: u32) -> Option<Self> {
        if scalar != Scalar::Bf16 || head % 16 != 0 || tokens > Self::MOST[0] || head > Self::MOST[1] {
            return None;
        }
        let rows = tokens.next_multiple_of(32);
        let forward = (rows as u32, (3 * 2 * rows * head) as u32);
        [64, 32].into_iter().find_map(|step| {
            let rows = tokens.next_multiple_of(step);
            // Queries, cotangents, values, results, keys of two heads; two steps of scores; two numbers per row.
            let backward = (rows as u32, (2 * rows * (6 * head + 2 * step + 4)) as u32);
            (backward.1.max(forward.1) <= shared).then_some(Self { forward, backward, step })
        })
    }
}

/// Selects the backward operation: whole heads in shared memory, or with scratch memory for a number per query.
pub(crate) fn select_backward(heads: usize, qkv: &Shape, scalar: Scalar, target: Gpu) -> Selected<'static> {
    let all @ [batch, tokens, _] = sizes(heads, qkv);
    match WholeHeads::of(all, scalar, target.shared) {
        Some(whole) => Selected::new(0, move |io, to| lower_whole_backward(heads, all, &whole, io, to)),
        None => {
            let scratch = 4 * batch * heads * tokens;
            Selected::new(scratch, move |io, to| lower_backward(heads, all, io, to))
        }
    }
}

pub(crate) fn lower(heads: usize, qkv: &Shape, io: &OpIo, to: &mut Lowering) {
    let all @ [batch, tokens, head] = sizes(heads, qkv);
    let scalar = io.inputs[0].scalar;
    let scale = (1.0 / (head as f64).sqrt()) as f32;
    let parameters = Parameters::new()
        .reads("qkv", io.inputs[0])
        .writes("out", io.outputs[0])
        .writes("log_sum_exp", io.outputs[1])
        .f32("scale", scale);
    if let Some(whole) = WholeHeads::of(all, scalar, to.target.shared) {
        let body = format!("attention_heads<{tokens}u, {heads}u, {head}>(qkv, out, log_sum_exp, scale);");
        let (threads, shared) = whole.forward;
        let (shape, resident) =
            (([(batch * heads) as u32, 1, 1], threads, shared), WholeHeads::RESIDENT[0] / threads);
        to.launch_resident(KernelFile::AttentionHeads, parameters, body, shape, resident);
        return;
    }
    let (file, suffix, numbers, rows) = rows_shared(heads, all, scalar);
    let grid = [tokens.div_ceil(rows) as u32, (batch * heads) as u32, 1];
    let body = format!("attention{suffix}<{numbers}>(qkv, out, log_sum_exp, scale);");
    to.launch_with(file, parameters, body, (grid, THREADS, 0));
}

fn lower_backward(heads: usize, all: [usize; 3], io: &OpIo, to: &mut Lowering) {
    let [batch, tokens, head] = all;
    let scale = (1.0 / (head as f64).sqrt()) as f32;
    let (file, suffix, numbers, rows) = rows_shared(heads, all, io.inputs[0].scalar);
    let grid = [tokens.div_ceil(rows) as u32, (batch * heads) as u32, 1];
    let names = ["qkv", "out", "peaks", "dout"];
    let inputs = || names.into_iter().zip(io.inputs.iter().copied());
    let parameters = Parameters::new()
        .reads_each(inputs())
        .writes("dqkv", io.outputs[0])
        .scratch("inner", io.scratch)
        .f32("scale", scale);
    let body = format!("attention_queries{suffix}<{numbers}>(qkv, out, peaks, dout, dqkv, inner, scale);");
    to.launch_with(file, parameters, body, (grid, THREADS, 0));
    let parameters = Parameters::new()
        .reads_each(inputs().filter(|(name, _)| *name != "out"))
        .writes("dqkv", io.outputs[0])
        .with("const float*", "inner", io.scratch)
        .f32("scale", scale);
    let body = format!("attention_keys{suffix}<{numbers}>(qkv, peaks, dout, dqkv, inner, scale);");
    to.launch_with(file, parameters, body, (grid, THREADS, 0));
}

/// Appends a persistent kernel, whose blocks process one head after another.
fn lower_whole_backward(
    heads: usize,
    [batch, tokens, head]: [usize; 3],
    whole: &WholeHeads,
    io: &OpIo,
    to: &mut Lowering,
) {
    let scale = (1.0 / (head as f64).sqrt()) as f32;
    let units = (batch * heads) as u32;
    // The driver uses a kilobyte of each block's shared memory.
    let (threads, shared) = whole.backward;
    let resident =
        ((to.target.shared + 1024) / (shared + 1024)).min(WholeHeads::RESIDENT[1] / threads).max(1);
    let blocks = units.min(to.target.multiprocessors * resident);
    let parameters = Parameters::new()
        .reads_each(["qkv", "out", "peaks", "dout"].into_iter().zip(io.inputs.iter().copied()))
        .writes("dqkv", io.outputs[0])
        .f32("scale", scale)
        .u32("units", units);
    let body = format!(
        "attention_heads_backward<{tokens}u, {heads}u, {head}, {}u>(qkv, out, peaks, dout, dqkv, scale, units);",
        whole.step
    );
    to.launch_with(KernelFile::AttentionHeads, parameters, body, ([blocks, 1, 1], threads, shared));
}
