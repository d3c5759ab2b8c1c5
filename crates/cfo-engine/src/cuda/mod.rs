//! CUDA: the same programs on an NVIDIA GPU. One file per operation, named as in `ops/`; kernels in `kernels/`.
//!
//! A fused graph is *typed* (which values are bf16), planned, *lowered* to launches with fixed addresses, compiled by
//! NVRTC, captured as a CUDA graph on the first run and replayed afterwards.

mod attention;
mod choice;
mod compact;
mod compile;
mod conv;
mod cublas;
mod cudnn;
mod cudnn_graph;
mod cudnn_plan;
mod drain;
mod driver;
mod executor;
mod expression;
mod feed;
mod few;
mod gates;
mod group_norm;
mod handles;
mod layer_norm;
mod layout;
pub(crate) mod library;
mod line;
mod line_norm;
mod listing;
mod loss;
mod lower;
mod matmul;
mod merge;
mod norm_kept;
mod optimizer;
mod panel;
mod periodic;
mod random;
mod recompute;
mod reduce;
mod replay;
mod resample;
mod sample_path;
pub(crate) mod scalar;
mod schedule;
mod skinny;
mod tile;
mod typed;
mod wavelet;

#[cfg(test)]
mod compact_tests;
#[cfg(test)]
mod tests;

pub(crate) use drain::Drain;
pub(crate) use driver::{Allocation, Context, count, properties};
pub(crate) use executor::{Executor, numbers, stored};
pub(crate) use feed::{Feed, Pinned};
pub use listing::{Listing, listing};
pub(crate) use typed::Typed;
