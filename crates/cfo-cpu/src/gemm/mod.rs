//! Building blocks of matrix products and convolutions: vectors, micro-kernels, packed panels, tasks.

mod kernel;
mod panel;
mod vector;

pub(super) use super::thread_team::{Shared, for_each_task, lanes};
pub(super) use kernel::{
    AHEAD_STEPS, Ahead, Columns, Destination, InnerRun, Rows, load, multiply_columns, multiply_rows,
    multiply_tile, multiply_tile_columns, prefetch,
};
pub(super) use panel::{Strided, pack, pack_left, pack_panel, pack_runs};
pub(super) use vector::{Dispatch, Vector, VectorWork};

/// Largest width of a panel, for which memory is planned.
pub(super) const WIDEST: usize = 32;
/// Largest width of a panel of a plain product, which has [`Vector::SHEET`] columns.
pub(super) const SHEET: usize = 64;
