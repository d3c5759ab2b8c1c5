//! Rewrites of a program in sequence: operations that the device executes in one call become one instruction (fusion).

pub(crate) mod conv_row_norm;
pub(crate) mod gates;
pub(crate) mod merge;
pub(crate) mod periodic;
pub(crate) mod recompute;
pub(crate) mod rewrite;
pub(crate) mod scaled_f16;
pub(crate) mod types;
