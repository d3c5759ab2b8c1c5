//! The driver and its libraries (search, loading, calls); compilation, caching and capture of kernels; batches.

pub(crate) mod compile;
pub(crate) mod drain;
pub(crate) mod driver;
pub(crate) mod feed;
pub(crate) mod handles;
pub(crate) mod host;
pub(crate) mod library;
pub(crate) mod nccl;
pub(crate) mod replay;
pub(crate) mod sums;
