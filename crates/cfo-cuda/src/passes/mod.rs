//! Rewrites of a program, one after another: what the device does in one call becomes one instruction (fusion).

pub(crate) mod conv_row_norm;
pub(crate) mod gates;
pub(crate) mod merge;
pub(crate) mod periodic;
pub(crate) mod recompute;
pub(crate) mod rewrite;
pub(crate) mod scaled_f16;
pub(crate) mod types;
