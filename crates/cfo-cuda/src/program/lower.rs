//! Lowering: each operation of a planned graph becomes launches of kernels and calls of libraries with fixed
//! addresses. Nothing here needs a device, so all kernels can be compiled and looked at without one.

use std::collections::HashMap;

use crate::convolution::conv::{self, Algorithm, Convolution};
use crate::convolution::cudnn_plan::Planned;
use crate::convolution::scaled_f16;
use crate::norm::conv_row_norm;
use crate::norm::group_norm;
use crate::norm::layer_norm;
use crate::op::attention;
use crate::op::expression;
use crate::op::layout;
use crate::op::loss;
use crate::op::optimizer;
use crate::op::random;
use crate::op::reduce;
use crate::op::resample;
use crate::op::sample_path;
use crate::op::wavelet;
use crate::product::matmul;
use crate::program::code::Code;
use crate::program::instruction::{GroupNorm, Instruction};
use crate::program::scalar::Scalar;
use crate::program::schedule::Access;
use crate::runtime::compile;
use cfo_engine::Precision;
use cfo_engine::Shape;

/// Threads of a block in all kernels that do not say otherwise.
pub(crate) const THREADS: u32 = 256;

/// A source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum File {
    Prelude,
    Reduce,
    Loss,
    Random,
    Optimizer,
    SamplePath,
    GroupNorm,
    GroupNormCluster,
    GroupNormPersistent,
    LayerNorm,
    Attention,
    AttentionTiles,
    AttentionHeads,
    Conv,
    ConvFewChannels,
    ConvRow,
    ConvRowNorm,
    ScaledF16,
    Resample,
    Wavelet,
    GemmThin,
    GemmGeluSm90,
    GemmSplitTf32,
    GemmSplitTf32Resident,
}

impl File {
    /// Kernels that are compiled together: few enough to compile side by side, many enough to share the prelude.
    fn unit(self) -> usize {
        match self {
            // Tensor cores' kernels take the compiler half a second each, those of whole groups of warps longer.
            Self::ConvRow | Self::ConvRowNorm => 2,
            Self::GemmSplitTf32 | Self::GemmSplitTf32Resident => 1,
            _ => 12,
        }
    }

    fn text(self) -> String {
        let parts: &[&str] = match self {
            Self::Prelude => &[],
            Self::Reduce => &[include_str!("../kernels/op/reduce.cu")],
            Self::Loss => &[include_str!("../kernels/op/loss.cu")],
            Self::Random => &[include_str!("../kernels/op/random.cu")],
            Self::Optimizer => &[include_str!("../kernels/op/optimizer.cu")],
            Self::SamplePath => &[include_str!("../kernels/op/sample_path.cu")],
            Self::GroupNorm => &[include_str!("../kernels/norm/group_norm.cu")],
            Self::GroupNormCluster => &[ASYNC_COPY, GROUP_NORM_CLUSTER],
            Self::GroupNormPersistent => {
                &[ASYNC_COPY, GROUP_NORM_CLUSTER, include_str!("../kernels/norm/group_norm_persistent.cu")]
            }
            Self::LayerNorm => &[include_str!("../kernels/norm/layer_norm.cu")],
            Self::Attention => &[include_str!("../kernels/op/attention.cu")],
            Self::AttentionTiles => &[MMA, include_str!("../kernels/op/attention_tiles.cu")],
            Self::AttentionHeads => &[ASYNC_COPY, MMA, include_str!("../kernels/op/attention_heads.cu")],
            Self::Conv => &[include_str!("../kernels/convolution/conv.cu")],
            Self::ConvFewChannels => {
                &[ASYNC_COPY, MMA, include_str!("../kernels/convolution/conv_few_channels.cu")]
            }
            Self::ConvRow => &[ASYNC_COPY, MMA, CONV_ROW],
            Self::ConvRowNorm => {
                &[ASYNC_COPY, MMA, CONV_ROW, include_str!("../kernels/norm/conv_row_norm.cu")]
            }
            Self::ScaledF16 => &[include_str!("../kernels/convolution/scaled_f16.cu")],
            Self::Resample => &[include_str!("../kernels/op/resample.cu")],
            Self::Wavelet => &[include_str!("../kernels/op/wavelet.cu")],
            Self::GemmThin => &[include_str!("../kernels/product/gemm_thin.cu")],
            Self::GemmGeluSm90 => &[ASYNC_COPY, include_str!("../kernels/product/gemm_gelu_sm90.cu")],
            Self::GemmSplitTf32 => &[ASYNC_COPY, MMA, GEMM_SPLIT_TF32],
            Self::GemmSplitTf32Resident => &[
                ASYNC_COPY,
                MMA,
                GEMM_SPLIT_TF32,
                include_str!("../kernels/product/gemm_split_tf32_resident.cu"),
                include_str!("../kernels/product/gemm_split_tf32_wgrad.cu"),
            ],
        };
        parts.concat()
    }
}

