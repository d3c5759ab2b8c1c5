//! Convolutions, channels last: by the library, as products of patches, or by the definition. Also padding.

use crate::convolution::cudnn_plan::Planned;
use crate::convolution::{conv_few_channels, conv_row, scaled_f16};
use crate::product::matmul;
use crate::program::instruction::Conv;
use crate::program::{
    Code, GpuWork, Instruction, KernelFile, Lowering, OpIo, Parameters, Scalar, Selected, Value, blocks,
    vector,
};
pub(crate) use cfo_engine::ops::ConvPass;
use cfo_engine::ops::{MatMul, Operand, PadMode};
use cfo_engine::{Precision, Shape};

/// Sizes of a convolution: `x [b, h, w, ci]`, `w [co, kh, kw, ci]`, `y [b, ho, wo, co]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Geometry {
    pub(crate) form: ConvPass,
    pub(crate) x: [usize; 4],
    pub(crate) w: [usize; 4],
    pub(crate) y: [usize; 4],
    pub(crate) stride: [usize; 2],
    pub(crate) padding: [usize; 2],
    pub(crate) precision: Precision,
    /// Whether the field continues periodically along the width; see [`Conv`].
    pub(crate) periodic: bool,
    /// Whether operands and result are 16-bit numbers with a scale.
    pub(crate) f16: bool,
}

fn four(shape: &Shape) -> [usize; 4] {
    shape.axes().try_into().expect("the graph checked that fields have four axes")
}

impl Geometry {
    /// Geometry of an operation of a graph; `None` if it is not a convolution.
    pub(crate) fn of(code: &Code, id: usize, precision: Precision) -> Option<Self> {
        let entry = &code.entries[id];
        let Instruction::Conv(op) = &entry.op else { return None };
        let [a, b] = [0, 1].map(|index| code.shape(entry.inputs[index]));
        let result = &entry.outputs[0].shape;
        let shapes = match op.pass {
            ConvPass::Forward => [a, b, result],
            ConvPass::Input => [result, b, a],
            ConvPass::Weight => [a, result, b],
        };
        Some(Self::within(op, shapes, precision))
    }

    /// Geometry of a convolution in another operation, from the shapes of its input, weight and result.
    pub(crate) fn within(of: &Conv, shapes: [&Shape; 3], precision: Precision) -> Self {
        let ([x, w, y], form, periodic) = (shapes.map(four), of.pass, of.periodic);
        Self { form, x, w, y, stride: of.stride, padding: of.padding, precision, periodic, f16: false }
    }

    /// Key in the cache.
    pub(crate) fn key(&self, gpu: &str, library: &str) -> String {
        let Self { form, x, w, y, stride, padding, precision, .. } = self;
        format!("{gpu}|{library}|{form:?}|{precision}|{x:?}|{w:?}|{y:?}|{stride:?}|{padding:?}")
            .replace(' ', "")
    }

    /// Number of equal parts of the batch such that no field has more elements than the library supports.
    pub(crate) fn parts(&self) -> usize {
        let largest = [self.x, self.y].map(|field| field.iter().product::<usize>()).into_iter().max();
        let least = largest.unwrap_or(0).div_ceil(ELEMENTS_LIMIT).max(1);
        (least..=self.x[0]).find(|parts| self.x[0].is_multiple_of(*parts)).unwrap_or(1)
    }

    /// Geometry of one of the parts.
    pub(crate) fn part(&self) -> Self {
        let mut part = *self;
        part.x[0] /= self.parts();
        part.y[0] /= self.parts();
        part
    }

    /// Number of rows and columns of the matrix of patches.
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
    fn scratch(&self, choice: Algorithm) -> usize {
        match choice {
            Algorithm::Library { workspace, .. } => workspace,
            Algorithm::Planned { workspace } | Algorithm::PlannedF16 { workspace } => workspace,
            Algorithm::LibraryF16 { workspace, .. } => self.f16_bytes() + workspace,
            Algorithm::Patches if !self.is_product() => self.bytes(),
            Algorithm::FewChannels { blocks } if self.form == ConvPass::Weight => {
                4 * blocks as usize * self.w.iter().product::<usize>()
            }
            Algorithm::ConvRow => conv_row::scratch(self),
            Algorithm::FewChannels { .. } | Algorithm::Patches | Algorithm::Plain => 0,
        }
    }

    /// Bytes of a weight gradient as written by the library, rounded up for alignment of the memory after it.
    fn f16_bytes(&self) -> usize {
        (2 * self.w.iter().product::<usize>()).next_multiple_of(256)
    }

