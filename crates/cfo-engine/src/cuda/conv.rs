//! Convolutions, channels last: by the library, as products of their patches, or by their definition; padding.

use super::cudnn_plan::Planned;
use super::lower::{File, Io, Lowering, Value, Work, blocks, vector};
use super::scalar::Scalar;
use super::{compact, few, line, matmul};
use crate::device::Precision;
use crate::graph::Graph;
use crate::ops::{Conv, MatMul, Op, Operand, PadMode};
use crate::shape::Shape;

/// Which of the three tensors is computed from the other two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Form {
    Forward,
    Input,
    Weight,
}

/// Sizes of a convolution: `x [b, h, w, ci]`, `w [co, kh, kw, ci]`, `y [b, ho, wo, co]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Geometry {
    pub(super) form: Form,
    pub(super) x: [usize; 4],
    pub(super) w: [usize; 4],
    pub(super) y: [usize; 4],
    pub(super) stride: [usize; 2],
    pub(super) padding: [usize; 2],
    pub(super) precision: Precision,
    /// Whether the field lies outside itself along the width; see [`Conv`](crate::ops::Conv).
    pub(super) periodic: bool,
    /// Whether operands and result are numbers of 16 bits with a scale of their own.
    pub(super) compact: bool,
}

fn four(shape: &Shape) -> [usize; 4] {
    shape.axes().try_into().expect("the graph checked that fields have four axes")
}

impl Geometry {
    /// Of an operation of a graph, if it is a convolution.
    pub(super) fn of(graph: &Graph, id: usize, precision: Precision) -> Option<Self> {
        let entry = &graph.entries[id];
        let input = |index: usize| four(graph.shape(entry.inputs[index]));
        let output = || four(&entry.outputs[0].shape);
        let (form, x, w, y) = match &entry.op {
            Op::Conv(_) => (Form::Forward, input(0), input(1), output()),
            Op::ConvInput(_) => (Form::Input, output(), input(1), input(0)),
            Op::ConvWeight(_) => (Form::Weight, input(0), output(), input(1)),
            _ => return None,
        };
        let (stride, padding, periodic) = match &entry.op {
            Op::Conv(op) => (op.stride, op.padding, op.periodic),
            Op::ConvInput(op) => (op.stride, op.padding, op.periodic),
            Op::ConvWeight(op) => (op.stride, op.padding, op.periodic),
            _ => return None,
        };
        Some(Self { form, x, w, y, stride, padding, precision, periodic, compact: false })
    }

    /// Of a convolution in another operation, from the shapes of what it reads, its weight and its result.
    pub(super) fn within(of: &Conv, shapes: [&Shape; 3], precision: Precision) -> Self {
        let ([x, w, y], Conv { stride, padding, periodic }) = (shapes.map(four), of.clone());
        Self { form: Form::Forward, x, w, y, stride, padding, precision, periodic, compact: false }
    }

    /// A name for it in the cache.
    pub(super) fn key(&self, gpu: &str, library: &str) -> String {
        let Self { form, x, w, y, stride, padding, precision, .. } = self;
        format!("{gpu}|{library}|{form:?}|{precision}|{x:?}|{w:?}|{y:?}|{stride:?}|{padding:?}")
            .replace(' ', "")
    }

    /// Into how many equal parts the batch is cut so that no field has more elements than the library counts.
    pub(super) fn parts(&self) -> usize {
        let largest = [self.x, self.y].map(|field| field.iter().product::<usize>()).into_iter().max();
        let least = largest.unwrap_or(0).div_ceil(ELEMENTS_LIMIT).max(1);
        (least..=self.x[0]).find(|parts| self.x[0].is_multiple_of(*parts)).unwrap_or(1)
    }

    /// The same for one of the parts.
    pub(super) fn part(&self) -> Self {
        let mut part = *self;
        part.x[0] /= self.parts();
        part.y[0] /= self.parts();
        part
    }

    /// Rows and columns of the matrix of patches.
    fn patches(&self) -> [usize; 2] {
        [self.y[0] * self.y[1] * self.y[2], self.w[1] * self.w[2] * self.w[3]]
    }

    /// Whether the field itself is the matrix of patches.
    fn is_product(&self) -> bool {
        self.w[1..3] == [1, 1] && self.stride == [1, 1] && self.padding == [0, 0]
    }

    fn bytes(&self) -> usize {
        let [rows, columns] = self.patches();
        rows * columns * if self.precision == Precision::Bf16 { 2 } else { 4 }
    }

