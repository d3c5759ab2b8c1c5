//! The folder of a run: recipe, log, checkpoints.

pub mod checkpoint;
mod folder;
mod log;
mod progress;
mod report;
mod wall_time;

pub(crate) use folder::Folder;
pub(crate) use log::{Log, read_log, write_log};
pub use progress::Ending;
pub(crate) use progress::Progress;
pub use report::StepReport;
pub use wall_time::WallTime;
pub(crate) use wall_time::timed;
