//! Gradient norm, Adam, assignment, counters. Many tensors are processed in one launch over a table of pieces.

use crate::program::{KernelFile, Lowering, OpIo, Parameters, Scalar, Selected, Value, blocks};
use cfo_engine::ops::{Adam, Schedule};

/// Number of elements per block; `PIECE` in the kernels.
const PIECE: usize = 4096;

/// One row of a table of tensors, with the layout of `Slot` in the kernels.
#[derive(Clone, Copy, Default)]
struct Slot {
    parameter: u64,
    first: u64,
    second: u64,
    average: u64,
    gradient: u64,
    count: usize,
    half_gradient: bool,
}

/// Uploads slots and pieces; returns the parameters for them and the number of blocks.
fn tables(slots: &[Slot], to: &mut Lowering) -> (Parameters, usize) {
    let mut rows = Vec::new();
    let mut pieces = Vec::new();
    for (tensor, slot) in slots.iter().enumerate() {
        let words = [slot.parameter, slot.first, slot.second, slot.average, slot.gradient];
        let rest = [slot.count as u64, u64::from(slot.half_gradient)];
        rows.extend(words.iter().chain(&rest).flat_map(|word| word.to_le_bytes()));
        for first in (0..slot.count).step_by(PIECE) {
            pieces.extend([tensor as u64, first as u64].iter().flat_map(|word| word.to_le_bytes()));
        }
    }
    let blocks = pieces.len() / 16;
    let (rows, pieces) = (to.table(rows), to.table(pieces));
    (Parameters::new().with("const Slot*", "slots", rows).with("const Piece*", "pieces", pieces), blocks)
}

fn gradient(value: Value) -> Slot {
    let half_gradient = value.scalar == Scalar::Bf16;
    Slot { gradient: value.address, count: value.count, half_gradient, ..Slot::default() }
}

/// Selects the norm of values of the given lengths, with scratch memory for the sum of each piece.
pub(crate) fn select_norm(lengths: impl Iterator<Item = usize>) -> Selected<'static> {
    Selected::new(4 * lengths.map(|length| length.div_ceil(PIECE)).sum::<usize>(), global_norm)
}

fn global_norm(io: &OpIo, to: &mut Lowering) {
    let slots: Vec<Slot> = io.inputs.iter().map(|&value| gradient(value)).collect();
    let (parameters, blocks) = tables(&slots, to);
    let body = "global_norm(slots, pieces, blocks, y, partial, ticket);".to_owned();
    let ticket = to.ticket(1);
    let parameters = parameters
        .u32("blocks", blocks as u32)
        .writes("y", io.outputs[0])
        .scratch("partial", io.scratch)
        .tickets("ticket", ticket);
    to.launch(KernelFile::Optimizer, parameters, body, [blocks as u32, 1, 1]);
}

/// Appends one step of Adam; `advances`: whether the counter is incremented too.
pub(crate) fn adam(op: &Adam, advances: bool, io: &OpIo, to: &mut Lowering) {
    let config = &op.config;
    let slots: Vec<Slot> = io.inputs[op.leading()..]
        .chunks(op.stride())
        .map(|group| Slot {
            parameter: group[0].address,
            first: group[1].address,
            second: group[2].address,
            average: config.ema.map_or(0, |_| group[3].address),
            ..gradient(group[op.stride() - 1])
        })
        .collect();
    if slots.is_empty() {
        if advances {
            advance(io, to);
        }
        return;
    }
    let (parameters, blocks) = tables(&slots, to);
    let (schedule, warmup, total, floor) = match config.schedule {
        Schedule::Constant => (0u64, 0, 0, 0.0),
        Schedule::Cosine { warmup, total, floor } => (1, warmup, total, floor),
        Schedule::WarmUp(warmup) => (2, warmup, 0, 0.0),
    };
    let numbers = [
        config.learning_rate,
        config.betas[0],
        config.betas[1],
        config.epsilon,
        config.weight_decay,
        config.clip.unwrap_or(0.0),
        config.ema.unwrap_or(0.0),
        f64::from(warmup),
        f64::from(total),
        floor,
    ];
    let mut settings: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    settings.extend(schedule.to_le_bytes());
    let settings = to.table(settings);
    let body = format!(
        "adam<{}, {}, {advances}>(slots, pieces, settings, counter, norm, blocks, ticket);",
        config.clip.is_some(),
        config.ema.is_some()
    );
    let ticket = to.ticket(1);
    let parameters = parameters
        .with("const Settings*", "settings", settings)
        .writes("counter", io.inputs[0])
        .reads("norm", config.clip.map(|_| io.inputs[1]))
        .u32("blocks", blocks as u32)
        .tickets("ticket", ticket);
    to.launch(KernelFile::Optimizer, parameters, body, [blocks as u32, 1, 1]);
}

/// Appends the rounding of single-precision tensors to bf16 copies: `(from, to, count)`.
pub(crate) fn round_copies(copies: &[(u64, u64, usize)], to: &mut Lowering) {
    let slots: Vec<Slot> = copies
        .iter()
        .map(|&(from, copy, count)| Slot { parameter: from, first: copy, count, ..Slot::default() })
        .collect();
    let (parameters, blocks) = tables(&slots, to);
    if blocks == 0 {
        return;
    }
    let body = "round_copies(slots, pieces);".to_owned();
    to.launch(KernelFile::Optimizer, parameters, body, [blocks as u32, 1, 1]);
}

pub(crate) fn assign(io: &OpIo, to: &mut Lowering) {
    let (target, value) = (io.inputs[0], io.inputs[1]);
    let convert = match target.scalar {
        Scalar::F32 => "real(x[at])",
        _ => "x[at]",
    };
    let body = format!(
        "const u64 at = (u64)blockIdx.x * 256 + threadIdx.x;\nif (at < {}ull) y[at] = {convert};",
        target.count
    );
    let parameters = Parameters::new().writes("y", target).reads("x", value);
    to.launch(KernelFile::Prelude, parameters, body, blocks(target.count));
}

pub(crate) fn advance(io: &OpIo, to: &mut Lowering) {
    let body = "if (threadIdx.x == 0) *counter += 1u;".to_owned();
    to.launch(KernelFile::Prelude, Parameters::new().writes("counter", io.inputs[0]), body, [1, 1, 1]);
}
