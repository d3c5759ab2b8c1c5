//! The command from outside: what scripts and people see of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod devices;
mod grids;
mod help;
mod inspect;
mod noise;
mod queue;
mod reproduce;
mod simulate;
mod train;
mod util;