    /// Bytes of scratch memory.
    pub(super) fn scratch(&self, choice: Choice) -> usize {
        match choice {
            Choice::Library { workspace, .. } => workspace,
            Choice::Planned { workspace } | Choice::Scaled { workspace } => workspace,
            Choice::Compact { workspace, .. } => self.compact_bytes() + workspace,
            Choice::Patches if !self.is_product() => self.bytes(),
            Choice::Few { blocks } if self.form == Form::Weight => {
                4 * blocks as usize * self.w.iter().product::<usize>()
            }
            Choice::Line => line::scratch(self),
            Choice::Few { .. } | Choice::Patches | Choice::Plain => 0,
        }
    }

    /// Bytes of a weight gradient as the library leaves it, rounded up for what lies behind.
    fn compact_bytes(&self) -> usize {
        (2 * self.w.iter().product::<usize>()).next_multiple_of(256)
    }

    /// What the library multiplies its sums by before it rounds them. Compact operands are less than 2^15, so their
    /// products are less than 2^30; as many as are summed must stay below 2^15 again.
    pub(super) fn power(&self) -> f64 {
        let terms = self.y[..3].iter().product::<usize>().next_power_of_two();
        if self.compact { 2f64.powi(-15) / terms as f64 } else { 1.0 }
    }

    /// Fields of one row are small, and the library's kernels for them slow: their patches are gathered.
    pub(super) fn prefers_patches(&self) -> bool {
        self.is_product() || (self.x[1] == 1 && self.bytes() <= PATCHES_LIMIT)
    }

    /// Template arguments of the plain kernels.
    fn numbers(&self) -> String {
        let ([b, h, w, ci], [co, kh, kw, _], [_, ho, wo, _]) = (self.x, self.w, self.y);
        let ([sh, sw], [ph, pw]) = (self.stride, self.padding);
        format!("{b}u, {h}u, {w}u, {ci}u, {co}u, {kh}u, {kw}u, {ho}u, {wo}u, {sh}, {sw}, {ph}, {pw}")
    }
}

/// How a convolution is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// By the library.
    Library { algorithm: u32, math: u32, workspace: usize },
    /// By the library from compact operands, whose result is then expanded.
    Compact { algorithm: u32, math: u32, workspace: usize },
    /// By a plan of the library.
    Planned { workspace: usize },
    /// By a plan of the library from compact operands, with the scales undone on the way out.
    Scaled { workspace: usize },
    /// As a product with patches gathered beforehand.
    Patches,
    /// By our kernels for few channels; a gradient by so many blocks.
    Few { blocks: u32 },
    /// By our kernels for fields of one row.
    Line,
    /// By our kernel that follows the definition.
    Plain,
}

impl Choice {
    /// Whether it takes compact operands.
    pub(super) fn is_compact(self) -> bool {
        matches!(self, Self::Compact { .. } | Self::Scaled { .. })
    }
}

/// Bytes of patches up to which they are gathered.
const PATCHES_LIMIT: usize = 96 << 20;

/// Elements of a field up to which the library's descriptors go.
const ELEMENTS_LIMIT: usize = (1 << 31) - 1;

/// A call of the library, or several alike on parts of the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convolution {
    pub(super) geometry: Geometry,
    pub(super) algorithm: u32,
    pub(super) math: u32,
    pub(super) workspace: (u64, usize),
    /// In the order of the operation's inputs and output.
    pub(super) addresses: [u64; 3],
}

pub(super) fn lower(geometry: &Geometry, choice: Choice, io: &Io, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    match choice {
        Choice::Library { algorithm, math, workspace } => {
            let addresses = [a, b, c].map(|value| value.address);
            let workspace = (io.scratch, workspace);
            to.append(Work::Convolution(Convolution {
                geometry: *geometry,
                algorithm,
                math,
                workspace,
                addresses,
            }));
        }
        Choice::Compact { algorithm, math, workspace } => {
            let geometry = Geometry { compact: true, ..*geometry };
            let addresses = [a.address, b.address, io.scratch];
            let workspace = (io.scratch + geometry.compact_bytes() as u64, workspace);
            to.append(Work::Convolution(Convolution { geometry, algorithm, math, workspace, addresses }));
            compact::expand(io.scratch, c, [io.inputs[2], io.inputs[3]], geometry.power(), to);
        }
        Choice::Planned { workspace } | Choice::Scaled { workspace } => {
            let geometry = Geometry { compact: choice.is_compact(), ..*geometry };
            let addresses = io.inputs.iter().chain(&io.outputs).map(|value| value.address).collect();
            let workspace = (io.scratch, workspace);
            to.append(Work::Planned(Planned { geometry, addresses, workspace }));
        }
        Choice::Patches => by_patches(geometry, io, to),
        Choice::Few { blocks } => few::lower(geometry, blocks, io, to),
        Choice::Line => line::lower(geometry, io, to),
        Choice::Plain => {
            let (name, grid) = match geometry.form {
                Form::Forward => ("conv_forward", blocks(c.count)),
                Form::Input => ("conv_input", blocks(c.count)),
                Form::Weight => ("conv_weight", [c.count as u32, 1, 1]),
            };
            let scalar = c.scalar.name();
            let parameters = format!("const {scalar}* a, const {scalar}* b, {scalar}* c");
            let body = format!("{name}<{scalar}, Geometry<{}>>(a, b, c);", geometry.numbers());
            let arguments = [a, b, c].map(|value| value.address.into()).to_vec();
            to.launch(File::Conv, &parameters, body, grid, arguments);
        }
    }
}