const PRELUDE: &str = include_str!("../kernels/common/prelude.cu");
const ASYNC_COPY: &str = include_str!("../kernels/common/async_copy.cu");
const MMA: &str = include_str!("../kernels/common/mma.cu");
const CONV_ROW: &str = include_str!("../kernels/convolution/conv_row.cu");
const GROUP_NORM_CLUSTER: &str = include_str!("../kernels/norm/group_norm_cluster.cu");
const GEMM_SPLIT_TF32: &str = include_str!("../kernels/product/gemm_split_tf32.cu");

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
pub(crate) enum Argument {
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
pub(crate) struct Launch {
    pub(crate) kernel: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) threads: u32,
    pub(crate) shared: u32,
    pub(crate) cluster: u32,
    pub(crate) arguments: Vec<Argument>,
}

/// What the device does.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    Launch(Launch),
    Product(matmul::Product),
    Convolution(Convolution),
    Planned(Planned),
}

/// One piece of work and where it comes from.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    pub(crate) label: String,
    /// Whether it changes tensors that outlive the run.
    pub(crate) effect: bool,
    pub(crate) access: Access,
    pub(crate) work: Work,
}

/// A value on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value {
    pub(crate) address: u64,
    pub(crate) scalar: Scalar,
    pub(crate) count: usize,
}

/// What one operation reads and writes.
#[derive(Clone, Debug)]
pub(crate) struct Io {
    pub(crate) inputs: Vec<Value>,
    pub(crate) outputs: Vec<Value>,
    /// Address of memory for intermediate results.
    pub(crate) scratch: u64,
}

/// What programs are lowered for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) precision: Precision,
    pub(crate) multiprocessors: u32,
    /// Whether tensor cores work for warpgroups.
    pub(crate) warpgroups: bool,
}

/// The program as it grows.
#[derive(Debug)]
pub(crate) struct Lowering {
    pub(crate) precision: Precision,
    pub(crate) multiprocessors: u32,
    /// Bytes of shared memory that a block may have.
    pub(crate) shared: u32,
    /// Whether tensor cores work for warpgroups.
    pub(crate) warpgroups: bool,
    kernels: Vec<Kernel>,
    known: HashMap<Kernel, usize>,
    pub(crate) commands: Vec<Command>,
    pub(crate) tables: Vec<Vec<u8>>,
    pub(crate) tickets: usize,
    label: String,
    effect: bool,
    access: Access,
    supports: Option<Probe>,
    /// Whether every run must yield the same bits.
    pub(crate) deterministic: bool,
    /// Whether blocks wait for each other somewhere, so that no other kernel may take their place on the device.
    pub(crate) alone: bool,
}

/// A question about a product.
type Question<T> = Box<dyn Fn(&matmul::Product) -> T>;

