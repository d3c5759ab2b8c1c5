//! The command from outside: what scripts and people see of it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bench;
mod cautions;
mod devices;
mod documents;
mod export;
mod faults;
mod foreign;
mod grids;
mod held_out_times;
mod help;
mod init;
mod inspect;
mod near_times;
mod noise;
mod offsets;
mod own_data;
mod queue;
mod rank_faults;
mod ranks;
mod references;
mod reproduce;
mod reproduce_all;
mod rollouts;
mod runs;
mod serve;
mod simulate;
mod solver_training;
mod terminal;
mod train;
mod uneven_times;
mod util;
mod view;
