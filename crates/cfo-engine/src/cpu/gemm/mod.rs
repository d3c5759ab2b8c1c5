//! What matrix products and convolutions are made of: vectors, micro-kernels, packed panels, tasks.

mod kernel;
mod lane;
mod panel;
mod vector;

pub(super) use kernel::{Columns, Rows, Segment, Target, multiply_columns, multiply_rows, prefetch};
pub(super) use lane::{Shared, for_each_task, lanes};
pub(super) use panel::{Matrix, pack, pack_left};
pub(super) use vector::{Dispatch, Vector, Work};

/// Panels are never wider than this: what memory is planned for.
pub(super) const WIDEST: usize = 32;
