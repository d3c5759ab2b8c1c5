//! Kernels: their files, and the sources that are compiled.

use crate::runtime::compile;

macro_rules! files {
    ($($file:ident: $($part:literal)*;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub(crate) enum KernelFile {
            $($file,)*
        }

        impl KernelFile {
            fn text(self) -> String {
                let parts: &[&str] = match self {
                    $(Self::$file => &[$(include_str!(concat!("../kernels/", $part, ".cu"))),*],)*
                };
                parts.concat()
            }
        }
    };
}

// What each file is made of, after the prelude.
files! {
    Prelude:;
    Reduce: "op/reduce";
    Loss: "op/loss";
    Random: "op/random";
    Optimizer: "op/optimizer";
    SamplePath: "op/sample_path";
    GroupNorm: "norm/group_norm";
    GroupNormCluster: "common/async_copy" "norm/group_norm_cluster";
    GroupNormPersistent: "common/async_copy" "norm/group_norm_cluster" "norm/group_norm_persistent";
    LayerNorm: "norm/layer_norm";
    Attention: "op/attention";
    AttentionTiles: "common/mma" "op/attention_tiles";
    AttentionHeads: "common/async_copy" "common/mma" "op/attention_heads";
    Conv: "convolution/conv";
    ConvFewChannels: "common/async_copy" "common/mma" "convolution/conv_few_channels";
    ConvRow: "common/async_copy" "common/mma" "convolution/conv_row";
    ConvRowNorm: "common/async_copy" "common/mma" "convolution/conv_row" "norm/conv_row_norm";
    ScaledF16: "convolution/scaled_f16";
    Wavelet: "op/wavelet";
    GemmThin: "product/gemm_thin";
    GemmGeluSm90: "common/async_copy" "product/gemm_gelu_sm90";
    GemmSplitTf32: "common/async_copy" "common/mma" "product/gemm_split_tf32";
    GemmSplitTf32Resident: "common/async_copy" "common/mma" "product/gemm_split_tf32"
        "product/gemm_split_tf32_resident" "product/gemm_split_tf32_wgrad";
}

const PRELUDE: &str = include_str!("../kernels/common/prelude.cu");

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
}

/// A kernel: a body that calls templates of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kernel {
    pub(crate) file: KernelFile,
    pub(crate) parameters: String,
    pub(crate) body: String,
    pub(crate) threads: u32,
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
