//! Lowering: each operation of a planned graph becomes launches of kernels and calls of libraries with fixed
//! addresses. Nothing here needs a device, so all kernels can be compiled and looked at without one.

use std::collections::HashMap;

use super::conv::{self, Choice, Convolution};
use super::cudnn_plan::Planned;
use super::scalar::Scalar;
use super::schedule::Access;
use super::{
    attention, compact, compile, expression, group_norm, layer_norm, layout, line_norm, loss, matmul,
    optimizer, random, reduce,
};
use super::{resample, sample_path, wavelet};
use crate::device::Precision;
use crate::graph::Graph;
use crate::ops::{GroupNorm, Op};
use crate::shape::Shape;

/// Threads of a block in all kernels that do not say otherwise.
pub(super) const THREADS: u32 = 256;

/// A source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum File {
    Prelude,
    Reduce,
    Loss,
    Random,
    Optimizer,
    SamplePath,
    GroupNorm,
    NormSlice,
    NormTeam,
    LayerNorm,
    Attention,
    AttentionCores,
    AttentionWhole,
    Conv,
    Few,
    Line,
    LineNorm,
    Compact,
    Field,
    Skinny,
    Panel,
    Tile,
    Stay,
}

impl File {
    /// Kernels that are compiled together: few enough to compile side by side, many enough to share the prelude.
    fn unit(self) -> usize {
        match self {
            // Tensor cores' kernels take the compiler half a second each, those of whole groups of warps longer.
            Self::Line | Self::LineNorm => 2,
            Self::Tile | Self::Stay => 1,
            _ => 12,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Prelude => "",
            Self::Reduce => include_str!("kernels/reduce.cu"),
            Self::Loss => include_str!("kernels/loss.cu"),
            Self::Random => include_str!("kernels/random.cu"),
            Self::Optimizer => include_str!("kernels/optimizer.cu"),
            Self::SamplePath => include_str!("kernels/sample_path.cu"),
            Self::GroupNorm => include_str!("kernels/group_norm.cu"),
            Self::NormSlice => {
                concat!(include_str!("kernels/copies.cu"), include_str!("kernels/norm_slice.cu"))
            }
            Self::NormTeam => concat!(
                include_str!("kernels/copies.cu"),
                include_str!("kernels/norm_slice.cu"),
                include_str!("kernels/norm_team.cu")
            ),
            Self::LayerNorm => include_str!("kernels/layer_norm.cu"),
            Self::Attention => include_str!("kernels/attention.cu"),
            Self::AttentionCores => {
                concat!(include_str!("kernels/cores.cu"), include_str!("kernels/attention_cores.cu"))
            }
            Self::AttentionWhole => {
                concat!(include_str!("kernels/cores.cu"), include_str!("kernels/attention_whole.cu"))
            }
            Self::Conv => include_str!("kernels/conv.cu"),
            Self::Few => concat!(include_str!("kernels/copies.cu"), include_str!("kernels/few.cu")),
            Self::Line => include_str!("kernels/line.cu"),
            Self::LineNorm => concat!(include_str!("kernels/line.cu"), include_str!("kernels/line_norm.cu")),
            Self::Compact => include_str!("kernels/compact.cu"),
            Self::Field => include_str!("kernels/field.cu"),
            Self::Skinny => include_str!("kernels/skinny.cu"),
            Self::Panel => include_str!("kernels/panel.cu"),
            Self::Tile => include_str!("kernels/tile.cu"),
            Self::Stay => concat!(
                include_str!("kernels/tile.cu"),
                include_str!("kernels/stay.cu"),
                include_str!("kernels/gradient.cu")
            ),
        }
    }
}

const PRELUDE: &str = include_str!("kernels/prelude.cu");

/// One kernel: a body that calls templates of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Kernel {
    file: File,
    parameters: String,
    body: String,
    threads: u32,
    /// Blocks that a multiprocessor should hold at once.
    resident: u32,
    /// Blocks that share their shared memory.
    cluster: u32,
}

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    Word(u64),
    /// The address of a table that is uploaded with the program.
    Table(usize),
    /// The address of counters that are 0 between launches.
    Tickets(usize),
}

impl From<u64> for Argument {
    fn from(word: u64) -> Self {
        Self::Word(word)
    }
}

impl From<u32> for Argument {
    fn from(word: u32) -> Self {
        Self::Word(u64::from(word))
    }
}

impl From<f64> for Argument {
    fn from(value: f64) -> Self {
        Self::Word(value.to_bits())
    }
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    pub(super) kernel: usize,
    pub(super) grid: [u32; 3],
    pub(super) threads: u32,
    pub(super) shared: u32,
    pub(super) cluster: u32,
    pub(super) arguments: Vec<Argument>,
}

