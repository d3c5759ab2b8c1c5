//! The CUDA backend: runs programs on an NVIDIA GPU.
//!
//! A fused graph is rewritten by the passes, *typed* (which values are bf16), planned, *lowered* to launches with fixed
//! addresses, compiled by NVRTC, captured as a CUDA graph on the first run and replayed afterwards. Operations are in
//! `product/`, `convolution/`, `norm/` and `op/`, their kernels in folders of the same names in `kernels/`.

mod backend;
mod convolution;
mod norm;
mod op;
mod passes;
mod product;
mod program;
mod report;
mod runtime;

#[cfg(test)]
mod tests;

pub use backend::Cuda;
pub use program::listing::{Listing, listing};
pub use report::{CudaDevice, CudaLibrary, CudaReport, gpu_count};