    /// Factor by which the library multiplies its sums before rounding. f16 operands are below 2^15, so products are
    /// below 2^30. The factor keeps their sums below 2^15.
    pub(crate) fn power(&self) -> f64 {
        let terms = self.y[..3].iter().product::<usize>().next_power_of_two();
        if self.f16 { 2f64.powi(-15) / terms as f64 } else { 1.0 }
    }

    /// Whether patches are gathered: fields of one row are small, and the library's kernels for them are slow.
    pub(crate) fn prefers_patches(&self) -> bool {
        self.is_product() || (self.x[1] == 1 && self.bytes() <= PATCHES_LIMIT)
    }

    /// Template arguments of the plain kernels.
    fn numbers(&self) -> String {
        let ([b, h, w, ci], [co, kh, kw, _], [_, ho, wo, _]) = (self.x, self.w, self.y);
        let ([sh, sw], [ph, pw]) = (self.stride, self.padding);
        format!("{b}u, {h}u, {w}u, {ci}u, {co}u, {kh}u, {kw}u, {ho}u, {wo}u, {sh}, {sw}, {ph}, {pw}")
    }
}

/// Algorithm for a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// By a call of the library.
    Library { algorithm: u32, math: u32, workspace: usize },
    /// By the library with f16 operands; the result is then expanded.
    LibraryF16 { algorithm: u32, math: u32, workspace: usize },
    /// By a plan of the library.
    Planned { workspace: usize },
    /// By a plan of the library with f16 operands, whose epilogue removes the scales.
    PlannedF16 { workspace: usize },
    /// As a product with gathered patches.
    Patches,
    /// By our kernels for few channels; a gradient uses `blocks` blocks.
    FewChannels { blocks: u32 },
    /// By our kernels for fields of one row.
    ConvRow,
    /// By our kernel for the definition.
    Plain,
}

impl Algorithm {
    /// Our algorithm for a convolution.
    pub(crate) fn own(geometry: &Geometry, multiprocessors: u32) -> Self {
        let few = || conv_few_channels::choice(geometry, multiprocessors);
        match conv_row::fits(geometry) {
            true => Self::ConvRow,
            false => few().unwrap_or(if geometry.prefers_patches() { Self::Patches } else { Self::Plain }),
        }
    }

    /// Whether the algorithm uses f16 operands.
    pub(crate) fn takes_f16(self) -> bool {
        matches!(self, Self::LibraryF16 { .. } | Self::PlannedF16 { .. })
    }
}

/// Maximum bytes of gathered patches.
const PATCHES_LIMIT: usize = 96 << 20;

/// Maximum number of elements of a field in the library's descriptors.
const ELEMENTS_LIMIT: usize = (1 << 31) - 1;

/// One call of the library, or equal calls for parts of the batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Convolution {
    pub(crate) geometry: Geometry,
    pub(crate) algorithm: u32,
    pub(crate) math: u32,
    pub(crate) workspace: (u64, usize),
    /// Addresses in the order of the operation's inputs and output.
    pub(crate) addresses: [u64; 3],
}

/// Selects the chosen algorithm for a convolution.
pub(crate) fn select(geometry: Geometry, choice: Algorithm) -> Selected<'static> {
    Selected::new(geometry.scratch(choice), move |io, to| lower(&geometry, choice, io, to))
}

fn lower(geometry: &Geometry, choice: Algorithm, io: &OpIo, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    match choice {
        Algorithm::Library { algorithm, math, workspace } => {
            let addresses = [a, b, c].map(|value| value.address);
            let workspace = (io.scratch, workspace);
            to.append(GpuWork::Convolution(Convolution {
                geometry: *geometry,
                algorithm,
                math,
                workspace,
                addresses,
            }));
        }
        Algorithm::LibraryF16 { algorithm, math, workspace } => {
            let geometry = Geometry { f16: true, ..*geometry };
            let addresses = [a.address, b.address, io.scratch];
            let workspace = (io.scratch + geometry.f16_bytes() as u64, workspace);
            to.append(GpuWork::Convolution(Convolution { geometry, algorithm, math, workspace, addresses }));
            scaled_f16::expand(io.scratch, c, [io.inputs[2], io.inputs[3]], geometry.power(), to);
        }
        Algorithm::Planned { workspace } | Algorithm::PlannedF16 { workspace } => {
            let geometry = Geometry { f16: choice.takes_f16(), ..*geometry };
            let addresses = io.inputs.iter().chain(&io.outputs).map(|value| value.address).collect();
            let workspace = (io.scratch, workspace);
            to.append(GpuWork::Planned(Planned { geometry, addresses, workspace }));
        }
        Algorithm::Patches => by_patches(geometry, io, to),
        Algorithm::FewChannels { blocks } => conv_few_channels::lower(geometry, blocks, io, to),
        Algorithm::ConvRow => conv_row::lower(geometry, io, to),
        Algorithm::Plain => {
            let (name, grid) = match geometry.form {
                ConvPass::Forward => ("conv_forward", blocks(c.count)),
                ConvPass::Input => ("conv_input", blocks(c.count)),
                ConvPass::Weight => ("conv_weight", [c.count as u32, 1, 1]),
            };
            let scalar = c.scalar.name();
            let parameters = Parameters::new().reads("a", a).reads("b", b).writes("c", c);
            let body = format!("{name}<{scalar}, Geometry<{}>>(a, b, c);", geometry.numbers());
            to.launch(KernelFile::Conv, parameters, body, grid);
        }
    }
}

