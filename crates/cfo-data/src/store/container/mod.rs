//! Containers of arrays: HDF5 files, and ZIP files of NumPy arrays.

pub(crate) mod array;
pub(crate) mod hdf5;
pub(crate) mod npy;
mod spool;
mod turned;
pub(crate) mod zip;
