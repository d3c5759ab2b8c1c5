//! Sums over axes: columns, rows, or anything by one thread an output.

use super::lower::{File, Io, Lowering, blocks, vector};
use super::scalar::Scalar;
use crate::ops::Sum;
use crate::shape::Shape;

/// How a sum is done. `chunks` blocks share one output.
#[derive(Clone, Debug, PartialEq)]
enum Way {
    Columns { outer: usize, reduced: usize, kept: usize, lanes: usize, chunks: usize },
    Rows { kept: usize, reduced: usize, chunks: usize },
    ShortRows { kept: usize, reduced: usize },
    General(Vec<(bool, usize)>),
}

/// The columns that a row of lanes covers, whatever the element: so that scratch does not depend on it.
const COLUMNS: usize = 32;

impl Way {
    fn of(op: &Sum, input: &Shape, multiprocessors: u32) -> Self {
        let wanted = 2 * multiprocessors as usize;
        let rows = |kept: usize, reduced: usize| match reduced <= 256 {
            true => Self::ShortRows { kept, reduced },
            false => {
                let chunks = (wanted / kept.max(1)).clamp(1, reduced.div_ceil(4096).max(1));
                Self::Rows { kept, reduced, chunks }
            }
        };
        let columns = |outer: usize, reduced: usize, kept: usize| {
            let lanes = kept.next_power_of_two().min(COLUMNS);
            let groups = outer * kept.div_ceil(lanes);
            let chunks = (wanted / groups).clamp(1, reduced.div_ceil(8 * 256 / lanes).max(1));
            Self::Columns { outer, reduced, kept, lanes, chunks }
        };
        match groups(op, input)[..] {
            [(true, reduced)] => rows(1, reduced),
            [(false, kept), (true, reduced)] => rows(kept, reduced),
            [(true, reduced), (false, kept)] => columns(1, reduced, kept),
            [(false, outer), (true, reduced), (false, kept)] if outer < 65_536 => {
                columns(outer, reduced, kept)
            }
            ref groups => Self::General(groups.to_vec()),
        }
    }
}

/// Axes merged into alternating groups of (reduced?, length); there is at least one.
fn groups(op: &Sum, input: &Shape) -> Vec<(bool, usize)> {
    let mut groups: Vec<(bool, usize)> = Vec::new();
    for (axis, &length) in input.axes().iter().enumerate().filter(|(_, length)| **length != 1) {
        let reduced = op.axes.contains(&axis);
        match groups.last_mut() {
            Some((same, total)) if *same == reduced => *total *= length,
            _ => groups.push((reduced, length)),
        }
    }
    if groups.is_empty() { vec![(true, 1)] } else { groups }
}

/// Bytes of scratch memory: partial sums in single precision.
pub(super) fn scratch(op: &Sum, input: &Shape, multiprocessors: u32) -> usize {
    match Way::of(op, input, multiprocessors) {
        Way::Columns { outer, kept, chunks, .. } if chunks > 1 => 4 * outer * kept * chunks,
        Way::Rows { kept, chunks, .. } if chunks > 1 => 4 * kept * chunks,
        _ => 0,
    }
}

pub(super) fn lower(op: &Sum, input: &Shape, io: &Io, to: &mut Lowering) {
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Half;
    let types = format!("{}, {}", x.scalar.name(), y.scalar.name());
    let parameters =
        format!("const {}* x, {}* y, float* partial, u32* tickets", x.scalar.name(), y.scalar.name());
    match Way::of(op, input, to.multiprocessors) {
        Way::Columns { outer, reduced, kept, lanes, chunks } => {
            let mut width = vector(half, [kept]).min(4);
            while lanes % width != 0 {
                width /= 2;
            }
            // Lanes of `width` columns each: as many columns a block, more rows at once.
            let lanes = lanes / width;
            let across = kept.div_ceil(lanes * width);
            let tickets = to.ticket(if chunks > 1 { across * outer } else { 0 });
            let body = format!(
                "sum_columns<{types}, {width}, {lanes}, {outer}u, {reduced}u, {kept}u, {chunks}u>(x, y, partial, tickets);"
            );
            let grid = [across as u32, chunks as u32, outer as u32];
            let arguments = vec![x.address.into(), y.address.into(), io.scratch.into(), tickets];
            to.launch(File::Reduce, &parameters, body, grid, arguments);
        }
        Way::Rows { kept, reduced, chunks } => {
            let width = vector(half, [reduced]);
            let tickets = to.ticket(if chunks > 1 { kept } else { 0 });
            let body = format!(
                "sum_rows<{types}, {width}, {kept}u, {reduced}u, {chunks}u>(x, y, partial, tickets);"
            );
            let arguments = vec![x.address.into(), y.address.into(), io.scratch.into(), tickets];
            if kept < 65_536 {
                to.launch(File::Reduce, &parameters, body, [chunks as u32, kept as u32, 1], arguments);
            } else {
                short_rows(&types, kept, reduced, (x.address, y.address), &parameters, to);
            }
        }
        Way::ShortRows { kept, reduced } => {
            short_rows(&types, kept, reduced, (x.address, y.address), &parameters, to);
        }
        Way::General(groups) => {
            let arguments = vec![x.address.into(), y.address.into(), 0u64.into(), 0u64.into()];
            to.launch(File::Prelude, &parameters, general(&groups, y.scalar), blocks(y.count), arguments);
        }
    }
}

fn short_rows(
    types: &str,
    kept: usize,
    reduced: usize,
    (x, y): (u64, u64),
    parameters: &str,
    to: &mut Lowering,
) {
    let body = format!("sum_short_rows<{types}, {kept}u, {reduced}u>(x, y);");
    let grid = [kept.div_ceil(8) as u32, 1, 1];
    to.launch(File::Reduce, parameters, body, grid, vec![x.into(), y.into(), 0u64.into(), 0u64.into()]);
}

/// One thread an output, loops over the reduced groups.
fn general(groups: &[(bool, usize)], y: Scalar) -> String {
    let kept: usize = groups.iter().filter(|(reduced, _)| !reduced).map(|(_, length)| length).product();
    let mut text = format!(
        "u64 rest = (u64)blockIdx.x * 256 + threadIdx.x;\nconst u64 to = rest;\nif (rest >= {kept}u) return;\n"
    );
    let mut stride = 1;
    let mut loops = String::new();
    let mut place = String::from("0");
    for (axis, &(reduced, length)) in groups.iter().enumerate().rev() {
        if reduced {
            loops += &format!("for (u64 i{axis} = 0; i{axis} < {length}u; ++i{axis})\n");
        } else {
            text += &format!("const u64 i{axis} = rest % {length}u; rest /= {length}u;\n");
        }
        place += &format!(" + i{axis} * {stride}ull");
        stride *= length;
    }
    format!("{text}float sum = 0.0f;\n{loops}sum += real(x[{place}]);\ny[to] = Cast<{}>::of(sum);", y.name())
}