/// What the device does.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Launch(Launch),
    Product(matmul::Product),
    Convolution(Convolution),
    Planned(Planned),
}

/// One piece of work and where it comes from.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) label: String,
    /// Whether it changes tensors that outlive the run.
    pub(super) effect: bool,
    pub(super) access: Access,
    pub(super) work: Work,
}

/// A value on the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    pub(super) address: u64,
    pub(super) scalar: Scalar,
    pub(super) count: usize,
}

/// What one operation reads and writes.
#[derive(Clone, Debug)]
pub(super) struct Io {
    pub(super) inputs: Vec<Value>,
    pub(super) outputs: Vec<Value>,
    /// Address of memory for intermediate results.
    pub(super) scratch: u64,
}

/// What programs are lowered for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) precision: Precision,
    pub(super) multiprocessors: u32,
    /// Whether tensor cores work for warpgroups.
    pub(super) warpgroups: bool,
}

/// The program as it grows.
#[derive(Debug)]
pub(super) struct Lowering {
    pub(super) precision: Precision,
    pub(super) multiprocessors: u32,
    /// Bytes of shared memory that a block may have.
    pub(super) shared: u32,
    /// Whether tensor cores work for warpgroups.
    pub(super) warpgroups: bool,
    kernels: Vec<Kernel>,
    known: HashMap<Kernel, usize>,
    pub(super) commands: Vec<Command>,
    pub(super) tables: Vec<Vec<u8>>,
    pub(super) tickets: usize,
    label: String,
    effect: bool,
    access: Access,
    supports: Option<Probe>,
    /// Whether every run must yield the same bits.
    pub(super) deterministic: bool,
    /// Whether blocks wait for each other somewhere, so that no other kernel may take their place on the device.
    pub(super) alone: bool,
}

/// A question about a product.
type Question<T> = Box<dyn Fn(&matmul::Product) -> T>;

