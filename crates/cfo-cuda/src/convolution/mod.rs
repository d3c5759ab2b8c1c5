//! Convolutions: by cuDNN, as products of patches, and by our own kernels where these are faster.

pub(crate) mod algorithm;
pub(crate) mod conv;
pub(crate) mod conv_few_channels;
pub(crate) mod conv_row;
pub(crate) mod cudnn;
pub(crate) mod cudnn_graph;
pub(crate) mod cudnn_plan;
pub(crate) mod scaled_f16;
