//! The CPU backend: runs a planned graph on all cores. One file per operation, named as in the engine's `ops/`.

mod all_reduce;
mod attention;
mod backend;
mod buffer;
mod conv;
mod executor;
mod expression;
mod gemm;
mod group_norm;
mod kernel;
#[cfg(test)]
mod laws;
mod layer_norm;
mod layout;
mod loss;
mod matmul;
mod optimizer;
mod random;
mod reduce;
mod room;
mod sample_path;
pub(crate) mod scalar;
pub(crate) mod simd;
mod thread_team;
mod wavelet;

pub use backend::Cpu;
pub use buffer::roomy;
#[doc(hidden)]
pub use expression::apply;
pub use room::available_memory;
#[doc(hidden)]
pub use simd::Level;
pub use simd::name as simd_name;

pub(crate) use buffer::Io;

/// Number of threads that programs use.
pub fn threads() -> usize {
    rayon::current_num_threads()
}
