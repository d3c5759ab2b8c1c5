//! Matrix products: by cuBLASLt, and by our own kernels where these are faster.

pub(crate) mod cublas;
pub(crate) mod gemm_gelu_sm90;
pub(crate) mod gemm_split_tf32;
pub(crate) mod gemm_thin;
pub(crate) mod matmul;
