//! Integration tests of the engine: derivatives, reference values, determinism, plans, invalid use.
#![allow(clippy::unwrap_used, reason = "a failure is the message")]

mod check;
mod conv;
mod cuda;
mod determinism;
mod gradients;
mod instructions;
mod networks;
mod products;
mod ranks;
mod references;
mod sampling;
mod training;
