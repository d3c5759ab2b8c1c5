//! What can go wrong when processes join.

use std::path::PathBuf;

/// Why this process cannot work with the others.
#[derive(Debug, thiserror::Error)]
pub enum RanksError {
    /// A launcher started this process, and no MPI library was found.
    #[error("`{launcher}` started {} but no MPI library was found", processes(*size))]
    NoMpi {
        /// Who started the process.
        launcher: &'static str,
        /// How many were started, if the launcher tells.
        size: Option<usize>,
        /// The command that installs what suits the launcher.
        install: &'static str,
    },
    /// A launcher started several processes, and this work would be done by each of them.
    #[error("`{launcher}` started {}, each of which would do the same work", processes(*size))]
    NotJoined {
        /// Who started the process.
        launcher: &'static str,
        /// How many were started, if the launcher tells.
        size: Option<usize>,
    },
    /// A library was found and cannot be used.
    #[error("`{}` cannot be used: {problem}", library.display())]
    BadLibrary {
        /// The file.
        library: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The library sees another number of processes than the launcher started.
    #[error("`{launcher}` started {expected} processes, but `{}` sees {found}", library.display())]
    OtherLauncher {
        /// Who started the process.
        launcher: &'static str,
        /// Processes that it started.
        expected: usize,
        /// Processes that MPI sees.
        found: usize,
        /// The library.
        library: PathBuf,
    },
    /// Ranks run different versions of the program, or differ in something else that must be the same.
    #[error("rank {rank} on {host} has {what} {found}, but rank 0 has {expected}")]
    Different {
        /// The first rank that differs.
        rank: usize,
        /// Its machine.
        host: String,
        /// What differs.
        what: &'static str,
        /// There.
        found: String,
        /// At rank 0.
        expected: String,
    },
    /// A call of MPI failed.
    #[error("`{call}` failed with MPI error {code}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: i32,
    },
}

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, RanksError>;

fn processes(size: Option<usize>) -> String {
    size.map_or_else(|| "this process".into(), |size| format!("{size} processes"))
}

impl RanksError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::NoMpi { install, .. } => format!(
                "{install}, or set `CFO_MPI=/path/to/libmpi.so`; with `CFO_MPI=off` every process works alone"
            ),
            Self::NotJoined { launcher, .. } => format!(
                "train on all of them with the command, `{launcher} ... cfo train RECIPE`; with `CFO_MPI=off` every process works alone"
            ),
            Self::BadLibrary { .. } => {
                "set `CFO_MPI=/path/to/libmpi.so` to the library that belongs to the launcher".into()
            }
            Self::OtherLauncher { .. } => {
                "library and launcher must belong together: set `CFO_MPI=/path/to/libmpi.so` to the library of the launcher; under \
                 SLURM choose the interface with `srun --mpi=pmix` (Open MPI) or `srun --mpi=pmi2` (MPICH)"
                    .into()
            }
            Self::Different { what: "version", .. } => "install the same `cfo` on every machine".into(),
            Self::Different { what: "device", .. } => {
                "`cfo devices` under the launcher lists what each rank has; `--device cpu` trains on all CPUs".into()
            }
            Self::Different { what: "weights", .. } => {
                "that machine or MPI gives wrong results: check its memory and its logs; `--resume` continues from the latest \
                 checkpoint"
                    .into()
            }
            Self::Different { .. } => "give every rank the same files and the same command line".into(),
            Self::Call { .. } => "the messages of the launcher have details; check that `mpiexec -n 2 hostname` works".into(),
        }
    }
}
