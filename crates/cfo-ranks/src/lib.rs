//! The processes that work on one job together, started by `mpiexec` or `srun`.
//!
//! Nothing of MPI is needed to build. A process that a launcher started opens the MPI library of that launcher and joins the
//! others ([`join`]); a process that was started alone opens nothing. [`world`] then hands out the [`Ranks`]: who this process
//! is, and sums, broadcasts and gathers over all of them.
//!
//! All calls of MPI are made on one thread of their own, which also initialised it. MPI's weakest level for programs with
//! threads (`MPI_THREAD_FUNNELED`) is enough for that, sums run beside the computation, and that thread can watch the clock and
//! the other ranks while the computation waits: whoever dies, hangs or fails ends the job, with a message that names the rank.

mod collective;
mod error;
mod fault;
mod heartbeat;
mod launcher;
mod messenger;
mod mpi;
mod notice;
mod numbers;
mod ranks;
mod tree;
mod watch;
mod world;

pub use collective::{Alone, Collective};
pub use error::{RanksError, Result};
pub use launcher::{Launcher, LauncherKind};
pub use messenger::{RankSum, Summing, waited};
pub use numbers::Numbers;
pub use ranks::{Identity, Ranks};
pub use tree::{Shards, add_in_tree};
pub use world::{host_name, join, require_joined, world};
