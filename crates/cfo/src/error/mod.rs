//! The error type of this crate.

mod divergence;

use std::path::PathBuf;

use cfo_data::distance;
use cfo_data::simulate::SimulationError;
use cfo_engine::EngineError;

pub use divergence::{BatchSize, Divergence, Halt};

/// The error of this crate's functions.
///
/// The message contains what was found and what was needed. [`CfoError::hint`] returns advice on what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CfoError {
    /// The recipe is not valid TOML, or its structure is wrong.
    #[error("the recipe is not valid: {problem}")]
    BadRecipe {
        /// What is wrong.
        problem: String,
    },
    /// The recipe has a key that does not exist.
    #[error("the recipe has an unknown key or choice `{found}`")]
    UnknownKey {
        /// What was found.
        found: String,
        /// The most similar key or choice.
        nearest: Option<String>,
    },
    /// A key has a value out of range.
    #[error("`{key}`: {problem}")]
    InvalidKey {
        /// Key with its section.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A key has an unknown choice.
    #[error("`{key}`: unknown choice `{found}`; known are `{}`", known.join("`, `"))]
    UnknownChoice {
        /// Key with its section.
        key: String,
        /// What was found.
        found: String,
        /// The known choices.
        known: Vec<String>,
    },
    /// The data do not suit the request.
    #[error("{problem}")]
    BadData {
        /// What was found and what was needed.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// The folder for a new run already holds a run.
    #[error("`{}` already holds a run", folder.display())]
    RunExists {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process trains in the folder.
    #[error("{holder} is training in `{}`", folder.display())]
    RunBusy {
        /// The folder.
        folder: PathBuf,
        /// Process and machine.
        holder: String,
    },
    /// The folder has no checkpoint, so it is not the folder of a run.
    #[error("`{}` is not the folder of a run: it has no checkpoint", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// Neither the recipe nor the caller names data.
    #[error("no data were given: the recipe has neither `data.path` nor `data.simulate`")]
    NoData,
    /// The network cannot be built for the grid of the data.
    #[error("operator `{operator}` does not support {found}: {needed}")]
    BadGrid {
        /// Name of the network.
        operator: &'static str,
        /// The grid found.
        found: String,
        /// Grids that the network supports.
        needed: String,
    },
    /// A file of a run is missing, damaged or of another version.
    #[error("{}: {problem}", path.display())]
    BadCheckpoint {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The training step does not fit into the memory of the device.
    #[error(
        "a batch of {batch} needs {} of device memory, but {} are free",
        gibibytes(*needed),
        gibibytes(*available)
    )]
    BatchTooLarge {
        /// Number of samples in the batch.
        batch: usize,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that the device has free.
        available: u64,
    },
    /// The weights do not fit into memory.
    #[error(
        "a network with {parameters} parameters needs {} for weights, gradients and optimiser, but {} are free",
        gibibytes(*needed),
        gibibytes(*available)
    )]
    NetworkTooLarge {
        /// Number of trainable parameters.
        parameters: usize,
        /// Number of bytes for weights, gradients and the state of the optimiser.
        needed: u64,
        /// Number of free bytes.
        available: u64,
    },
    /// The loss became NaN or infinite, or grew without bound.
    #[error("{}", seen.text(*step, *loss))]
    Diverged {
        /// The step.
        step: u32,
        /// The loss.
        loss: f64,
        /// Further observations.
        seen: Box<Divergence>,
        /// Name of the last checkpoint before the divergence.
        last_good: Option<String>,
    },
    /// A rollout ended before the last requested time.
    #[error("the integration of trajectory {trajectory} {halt} after time {time}")]
    RolloutDiverged {
        /// Index of the trajectory in the request.
        trajectory: usize,
        /// The last time that was reached, in the user's units.
        time: f64,
        /// Why it ended.
        halt: Halt,
    },
    /// A rollout was interrupted.
    #[error("interrupted during a rollout")]
    RolloutInterrupted,
    /// Training was interrupted.
    #[error("interrupted at step {step}")]
    Interrupted {
        /// The last completed step.
        step: u32,
    },
    /// An error of the operating system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An error of the engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// An error of a simulator.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// An error of a trajectory file.
    #[error(transparent)]
    Data(#[from] cfo_data::DataError),
    /// An error between the processes (ranks) of a job.
    #[error(transparent)]
    Ranks(#[from] cfo_ranks::RanksError),
    /// Another process of the job failed and reported its error.
    #[error("another rank failed")]
    Elsewhere,
}

impl CfoError {
    /// Creates an error for a key or an option with an invalid value.
    pub fn invalid(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::InvalidKey { key: key.into(), problem: problem.into() }
    }

    /// Creates an error for data or files that cannot be used.
    pub fn bad_data(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::BadData { problem: problem.into(), hint: hint.into() }
    }

    /// Converts an error of the engine for a training step. Lack of memory is reported with the size of the batch.
    pub(crate) fn of_step(error: EngineError, batch: usize) -> Self {
        match error {
            EngineError::OutOfMemory { needed, available } => {
                Self::BatchTooLarge { batch, needed, available }
            }
            other => other.into(),
        }
    }

    /// Converts an error of the engine for a network's weights. Lack of memory is reported with the number of parameters.
    pub fn of_network(error: EngineError, parameters: usize) -> Self {
        match error {
            EngineError::OutOfMemory { needed, available } => {
                Self::NetworkTooLarge { parameters, needed, available }
            }
            other => other.into(),
        }
    }

    /// Returns the known key or choice that is most similar to an unknown one. Names of solvers are too similar for a suggestion.
    pub fn nearest(&self) -> Option<&str> {
        match self {
            Self::UnknownKey { nearest, .. } => nearest.as_deref(),
            Self::UnknownChoice { key, found, known } if !key.ends_with("solver") => {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                near(found, &known)
            }
            _ => None,
        }
    }

    /// Returns advice on what to do next, if there is any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { nearest: Some(nearest), .. } => Some(format!("did you mean `{nearest}`?")),
            Self::InvalidKey { key, .. } => Some(key_hint(key)),
            Self::UnknownChoice { key, .. } => match self.nearest() {
                Some(word) => Some(format!("did you mean `{word}`?")),
                None => Some(key_hint(key)),
            },
            Self::BadData { hint, .. } => Some(hint.clone()),
            Self::Ranks(error) => Some(error.hint()),
            Self::RunExists { .. } => Some("resume it, or choose another folder".into()),
            Self::RunBusy { .. } => Some("wait until it ends, or choose another folder".into()),
            Self::NoRun { .. } => Some("check the path, or train a run in this folder first".into()),
            Self::NoData => Some("set `data.path` or `data.simulate`".into()),
            Self::BadGrid { .. } => {
                Some("choose another operator or other sizes under `[operator]`, or resample the data".into())
            }
            Self::BatchTooLarge { batch, needed, available } => {
                // Memory grows with the batch; 5 % are reserved for parts that do not.
                let fits = (0.95 * *batch as f64 * *available as f64 / (*needed).max(1) as f64) as usize;
                Some(match fits {
                    _ if fits >= *batch => {
                        "other programs use the memory; on a GPU `nvidia-smi` lists them".into()
                    }
                    0 => "not even one sample fits: choose a smaller network, or the CPU".into(),
                    _ => format!("`train.batch = {fits}` would fit"),
                })
            }
            Self::NetworkTooLarge { parameters, needed, available } => {
                let fits = *parameters as f64 * *available as f64 / (*needed).max(1) as f64;
                Some(format!("lower the sizes under `[operator]`: about {fits:.0} parameters would fit"))
            }
            Self::Diverged { step, loss, seen, last_good } => {
                Some(seen.hint(*step, *loss, last_good.as_deref()))
            }
            Self::BadCheckpoint { .. } => Some(
                "resume the run from its newest intact checkpoint, or load another checkpoint by its name"
                    .into(),
            ),
            Self::Interrupted { .. } => Some("resume the run to continue from this step".into()),
            Self::BadRecipe { .. } => {
                Some("`docs/reference/recipe.md` lists every key, and `recipes/` has examples".into())
            }
            Self::RolloutDiverged { .. } => Some("train longer, or allow more evaluations".into()),
            Self::Engine(error) => engine_hint(error),
            Self::Simulation(error) => error.hint(),
            Self::Data(error) => error.hint(),
            _ => None,
        }
    }

    /// Returns whether the input is wrong (exit code 2 of the command), rather than the work failed (exit code 1).
    pub fn is_bad_input(&self) -> bool {
        match self {
            Self::Diverged { .. }
            | Self::RolloutDiverged { .. }
            | Self::RolloutInterrupted
            | Self::Interrupted { .. }
            | Self::Io(_) => false,
            Self::Engine(error) => matches!(error, EngineError::DeviceUnavailable { .. }),
            Self::Data(error) => error.is_bad_input(),
            _ => true,
        }
    }
}

