//! Sums over axes: columns, rows, or the general case with one thread per output.

use crate::op::expression;
use crate::program::instruction::Sum;
use crate::program::{
    Argument, Gpu, KernelFile, Lowering, OpIo, Parameters, Scalar, Selected, Value, blocks, vector,
};
use cfo_engine::Shape;

/// Algorithm of a sum. `chunks` blocks share one output.
#[derive(Clone, Debug, PartialEq)]
enum SumAlgorithm {
    Columns { outer: usize, reduced: usize, kept: usize, lanes: usize, chunks: usize },
    Rows { kept: usize, reduced: usize, chunks: usize },
    ShortRows { kept: usize, reduced: usize },
    General(Vec<(bool, usize)>),
}

/// Columns that a row of lanes covers for any element type, so that scratch memory does not depend on the type.
const COLUMNS: usize = 32;
/// Columns for large sums, for which long reads are worth while, and the least number of elements for them.
const WIDE: [usize; 3] = [256, 128, 64];
const MUCH: usize = 1 << 22;

impl SumAlgorithm {
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
            let wide = WIDE.into_iter().find(|wide| kept.is_multiple_of(*wide));
            let (lanes, wanted) = match wide.filter(|_| outer == 1 && reduced * kept >= MUCH) {
                Some(wide) => (wide, 2 * wanted),
                None => (kept.next_power_of_two().min(COLUMNS), wanted),
            };
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

/// Selects the algorithm of a sum, with scratch memory for partial sums in single precision.
pub(crate) fn select<'a>(op: &'a Sum, input: &Shape, target: Gpu) -> Selected<'a> {
    let algorithm = SumAlgorithm::of(op, input, target.multiprocessors);
    let scratch = match algorithm {
        SumAlgorithm::Columns { outer, kept, chunks, .. } if chunks > 1 => 4 * outer * kept * chunks,
        SumAlgorithm::Rows { kept, chunks, .. } if chunks > 1 => 4 * kept * chunks,
        _ => 0,
    };
    Selected::new(scratch, move |io, to| lower(op, algorithm, io, to))
}

/// The source of a sum in the kernels: its parameters, and how V neighbours are read.
struct Source {
    parameters: Parameters,
    half: bool,
    /// Code that reads the `WIDTH` elements at `at` to `value`.
    read: String,
}

impl Source {
    fn of(op: &Sum, io: &OpIo) -> Self {
        let inputs = &io.inputs;
        let parameters = Parameters::new().reads_all("in", inputs);
        let half = inputs.iter().any(|input| input.scalar == Scalar::Bf16);
        let read = match &op.of {
            None => "load<WIDTH>(in0 + at, value);".into(),
            Some((expression, _)) => expression::at(expression),
        };
        Self { parameters, half, read }
    }

    /// The kernel's first lines: an object with a method that reads.
    fn object(&self, inputs: &[Value], width: usize) -> String {
        let members: String =
            (0..inputs.len()).map(|i| format!("const {}* in{i}; ", inputs[i].scalar.name())).collect();
        let values: Vec<String> = (0..inputs.len()).map(|i| format!("in{i}")).collect();
        let read = self.read.replace("WIDTH", &width.to_string());
        format!(
            "struct Source {{ {members}DEVICE void get(size_t at, float* value) const {{\n{read}\n}} }};\nconst Source source = {{{}}};\n",
            values.join(", ")
        )
    }
}

fn lower(op: &Sum, algorithm: SumAlgorithm, io: &OpIo, to: &mut Lowering) {
    let y = io.outputs[0];
    let source = Source::of(op, io);
    let parameters = |tickets: Argument| {
        let inputs = source.parameters.clone();
        inputs.writes("y", y).scratch("partial", io.scratch).tickets("tickets", tickets)
    };
    let name = y.scalar.name();
    match algorithm {
        SumAlgorithm::Columns { outer, reduced, kept, lanes, chunks } => {
            let mut width = vector(source.half, [kept]).min(if lanes > COLUMNS { 8 } else { 4 });
            while lanes % width != 0 {
                width /= 2;
            }
            // Lanes of `width` columns each: the same number of columns per block, more rows at once.
            let lanes = lanes / width;
            let across = kept.div_ceil(lanes * width);
            let tickets = to.ticket(if chunks > 1 { across * outer } else { 0 });
            let body = source.object(&io.inputs, width)
                + &format!(
                    "sum_columns<Source, {name}, {width}, {lanes}, {outer}u, {reduced}u, {kept}u, {chunks}u>(source, y, partial, tickets);"
                );
            let grid = [across as u32, chunks as u32, outer as u32];
            to.launch(KernelFile::Reduce, parameters(tickets), body, grid);
        }
        SumAlgorithm::Rows { kept, reduced, chunks } if kept < 65_536 => {
            let width = vector(source.half, [reduced]);
            let tickets = to.ticket(if chunks > 1 { kept } else { 0 });
            let body = source.object(&io.inputs, width)
                + &format!(
                    "sum_rows<Source, {name}, {width}, {kept}u, {reduced}u, {chunks}u>(source, y, partial, tickets);"
                );
            to.launch(KernelFile::Reduce, parameters(tickets), body, [chunks as u32, kept as u32, 1]);
        }
        SumAlgorithm::Rows { kept, reduced, .. } | SumAlgorithm::ShortRows { kept, reduced } => {
            let body = source.object(&io.inputs, 1)
                + &format!("sum_short_rows<Source, {name}, {kept}u, {reduced}u>(source, y);");
            let grid = [kept.div_ceil(8) as u32, 1, 1];
            to.launch(KernelFile::Reduce, parameters(0u64.into()), body, grid);
        }
        SumAlgorithm::General(groups) => {
            let body = source.object(&io.inputs, 1) + &general(&groups, y.scalar);
            to.launch(KernelFile::Prelude, parameters(0u64.into()), body, blocks(y.count));
        }
    }
}

/// One thread per output, with loops over the reduced groups.
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
    let read = format!("{{ float value[1]; source.get({place}, value); sum += value[0]; }}");
    format!("{text}float sum = 0.0f;\n{loops}{read}\ny[to] = Cast<{}>::of(sum);", y.name())
}
