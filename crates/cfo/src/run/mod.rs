//! The folder of a run: recipe, log, checkpoints.

pub mod checkpoint;
mod folder;
mod log;
mod outcome;
mod report;
mod wall_time;

pub(crate) use folder::Folder;
pub(crate) use log::{Log, read_log, write_log};
pub use outcome::Ending;
pub(crate) use outcome::Outcome;
pub use report::StepReport;
pub use wall_time::WallTime;
pub(crate) use wall_time::timed;