/// Asks the library about products.
pub(super) struct Probe {
    /// Whether it can do one.
    pub(super) can: Question<bool>,
    /// Milliseconds that one takes, if it can do it.
    pub(super) time: Question<Option<f32>>,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl Lowering {
    pub(super) fn new(
        Target { precision, multiprocessors, warpgroups }: Target,
        shared: u32,
        deterministic: bool,
        supports: Option<Probe>,
    ) -> Self {
        Self {
            deterministic,
            alone: false,
            precision,
            multiprocessors,
            shared,
            warpgroups,
            kernels: Vec::new(),
            known: HashMap::new(),
            commands: Vec::new(),
            tables: Vec::new(),
            tickets: 0,
            label: String::new(),
            effect: false,
            access: Access::default(),
            supports,
        }
    }

    pub(super) fn target(&self) -> Target {
        let Self { precision, multiprocessors, warpgroups, .. } = *self;
        Target { precision, multiprocessors, warpgroups }
    }

    /// Whether the library can do a product; assumed where there is no device to ask.
    pub(super) fn supports(&self, product: &matmul::Product) -> bool {
        self.supports.as_ref().is_none_or(|probe| (probe.can)(product))
    }

    /// Whether the library does a product with all that follows no slower than the plain product and a pass of ours over
    /// so many bytes; assumed where there is no device to ask.
    pub(super) fn worthwhile(&self, fused: &matmul::Product, plain: &matmul::Product, bytes: usize) -> bool {
        /// Milliseconds of a launch.
        const LAUNCH: f32 = 0.002;
        /// Bytes a millisecond.
        const SPEED: f32 = 3.5e9;
        let Some(probe) = &self.supports else { return true };
        if self.deterministic {
            return (probe.can)(fused);
        }
        let Some(merged) = (probe.time)(fused) else { return false };
        let apart = (probe.time)(plain).map_or(f32::INFINITY, |time| time + LAUNCH + bytes as f32 / SPEED);
        merged <= apart
    }

    /// Names what is appended next and what it touches.
    pub(super) fn begin(&mut self, label: &str, effect: bool, access: Access) {
        self.label = label.into();
        self.effect = effect;
        self.access = access;
    }

    /// Appends a launch of a kernel of 256 threads; parameters and body are C++.
    pub(super) fn launch(
        &mut self,
        file: File,
        parameters: &str,
        body: String,
        grid: [u32; 3],
        arguments: Vec<Argument>,
    ) {
        self.launch_with(file, parameters, body, (grid, THREADS, 0), arguments);
    }

    /// The same with other threads a block and with dynamic shared memory.
    pub(super) fn launch_with(
        &mut self,
        file: File,
        parameters: &str,
        body: String,
        shape: ([u32; 3], u32, u32),
        arguments: Vec<Argument>,
    ) {
        self.launch_resident(file, parameters, body, shape, 1, arguments);
    }

    /// The same for a kernel that is to leave room for other blocks of its own beside it.
    pub(super) fn launch_resident(
        &mut self,
        file: File,
        parameters: &str,
        body: String,
        shape: ([u32; 3], u32, u32),
        resident: u32,
        arguments: Vec<Argument>,
    ) {
        self.launch_clusters(file, parameters, body, shape, (resident, 1), arguments);
    }

    /// The same in clusters of so many blocks.
    pub(super) fn launch_clusters(
        &mut self,
        file: File,
        parameters: &str,
        body: String,
        (grid, threads, shared): ([u32; 3], u32, u32),
        (resident, cluster): (u32, u32),
        arguments: Vec<Argument>,
    ) {
        let kernel = Kernel { file, parameters: parameters.into(), body, threads, resident, cluster };
        let next = self.kernels.len();
        let kernel = *self.known.entry(kernel.clone()).or_insert_with(|| {
            self.kernels.push(kernel);
            next
        });
        self.append(Work::Launch(Launch { kernel, grid, threads, shared, cluster, arguments }));
    }

    pub(super) fn append(&mut self, work: Work) {
        let (label, access) = (self.label.clone(), self.access.clone());
        self.commands.push(Command { label, effect: self.effect, access, work });
    }

    /// A table to be uploaded with the program.
    pub(super) fn table(&mut self, bytes: Vec<u8>) -> Argument {
        self.tables.push(bytes);
        Argument::Table(self.tables.len() - 1)
    }

    /// Counters that are 0 between launches.
    pub(super) fn ticket(&mut self, count: usize) -> Argument {
        let first = self.tickets;
        self.tickets += count;
        Argument::Tickets(first)
    }

    /// Whether functions may be less accurate than single precision.
    pub(super) fn fast(&self) -> bool {
        self.precision != Precision::F32
    }

    /// A kernel as text.
    pub(super) fn signature(&self, kernel: usize) -> String {
        let Kernel { parameters, body, threads, resident, cluster, .. } = &self.kernels[kernel];
        format!("({threads}, {resident}, {cluster}) ({parameters}) {{ {} }}", body.replace('\n', "\n    "))
    }

    /// The sources of all kernels, and for each kernel its unit and its name there.
    pub(super) fn units(&self, architecture: u32) -> (Vec<compile::Unit>, Vec<(usize, String)>) {
        let mut order: Vec<usize> = (0..self.kernels.len()).collect();
        order.sort_by_key(|&kernel| self.kernels[kernel].file);
        let mut places = vec![(0, String::new()); self.kernels.len()];
        let mut units = Vec::new();
        let groups = order.chunk_by(|&a, &b| self.kernels[a].file == self.kernels[b].file);
        let unit = |group: &[usize]| self.kernels[group[0]].file.unit();
        for members in groups.flat_map(|group| group.chunks(unit(group))) {
            let mut source = format!("{PRELUDE}\n{}\n", self.kernels[members[0]].file.text());
            for (position, &kernel) in members.iter().enumerate() {
                let Kernel { parameters, body, threads, resident, cluster, .. } = &self.kernels[kernel];
                let cluster = match cluster {
                    1 => String::new(),
                    blocks => format!("__cluster_dims__({blocks}, 1, 1) "),
                };
                places[kernel] = (units.len(), format!("kernel{position}"));
                source += &format!(
                    "extern \"C\" __global__ void {cluster}__launch_bounds__({threads}, {resident}) kernel{position}({parameters}) {{\n{body}\n}}\n"
                );
            }
            units.push(compile::Unit { source, architecture, fast: self.fast() });
        }
        (units, places)
    }
}

/// Appends the work of one operation; `convolution` says how, if it is one; `advances` whether Adam moves its counter.
pub(super) fn lower(
    graph: &Graph,
    id: usize,
    convolution: Choice,
    advances: bool,
    io: &Io,
    to: &mut Lowering,
) {
    let entry = &graph.entries[id];
    let scalar = Shape::scalar();
    let output = entry.outputs.first().map_or(&scalar, |output| &output.shape);
    let input = |index: usize| -> &Shape { &graph.value_type(entry.inputs[index]).shape };
    if entry.outputs.iter().any(|output| output.shape.is_empty()) {
        return;
    }
    match &entry.op {
        Op::Tensor(_) | Op::Constant(_) | Op::Reshape(_) => {}
        Op::Pointwise(_) | Op::Broadcast(_) | Op::Slice(_) | Op::Permute(_) => {
            unreachable!("fusion turns these into expressions")
        }
        Op::Expression(op) => expression::lower(op, io, to),
        Op::Sum(op) => reduce::lower(op, op.of.as_ref().map_or(input(0), |(_, shape)| shape), io, to),
        Op::Embed(op) => layout::embed(op, input(0), io, to),
        Op::Concat(op) => {
            let widths: Vec<usize> = op
                .values(&entry.inputs)
                .iter()
                .map(|&value| graph.shape(value).axes()[op.axis..].iter().product())
                .collect();
            layout::concat(&widths, &op.biased, io, to);
        }
        Op::MatMul(op) => matmul::lower(op, io, to),
        Op::MeanSquaredError(_) => loss::mean_squared_error(io, to),
        Op::Random(op) => random::lower(op, io, to),
        Op::SamplePath(op) => sample_path::lower(op, input(0), input(2), io, to),
        Op::Gather(_) => layout::gather(input(0), io, to),
        Op::Pad(op) => conv::pad(op.mode, op.before, (input(0), output), false, io, to),
        Op::Fold(op) => conv::pad(op.mode, op.before, (output, input(0)), true, io, to),
        Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_) => {
            let geometry = conv::Geometry::of(graph, id, to.precision).expect("these are convolutions");
            conv::lower(&geometry, convolution, io, to);
        }
        Op::Compact(op) => {
            let shapes: Vec<&Shape> = (0..entry.inputs.len()).map(input).collect();
            compact::lower(op, &shapes, io, to);
        }
        Op::LayerNorm(op) => layer_norm::lower(op, input(0), io, to),
        Op::LayerNormBackward(op) => layer_norm::lower_backward(op, input(0), io, to),
        Op::Attention(op) => attention::lower(op.heads, input(0), io, to),
        Op::AttentionBackward(op) => attention::lower_backward(op.heads, input(0), io, to),
        Op::Resample(op) => resample::lower(op.mode, (input(0), output), false, io, to),
        Op::ResampleBackward(op) => resample::lower(op.mode, (output, input(0)), true, io, to),
        Op::Wavelet(op) => wavelet::lower(op, input(0), io, to),
        Op::GroupNorm(op) if op.of.is_some() => line_norm::lower(op, graph, id, io, to),
        Op::GroupNorm(op) => group_norm::lower(op, input(0), io, to),
        Op::GroupNormBackward(op) => group_norm::lower_backward(op, input(0), io, to),
        Op::GlobalNorm(_) => optimizer::global_norm(io, to),
        Op::Adam(op) => optimizer::adam(op, advances, io, to),
        Op::Assign(_) => optimizer::assign(io, to),
        Op::Advance(_) => optimizer::advance(io, to),
    }
}

