//! Trajectory files: recognised by content, read in pieces, written as a stream.

mod container;
mod controls;
mod file;
mod layout;
mod memory;
mod merged;
mod stamp;
mod write;

pub use controls::ControlsFile;
pub use file::TrajectoryFile;
pub use layout::Layout;
pub use memory::Held;
pub use stamp::Stamp;
pub use write::{Compression, OutputLayout, TrajectoryWriter, WriteOptions, describe_as_xdmf};
