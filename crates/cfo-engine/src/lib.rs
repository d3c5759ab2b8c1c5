//! Static graphs of tensor operations: differentiated, fused, planned, and run by a backend.
//!
//! A [`Graph`] is built once for fixed shapes, by methods that check shapes as they append. A [`Formula`] appends the
//! same operations with operators. Derivatives are appended to the same graph. [`Program::compile`] fuses the graph,
//! plans it for the device of a [`Memory`] and binds it to the memory's named tensors. [`Program::run`] then uses the
//! planned buffers. This crate contains no differential equations and no device. Devices implement
//! [`backend::Backend`] in other crates.

mod arithmetic;
pub mod backend;
mod data;
mod differentiate;
mod drain;
mod error;
mod feed;
mod formula;
mod fuse;
mod graph;
mod initial;
mod memory;
pub mod ops;
mod plan;
mod precision;
mod program;
mod role;
mod shape;

pub use cfo_ranks::{Collective, Shards};
pub use data::{Data, Number};
pub use drain::Drain;
pub use error::{EngineError, Result};
pub use feed::{Feed, Page};
pub use formula::{Formula, IntoVar, Var};
pub use graph::{Graph, KeptTensor, Node, Parameter};
pub use initial::Initial;
pub use memory::Memory;
pub use ops::{
    Activation, AdamConfig, BatchDraw, Distribution, GroupNormInputs, Numbering, PadMode, PathData,
    PathSample, PathTensors, Schedule, Wavelet, WaveletFamily, WindowTimes, spectral_modes,
};
pub use plan::Plan;
pub use precision::Precision;
pub use program::Program;
pub use role::Role;
pub use shape::{Element, Shape, Type};