/// Asks the library about products.
pub(crate) struct Probe {
    /// Whether it can do one.
    pub(crate) can: Question<bool>,
    /// Milliseconds that one takes, if it can do it.
    pub(crate) time: Question<Option<f32>>,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl Lowering {
    pub(crate) fn new(
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

    pub(crate) fn target(&self) -> Target {
        let Self { precision, multiprocessors, warpgroups, .. } = *self;
        Target { precision, multiprocessors, warpgroups }
    }

    /// Whether the library can do a product; assumed where there is no device to ask.
    pub(crate) fn supports(&self, product: &matmul::Product) -> bool {
        self.supports.as_ref().is_none_or(|probe| (probe.can)(product))
    }

    /// Whether the library does a product with all that follows no slower than the plain product and a pass of ours over
    /// so many bytes; assumed where there is no device to ask.
    pub(crate) fn worthwhile(&self, fused: &matmul::Product, plain: &matmul::Product, bytes: usize) -> bool {
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
    pub(crate) fn begin(&mut self, label: &str, effect: bool, access: Access) {
        self.label = label.into();
        self.effect = effect;
        self.access = access;
    }

    /// Appends a launch of a kernel of 256 threads; parameters and body are C++.
    pub(crate) fn launch(
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
    pub(crate) fn launch_with(
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
    pub(crate) fn launch_resident(
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
    pub(crate) fn launch_clusters(
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

    pub(crate) fn append(&mut self, work: Work) {
        let (label, access) = (self.label.clone(), self.access.clone());
        self.commands.push(Command { label, effect: self.effect, access, work });
    }

    /// A table to be uploaded with the program.
    pub(crate) fn table(&mut self, bytes: Vec<u8>) -> Argument {
        self.tables.push(bytes);
        Argument::Table(self.tables.len() - 1)
    }

    /// Counters that are 0 between launches.
    pub(crate) fn ticket(&mut self, count: usize) -> Argument {
        let first = self.tickets;
        self.tickets += count;
        Argument::Tickets(first)
    }

    /// Whether functions may be less accurate than single precision.
    pub(crate) fn fast(&self) -> bool {
        self.precision != Precision::F32
    }

    /// A kernel as text.
    pub(crate) fn signature(&self, kernel: usize) -> String {
        let Kernel { parameters, body, threads, resident, cluster, .. } = &self.kernels[kernel];
        format!("({threads}, {resident}, {cluster}) ({parameters}) {{ {} }}", body.replace('\n', "\n    "))
    }

    /// The sources of all kernels, and for each kernel its unit and its name there.
    pub(crate) fn units(&self, architecture: u32) -> (Vec<compile::Unit>, Vec<(usize, String)>) {
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
pub(crate) fn lower(
    code: &Code,
    id: usize,
    convolution: Algorithm,
    advances: bool,
    io: &Io,
    to: &mut Lowering,
) {
    let entry = &code.entries[id];
    let scalar = Shape::scalar();
    let output = entry.outputs.first().map_or(&scalar, |output| &output.shape);
    let input = |index: usize| -> &Shape { &code.value_type(entry.inputs[index]).shape };
    if entry.outputs.iter().any(|output| output.shape.is_empty()) {
        return;
    }
    match &entry.op {
        Instruction::Tensor(_) | Instruction::Constant(_) | Instruction::Reshape(_) => {}
        Instruction::Expression(op) => expression::lower(op, io, to),
        Instruction::Sum(op) => {
            reduce::lower(op, op.of.as_ref().map_or(input(0), |(_, shape)| shape), io, to)
        }
        Instruction::Embed(op) => layout::embed(op, input(0), io, to),
        Instruction::Concat(op) => {
            let widths: Vec<usize> = op
                .values(&entry.inputs)
                .iter()
                .map(|&value| code.shape(value).axes()[op.axis..].iter().product())
                .collect();
            layout::concat(&widths, &op.biased, io, to);
        }
        Instruction::MatMul(op) => matmul::lower(op, io, to),
        Instruction::MeanSquaredError(_) => loss::mean_squared_error(io, to),
        Instruction::Random(op) => random::lower(op, io, to),
        Instruction::SamplePath(op) => sample_path::lower(op, input(0), input(2), io, to),
        Instruction::Gather(_) => layout::gather(input(0), io, to),
        Instruction::Pad(op) => conv::pad(op.mode, op.before, (input(0), output), false, io, to),
        Instruction::Fold(op) => conv::pad(op.mode, op.before, (output, input(0)), true, io, to),
        Instruction::Conv(_) | Instruction::ConvInput(_) | Instruction::ConvWeight(_) => {
            let geometry = conv::Geometry::of(code, id, to.precision).expect("these are convolutions");
            conv::lower(&geometry, convolution, io, to);
        }
        Instruction::ScaleF16(op) => {
            let shapes: Vec<&Shape> = (0..entry.inputs.len()).map(input).collect();
            scaled_f16::lower(op, &shapes, io, to);
        }
        Instruction::LayerNorm(op) => layer_norm::lower(op, input(0), io, to),
        Instruction::LayerNormBackward(op) => layer_norm::lower_backward(op, input(0), io, to),
        Instruction::Attention(op) => attention::lower(op.heads, input(0), io, to),
        Instruction::AttentionBackward(op) => attention::lower_backward(op.heads, input(0), io, to),
        Instruction::Resample(op) => resample::lower(op.mode, (input(0), output), false, io, to),
        Instruction::ResampleBackward(op) => resample::lower(op.mode, (output, input(0)), true, io, to),
        Instruction::Wavelet(op) => wavelet::lower(op, input(0), io, to),
        Instruction::GroupNorm(op) if op.of.is_some() => conv_row_norm::lower(op, code, id, io, to),
        Instruction::GroupNorm(op) => group_norm::lower(op, input(0), io, to),
        Instruction::GroupNormBackward(op) => group_norm::lower_backward(op, input(0), io, to),
        Instruction::GlobalNorm(_) => optimizer::global_norm(io, to),
        Instruction::Adam(op) => optimizer::adam(op, advances, io, to),
        Instruction::Assign(_) => optimizer::assign(io, to),
        Instruction::Advance(_) => optimizer::advance(io, to),
    }
}

/// Bytes of scratch memory that an operation needs.
pub(crate) fn scratch(code: &Code, id: usize, target: Target) -> usize {
    let multiprocessors = target.multiprocessors;
    let entry = &code.entries[id];
    let input = |index: usize| -> &Shape { &code.value_type(entry.inputs[index]).shape };
    match &entry.op {
        Instruction::Sum(op) => {
            reduce::scratch(op, op.of.as_ref().map_or(input(0), |(_, shape)| shape), multiprocessors)
        }
        Instruction::MatMul(op) => matmul::scratch(op, target),
        Instruction::GroupNorm(GroupNorm { of: Some(_), .. }) => 0,
        Instruction::GroupNorm(op) => group_norm::scratch(op, input(0), multiprocessors),
        Instruction::GroupNormBackward(op) => {
            group_norm::scratch_backward(&op.forward, input(0), multiprocessors)
        }
        Instruction::LayerNormBackward(op) => layer_norm::scratch_backward(op, input(0), multiprocessors),
        Instruction::AttentionBackward(op) => attention::scratch_backward(op.heads, input(0)),
        Instruction::Wavelet(_) => wavelet::scratch(input(0)),
        Instruction::ScaleF16(_) => scaled_f16::scratch(entry.outputs[0].shape.len(), multiprocessors),
        Instruction::MeanSquaredError(_) => loss::scratch(input(0).len(), multiprocessors),
        Instruction::GlobalNorm(_) => {
            optimizer::norm_scratch(entry.inputs.iter().map(|&n| code.shape(n).len()))
        }
        _ => 0,
    }
}

/// Elements that one thread moves at once: the widest of 8 (with bf16), 4 and 2 that divides all lengths.
pub(crate) fn vector(half: bool, lengths: impl IntoIterator<Item = usize> + Clone) -> usize {
    let widths: &[usize] = if half { &[8, 4, 2] } else { &[4, 2] };
    let fits = |width: usize| lengths.clone().into_iter().all(|length| length % width == 0);
    widths.iter().copied().find(|&width| fits(width)).unwrap_or(1)
}

/// Blocks of 256 threads for so many threads.
pub(crate) fn blocks(threads: usize) -> [u32; 3] {
    [u32::try_from(threads.div_ceil(THREADS as usize)).expect("a grid of fewer than 2^31 blocks"), 1, 1]
}