/// A convolution as a product of its patches.
fn by_patches(geometry: &Geometry, io: &Io, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    let ([rows, columns], outputs) = (geometry.patches(), geometry.w[0]);
    let scalar = c.scalar.name();
    let width = vector(c.scalar == Scalar::Half, [geometry.x[3]]);
    let own = if geometry.form == Form::Input { c } else { a };
    let patches = match geometry.is_product() {
        true => own,
        false => Value { address: io.scratch, scalar: c.scalar, count: rows * columns },
    };
    let move_patches = |to: &mut Lowering| {
        if geometry.is_product() {
            return;
        }
        let (name, from, into) = match geometry.form {
            Form::Input => ("scatter_patches", patches, c),
            _ => ("gather_patches", a, patches),
        };
        to.launch(
            File::Conv,
            &format!("const {scalar}* from, {scalar}* into"),
            format!("{name}<{scalar}, {width}, Geometry<{}>>(from, into);", geometry.numbers()),
            blocks(into.count / width),
            vec![from.address.into(), into.address.into()],
        );
    };
    let dense = |columns: usize| Operand::dense(0, columns);
    let (sizes, operands, inputs, output) = match geometry.form {
        // y = patches w', w being [outputs, columns].
        Form::Forward => (
            [rows, columns, outputs],
            [dense(columns), dense(columns).transposed(), dense(outputs)],
            [patches, b],
            c,
        ),
        // dpatches = dy w.
        Form::Input => {
            ([rows, outputs, columns], [dense(outputs), dense(columns), dense(columns)], [a, b], patches)
        }
        // dw = dy' patches.
        Form::Weight => (
            [outputs, rows, columns],
            [dense(outputs).transposed(), dense(columns), dense(columns)],
            [b, patches],
            c,
        ),
    };
    let product = MatMul::plain([1, 1], sizes, operands, Shape::from([sizes[0], sizes[2]]));
    let product_io = Io { inputs: inputs.to_vec(), outputs: vec![output], scratch: 0 };
    if geometry.form != Form::Input {
        move_patches(to);
    }
    matmul::lower(&product, &product_io, to);
    if geometry.form == Form::Input {
        move_patches(to);
    }
}

/// Padding (`folded` false) or its adjoint. `field` is the smaller of both shapes, `padded` the larger.
pub(super) fn pad(
    mode: PadMode,
    before: [usize; 2],
    (field, padded): (&Shape, &Shape),
    folded: bool,
    io: &Io,
    to: &mut Lowering,
) {
    let ([_, h, w, c], [_, hp, wp, _]) = (four(field), four(padded));
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Half || y.scalar == Scalar::Half;
    let width = vector(half, [c]);
    let number = match mode {
        PadMode::Zero => 0,
        PadMode::Circular => 1,
        PadMode::Replicate => 2,
    };
    let count = y.count / width;
    let body = format!(
        "{}<{}, {}, {width}, {number}, {h}u, {w}u, {c}u, {}u, {}u, {hp}u, {wp}u, {count}ull>(x, y);",
        if folded { "fold" } else { "pad" },
        x.scalar.name(),
        y.scalar.name(),
        before[0],
        before[1]
    );
    let parameters = format!("const {}* x, {}* y", x.scalar.name(), y.scalar.name());
    to.launch(File::Conv, &parameters, body, blocks(count), vec![x.address.into(), y.address.into()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(batch: usize) -> Geometry {
        Geometry {
            form: Form::Forward,
            x: [batch, 128, 128, 128],
            w: [64, 3, 3, 128],
            y: [batch, 128, 128, 64],
            stride: [1, 1],
            padding: [1, 1],
            precision: Precision::Bf16,
            periodic: false,
            compact: false,
        }
    }

    #[test]
    fn a_batch_beyond_what_the_library_counts_is_cut() {
        for (batch, parts) in [(256, 1), (1023, 1), (1024, 2), (3072, 4), (2 * 1009, 2), (2027, 2027)] {
            let geometry = geometry(batch);
            assert_eq!(geometry.parts(), parts, "{batch}");
            let part = geometry.part();
            assert_eq!(part.x[0] * parts, batch);
            assert!(part.x.iter().product::<usize>() <= ELEMENTS_LIMIT);
        }
    }
}
