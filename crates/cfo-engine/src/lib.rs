//! A static graph of tensor operations, differentiated, planned and run on the CPU or on CUDA.
//!
//! A [`Graph`] is built once for fixed shapes, by methods that check shapes as they append. Derivatives are appended
//! to the same graph. [`Program::compile`] fuses it, plans its memory and binds it to the named tensors of a
//! [`Memory`]; [`Program::run`] then uses the planned buffers. The crate knows nothing of differential equations.

mod cpu;
mod cuda;
mod device;
mod differentiate;
mod drain;
mod error;
mod feed;
mod fuse;
mod graph;
mod initial;
#[cfg(test)]
mod laws;
mod memory;
pub mod ops;
mod plan;
mod program;
mod shape;

pub use cpu::roomy;
pub use cuda::{Listing, listing as cuda_listing};
pub use device::{CudaDevice, CudaLibrary, CudaReport, Device, DeviceReport, Precision};
pub use drain::Drain;
pub use error::{EngineError, Result};
pub use feed::{Feed, Page};
pub use graph::{Graph, Node, Parameter};
pub use initial::Initial;
pub use memory::{Data, Memory};
pub use ops::{
    Activation, AdamConfig, Distribution, Draw, GroupNormInputs, PadMode, PathData, PathSample, PathTensors,
    ResampleMode, Schedule, WaveletFamily, spectral_modes,
};
pub use plan::Plan;
pub use program::Program;
pub use shape::{Element, Shape, Type};
