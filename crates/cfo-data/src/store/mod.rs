//! Trajectory files: recognised by content, read in pieces, written in one stream.

mod array;
mod bounded;
mod chunks;
mod file;
mod hdf5;
mod hdf5_writer;
mod lpsda;
mod lzf;
mod npy;
mod npz_output;
mod pdebench;
mod pdebench_output;
mod source;
mod spool;
mod table;
mod table_output;
mod the_well;
mod turned;
mod writer;
mod zip;

pub use file::{Layout, TrajectoryFile};
pub use writer::{Compression, OutputLayout, TrajectoryWriter, WriteOptions};
