//! Group normalisation. Samples that one block can process take one launch. Larger ones take a launch for the
//! statistics and one to normalise, unless a [`GroupNormPlan`] can read them once.

use crate::norm::group_norm_plan::{self, GroupNormPlan};
use crate::program::instruction::GroupNormBackward;
use crate::program::{
    Argument, Gpu, KernelFile, Lowering, OpIo, Parameters, Scalar, Scalars, Selected, Value, vector,
};
use cfo_engine::Shape;
use cfo_engine::ops::{Activation, GroupNorm};

/// Division of samples; the template arguments of the kernels.
#[derive(Clone, Copy, Debug)]
struct Cut {
    batch: usize,
    positions: usize,
    channels: usize,
    groups: usize,
    width: usize,
    rows: usize,
    chunks: usize,
}

impl Cut {
    fn new(op: &GroupNorm, x: &Shape, half: bool, multiprocessors: u32) -> Self {
        let (batch, channels) = (x.axes()[0], x.last());
        let positions = x.len() / (batch * channels).max(1);
        let width = vector(half, [channels]);
        let lanes = channels / width;
        let rows = (256 / lanes).clamp(1, positions.next_power_of_two());
        let chunks = Self::chunks(batch, positions, channels, multiprocessors);
        Self { batch, positions, channels, groups: op.groups, width, rows, chunks }
    }

    /// Number of blocks that share a sample: enough to occupy the device, but each with at least 16 Ki elements.
    fn chunks(batch: usize, positions: usize, channels: usize, multiprocessors: u32) -> usize {
        let wanted = (24 * multiprocessors as usize).div_ceil(batch.max(1));
        wanted.clamp(1, (positions * channels).div_ceil(1 << 14)).min(positions)
    }

    fn threads(&self) -> u32 {
        (self.rows * self.channels / self.width).next_multiple_of(32) as u32
    }

    fn numbers(&self) -> String {
        let Self { positions, channels, groups, width, rows, chunks, .. } = self;
        format!("{width}, {positions}u, {channels}u, {groups}u, {chunks}u, {rows}")
    }

    /// Numbers of scratch memory for the chunks' sums.
    fn sums(&self) -> usize {
        2 * self.batch * self.chunks * self.channels
    }

    fn grid(&self) -> [u32; 3] {
        [self.chunks as u32, self.batch as u32, 1]
    }
}

/// Whether the kernels support fields with this number of channels.
pub(crate) fn supported(x: &Shape) -> bool {
    x.last() <= 1024 && x.axes()[0] < 65_536
}

/// Algorithm of a norm: with its fields in shared memory, or in passes over chunks of them.
#[derive(Clone, Copy, Debug)]
struct Algorithm {
    kept: Option<GroupNormPlan>,
    cut: Cut,
}

/// Selects the forward operation, with scratch memory for the sums of chunks or of teams.
pub(crate) fn select<'a>(op: &'a GroupNorm, x: &'a Shape, scalars: &Scalars, target: Gpu) -> Selected<'a> {
    let pair = [scalars.inputs[0], scalars.outputs[0]];
    let cut = Cut::new(op, x, pair.contains(&Scalar::Bf16), target.multiprocessors);
    let kept = GroupNormPlan::of(op, x, (pair, 1), (target.multiprocessors, target.shared));
    let numbers = match kept {
        Some(GroupNormPlan::Cluster { .. }) => 0,
        Some(GroupNormPlan::Persistent { .. }) => {
            group_norm_plan::scratch(op, cut.channels, target.multiprocessors)
        }
        None => cut.sums(),
    };
    Selected::new(4 * numbers, move |io, to| lower(op, x, Algorithm { kept, cut }, io, to))
}

/// Selects the backward operation, with scratch memory for sums, coefficients and parts of the gradients.
pub(crate) fn select_backward<'a>(
    backward: &'a GroupNormBackward,
    x: &'a Shape,
    scalars: &Scalars,
    target: Gpu,
) -> Selected<'a> {
    let op = &backward.forward;
    let pair = [scalars.inputs[0], scalars.inputs[backward.cotangent()]];
    let half = pair.contains(&Scalar::Bf16) || scalars.outputs[0] == Scalar::Bf16;
    let cut = Cut::new(op, x, half, target.multiprocessors);
    let kept = GroupNormPlan::of(op, x, (pair, 2), (target.multiprocessors, target.shared));
    let Cut { batch, groups, channels, .. } = cut;
    let numbers = match kept {
        Some(GroupNormPlan::Cluster { .. }) => 3 * batch * channels,
        Some(GroupNormPlan::Persistent { .. }) => {
            group_norm_plan::scratch(op, channels, target.multiprocessors)
        }
        None => 2 * cut.sums() + batch * (2 * groups + 3 * channels),
    };
    Selected::new(4 * numbers, move |io, to| lower_backward(backward, x, Algorithm { kept, cut }, io, to))
}