/// Bytes of scratch memory that an operation needs.
pub(super) fn scratch(graph: &Graph, id: usize, target: Target) -> usize {
    let multiprocessors = target.multiprocessors;
    let entry = &graph.entries[id];
    let input = |index: usize| -> &Shape { &graph.value_type(entry.inputs[index]).shape };
    match &entry.op {
        Op::Sum(op) => {
            reduce::scratch(op, op.of.as_ref().map_or(input(0), |(_, shape)| shape), multiprocessors)
        }
        Op::MatMul(op) => matmul::scratch(op, target),
        Op::GroupNorm(GroupNorm { of: Some(_), .. }) => 0,
        Op::GroupNorm(op) => group_norm::scratch(op, input(0), multiprocessors),
        Op::GroupNormBackward(op) => group_norm::scratch_backward(&op.forward, input(0), multiprocessors),
        Op::LayerNormBackward(op) => layer_norm::scratch_backward(op, input(0), multiprocessors),
        Op::AttentionBackward(op) => attention::scratch_backward(op.heads, input(0)),
        Op::Wavelet(_) => wavelet::scratch(input(0)),
        Op::Compact(_) => compact::scratch(entry.outputs[0].shape.len(), multiprocessors),
        Op::MeanSquaredError(_) => loss::scratch(input(0).len(), multiprocessors),
        Op::GlobalNorm(_) => optimizer::norm_scratch(entry.inputs.iter().map(|&n| graph.shape(n).len())),
        _ => 0,
    }
}

/// Elements that one thread moves at once: the widest of 8 (with bf16), 4 and 2 that divides all lengths.
pub(super) fn vector(half: bool, lengths: impl IntoIterator<Item = usize> + Clone) -> usize {
    let widths: &[usize] = if half { &[8, 4, 2] } else { &[4, 2] };
    let fits = |width: usize| lengths.clone().into_iter().all(|length| length % width == 0);
    widths.iter().copied().find(|&width| fits(width)).unwrap_or(1)
}

/// Blocks of 256 threads for so many threads.
pub(super) fn blocks(threads: usize) -> [u32; 3] {
    [u32::try_from(threads.div_ceil(THREADS as usize)).expect("a grid of fewer than 2^31 blocks"), 1, 1]
}