/// A convolution as a product of its patches.
fn by_patches(geometry: &Geometry, io: &OpIo, to: &mut Lowering) {
    let [a, b, c] = [io.inputs[0], io.inputs[1], io.outputs[0]];
    let ([rows, columns], outputs) = (geometry.patches(), geometry.w[0]);
    let scalar = c.scalar.name();
    let width = vector(c.scalar == Scalar::Bf16, [geometry.x[3]]);
    let own = if geometry.form == ConvPass::Input { c } else { a };
    let patches = match geometry.is_product() {
        true => own,
        false => Value { address: io.scratch, scalar: c.scalar, count: rows * columns },
    };
    let move_patches = |to: &mut Lowering| {
        if geometry.is_product() {
            return;
        }
        let (name, from, into) = match geometry.form {
            ConvPass::Input => ("scatter_patches", patches, c),
            _ => ("gather_patches", a, patches),
        };
        let parameters = Parameters::new().reads("from", from).writes("into", into);
        let body = format!("{name}<{scalar}, {width}, Geometry<{}>>(from, into);", geometry.numbers());
        to.launch(KernelFile::Conv, parameters, body, blocks(into.count / width));
    };
    let dense = |columns: usize| Operand::dense(0, columns);
    let (sizes, operands, inputs, output) = match geometry.form {
        // y = patches w', where w is [outputs, columns].
        ConvPass::Forward => (
            [rows, columns, outputs],
            [dense(columns), dense(columns).transposed(), dense(outputs)],
            [patches, b],
            c,
        ),
        // dpatches = dy w.
        ConvPass::Input => {
            ([rows, outputs, columns], [dense(outputs), dense(columns), dense(columns)], [a, b], patches)
        }
        // dw = dy' patches.
        ConvPass::Weight => (
            [outputs, rows, columns],
            [dense(outputs).transposed(), dense(columns), dense(columns)],
            [b, patches],
            c,
        ),
    };
    let product = MatMul::plain([1, 1], sizes, operands, Shape::from([sizes[0], sizes[2]]));
    let product_io = OpIo { inputs: inputs.to_vec(), outputs: vec![output], scratch: 0 };
    if geometry.form != ConvPass::Input {
        move_patches(to);
    }
    let scalars = product_io.scalars();
    // Scratch memory holds the patches.
    matmul::select(&product.into(), &scalars, false, to.target).lower(&product_io, to);
    if geometry.form == ConvPass::Input {
        move_patches(to);
    }
}

/// Padding, or its adjoint if `folded`. `field` is the smaller of both shapes, `padded` the larger.
pub(crate) fn pad(
    mode: PadMode,
    before: [usize; 2],
    (field, padded): (&Shape, &Shape),
    folded: bool,
    io: &OpIo,
    to: &mut Lowering,
) {
    let ([_, h, w, c], [_, hp, wp, _]) = (four(field), four(padded));
    let (x, y) = (io.inputs[0], io.outputs[0]);
    let half = x.scalar == Scalar::Bf16 || y.scalar == Scalar::Bf16;
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
    to.launch(KernelFile::Conv, Parameters::new().reads("x", x).writes("y", y), body, blocks(count));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn geometry(batch: usize) -> Geometry {
        Geometry {
            form: ConvPass::Forward,
            x: [batch, 128, 128, 128],
            w: [64, 3, 3, 128],
            y: [batch, 128, 128, 64],
            stride: [1, 1],
            padding: [1, 1],
            precision: Precision::Bf16,
            periodic: false,
            f16: false,
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