pub(crate) fn activation_number(activation: Activation) -> u32 {
    match activation {
        Activation::Identity => 0,
        Activation::Relu => 1,
        Activation::Silu => 2,
        Activation::Gelu => 3,
    }
}

fn lower(op: &GroupNorm, shape: &Shape, Algorithm { kept, cut }: Algorithm, io: &OpIo, to: &mut Lowering) {
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let offset = op.offset.then(|| io.inputs[3]);
    let shift = op.shift.then(|| io.inputs[3 + usize::from(op.offset)]);
    let shift_scalar = shift.map_or("float", |value| value.scalar.name());
    let tickets = tickets(kept, cut, to);
    let parameters = Parameters::new()
        .reads("x", x)
        .reads("scale", io.inputs[1])
        .reads("bias", io.inputs[2])
        .reads("offset", offset)
        .reads("shift", shift)
        .writes("y", y)
        .writes("mean", io.outputs[1])
        .writes("inverse", io.outputs[2])
        .f32("epsilon", op.epsilon as f32)
        .scratch("partial", io.scratch)
        .tickets("tickets", tickets);
    let scalars = format!("{}, {}, {shift_scalar}", x.scalar.name(), y.scalar.name());
    let flags = format!("{}, {}, {}", activation_number(op.activation), op.offset, op.shift);
    if let Some(kept) = kept {
        let (name, meeting) = match kept {
            GroupNormPlan::Cluster { .. } => ("norm_cluster", ""),
            GroupNormPlan::Persistent { .. } => ("norm_persistent", ", partial, tickets"),
        };
        let numbers = kept.numbers(op, shape);
        let body = format!(
            "{name}<{scalars}, {numbers}, {flags}>(x, scale, bias, offset, shift, y, mean, inverse, epsilon{meeting});"
        );
        return launch(kept, false, shape, (parameters, body), to);
    }
    let statistics = format!(
        "norm_statistics<{}, {}, {}>(x, offset, mean, inverse, epsilon, partial, tickets);\n",
        x.scalar.name(),
        cut.numbers(),
        op.offset
    );
    let apply = format!(
        "norm_apply<{scalars}, {}, {flags}>(x, scale, bias, offset, shift, y, mean, inverse);",
        cut.numbers()
    );
    passes(parameters, [statistics, apply], cut, to);
}

/// Counters for blocks that synchronise: two per sample for teams, and one to find the last of several chunks.
fn tickets(kept: Option<GroupNormPlan>, cut: Cut, to: &mut Lowering) -> Argument {
    let count = match kept {
        Some(GroupNormPlan::Persistent { .. }) => 2 * cut.batch,
        None if cut.chunks > 1 => cut.batch,
        _ => 0,
    };
    to.ticket(count)
}

/// Appends the single launch of blocks that keep their fields.
fn launch(
    kept: GroupNormPlan,
    backward: bool,
    x: &Shape,
    (parameters, body): (Parameters, String),
    to: &mut Lowering,
) {
    to.alone |= matches!(kept, GroupNormPlan::Persistent { .. });
    to.launch_clusters(kept.file(), parameters.restrict(), body, kept.shape(x), kept.residence(backward));
}

/// Appends one launch if a block processes a whole sample, otherwise two.
fn passes(parameters: Parameters, [first, second]: [String; 2], cut: Cut, to: &mut Lowering) {
    let shape = (cut.grid(), cut.threads(), 0);
    let parameters = parameters.restrict();
    if cut.chunks == 1 {
        to.launch_with(KernelFile::GroupNorm, parameters, first + &second, shape);
    } else {
        to.launch_with(KernelFile::GroupNorm, parameters.clone(), first, shape);
        to.launch_with(KernelFile::GroupNorm, parameters, second, shape);
    }
}

