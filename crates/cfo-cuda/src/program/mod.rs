//! Lowering of programs, from typed instructions to commands on streams.

pub(crate) mod code;
pub(crate) mod executor;
pub(crate) mod instruction;
pub(crate) mod kernel;
pub(crate) mod launch;
pub(crate) mod listing;
pub(crate) mod lowered;
pub(crate) mod lowering;
pub(crate) mod scalar;
pub(crate) mod schedule;
pub(crate) mod select;
pub(crate) mod typed;

pub(crate) use code::{Code, CodeEntry};
pub(crate) use instruction::Instruction;
pub(crate) use kernel::KernelFile;
pub(crate) use launch::{Argument, Parameters, blocks, vector};
pub(crate) use lowering::{Gpu, GpuWork, Lowering, OpIo, Value};
pub(crate) use scalar::Scalar;
pub(crate) use select::{Scalars, Selected};