fn engine_hint(error: &EngineError) -> Option<String> {
    match error {
        EngineError::OutOfMemory { needed, available } if 20 * available > 19 * needed => {
            Some("other programs use the rest; on a GPU `nvidia-smi` lists them".into())
        }
        EngineError::OutOfMemory { needed, available } => Some(format!(
            "a batch of about {:.0} % of this size would fit, if no other program uses the memory (`nvidia-smi` lists those on a GPU)",
            95.0 * *available as f64 / *needed as f64
        )),
        other => other.hint(),
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

fn key_hint(key: &str) -> String {
    match key {
        "evaluate.nfe" => {
            "raise it, set it to 0 so that the solver chooses its steps, or choose a solver with fewer stages"
                .into()
        }
        "nfe" => "raise it, or choose a solver with fewer stages".into(),
        "rtol" => "write `rtol = 1e-4` and `atol = 1e-6`, for example".into(),
        "solver" | "evaluate.solver" => {
            "`tsit5`, `dopri5` and `heun` can choose their steps by tolerances; `rk4` and `euler` take equal steps"
                .into()
        }
        key => format!("change `{key}` in the recipe; `docs/reference/recipe.md` lists all keys"),
    }
}

/// Returns the known word with the fewest edits, if at most half of the letters differ.
pub(crate) fn near<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    nearest(found, known).filter(|word| 2 * distance(found, word) <= found.len())
}

/// Returns the known word with the fewest edits.
pub(crate) fn nearest<'a>(found: &str, known: &[&'a str]) -> Option<&'a str> {
    known.iter().copied().min_by_key(|word| distance(found, word))
}

/// The result of this crate's functions.
pub type Result<T, E = CfoError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_does_not_fit_names_the_batch_that_would() {
        let refused = |needed, available| {
            CfoError::of_step(EngineError::OutOfMemory { needed, available }, 256).hint().unwrap()
        };
        assert_eq!(refused(20 << 30, 10 << 30), "`train.batch = 121` would fit");
        assert!(refused(1 << 40, 1 << 20).contains("not even one"));
        assert!(refused(1 << 20, 1 << 22).contains("other programs"));
    }
}