/// The call for blocks that keep their fields.
fn kept_backward(kept: GroupNormPlan, backward: &GroupNormBackward, x: &Shape, scalars: &str) -> String {
    let op = &backward.forward;
    let (name, turns, meeting) = match kept {
        // With 8 channels per thread the sums do not fit into its registers at once.
        GroupNormPlan::Cluster { .. } if scalars.contains("bf16") => ("norm_backward_cluster", ", 2", ""),
        GroupNormPlan::Cluster { .. } => ("norm_backward_cluster", ", 1", ""),
        GroupNormPlan::Persistent { .. } => ("norm_backward_persistent", "", ", coefficients, tickets"),
    };
    format!(
        "{name}<{scalars}, {}, {}, {}, {}, {}{turns}>(x, scale, bias, mean, inverse, offset, dy, shift, dx, dshift, again, \
         totals{meeting});",
        kept.numbers(op, x),
        activation_number(op.activation),
        op.offset,
        op.shift,
        backward.again
    )
}

/// The calls for the sums and for the result.
fn backward_passes(backward: &GroupNormBackward, scalars: &str, cut: Cut) -> [String; 2] {
    let op = &backward.forward;
    let numbers =
        format!("{}, {}, {}, {}", cut.numbers(), activation_number(op.activation), op.offset, op.shift);
    let sums = format!(
        "norm_backward_sums<{scalars}, {numbers}>(x, scale, bias, mean, inverse, offset, dy, dshift, coefficients, totals, \
         partial, tickets);\n"
    );
    let apply = format!(
        "norm_backward_apply<{scalars}, {numbers}, {}>(x, scale, bias, mean, inverse, offset, dy, shift, dx, again, coefficients);",
        backward.again
    );
    [sums, apply]
}

fn lower_backward(
    backward: &GroupNormBackward,
    shape: &Shape,
    Algorithm { kept, cut }: Algorithm,
    io: &OpIo,
    to: &mut Lowering,
) {
    let op = &backward.forward;
    let (x, dy, dx) = (io.inputs[0], io.inputs[backward.cotangent()], io.outputs[0]);
    let again = backward.result().map(|output| io.outputs[output]);
    let shift = again.filter(|_| op.shift).map(|_| io.inputs[backward.cotangent() + 1]);
    let offset = op.offset.then(|| io.inputs[5]);
    let dshift = op.shift.then(|| io.outputs[3 + usize::from(op.offset)]);
    let name = |value: Option<Value>| value.map_or("float", |value| value.scalar.name());
    let (dshift_scalar, shift_scalar, again_scalar) = (name(dshift), name(shift), name(again));
    let tickets = tickets(kept, cut, to);
    let parts = kept.map_or(cut.batch, |kept| kept.parts(shape));
    let totals = io.scratch;
    let coefficients = totals + (4 * parts * 3 * cut.channels) as u64;
    let partial = coefficients + (4 * cut.batch * 2 * cut.groups) as u64;
    let parameters = Parameters::new()
        .reads_each(["x", "scale", "bias", "mean", "inverse"].into_iter().zip(io.inputs.iter().copied()))
        .reads("offset", offset)
        .reads("dy", dy)
        .reads("shift", shift)
        .writes("dx", dx)
        .writes("dshift", dshift)
        .writes("again", again)
        .scratch("totals", totals)
        .scratch("coefficients", coefficients)
        .scratch("partial", partial)
        .tickets("tickets", tickets);
    let fields = format!("{}, {}, {}", x.scalar.name(), dy.scalar.name(), dx.scalar.name());
    let scalars = format!("{fields}, {shift_scalar}, {dshift_scalar}, {again_scalar}");
    match kept {
        Some(kept) => {
            let body = kept_backward(kept, backward, shape, &scalars);
            launch(kept, true, shape, (parameters, body), to);
        }
        None => passes(parameters, backward_passes(backward, &scalars, cut), cut, to),
    }
    let body =
        format!("norm_totals<{parts}u, {}u, {}>(totals, dscale, dbias, doffset);", cut.channels, op.offset);
    let parameters = Parameters::new()
        .with("const float*", "totals", totals)
        .writes("dscale", io.outputs[1])
        .writes("dbias", io.outputs[2])
        .writes("doffset", op.offset.then(|| io.outputs[3]));
    to.launch(KernelFile::GroupNorm, parameters, body, [(3 * cut.channels).div_ceil(32) as u32, 1, 1]);
}
