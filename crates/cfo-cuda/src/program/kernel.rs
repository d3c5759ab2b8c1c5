//! Kernels: their files, and the sources that are compiled.

use crate::runtime::compile;

/// A source file of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum KernelFile {
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

impl KernelFile {
    /// Kernels that are compiled together: few enough to compile units in parallel, many enough to share the prelude.
    fn unit(self) -> usize {
        match self {
            // Kernels on tensor cores take half a second each to compile, those with `wgmma` longer.
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

/// A kernel: a body that calls templates of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    pub(crate) file: KernelFile,
    /// Its C++ signature.
    pub(crate) parameters: String,
    pub(crate) body: String,
    pub(crate) threads: u32,
    /// Number of blocks per multiprocessor.
    pub(crate) resident: u32,
    /// Number of blocks of a cluster, which access each other's shared memory.
    pub(crate) cluster: u32,
}

/// The sources of all kernels, and for each kernel its unit and its name in the unit.
pub(crate) fn units(
    kernels: &[Kernel],
    architecture: u32,
    fast: bool,
) -> (Vec<compile::CompileUnit>, Vec<(usize, String)>) {
    let mut order: Vec<usize> = (0..kernels.len()).collect();
    order.sort_by_key(|&kernel| kernels[kernel].file);
    let mut places = vec![(0, String::new()); kernels.len()];
    let mut units = Vec::new();
    let groups = order.chunk_by(|&a, &b| kernels[a].file == kernels[b].file);
    let unit = |group: &[usize]| kernels[group[0]].file.unit();
    for members in groups.flat_map(|group| group.chunks(unit(group))) {
        let mut source = format!("{PRELUDE}\n{}\n", kernels[members[0]].file.text());
        for (position, &kernel) in members.iter().enumerate() {
            places[kernel] = (units.len(), format!("kernel{position}"));
            source += &kernels[kernel].source(position);
        }
        units.push(compile::CompileUnit { source, architecture, fast });
    }
    (units, places)
}

impl Kernel {
    /// The kernel's code with a unique name in its unit.
    fn source(&self, position: usize) -> String {
        let Self { parameters, body, threads, resident, cluster, .. } = self;
        let cluster = match cluster {
            1 => String::new(),
            blocks => format!("__cluster_dims__({blocks}, 1, 1) "),
        };
        format!(
            "extern \"C\" __global__ void {cluster}__launch_bounds__({threads}, {resident}) kernel{position}({parameters}) {{\n{body}\n}}\n"
        )
    }
}
