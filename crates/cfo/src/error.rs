//! What can go wrong between a recipe and a prediction.

use std::path::PathBuf;

use cfo_data::simulate::SimulationError;
use cfo_engine::EngineError;

use crate::recipe::near;
use crate::train::Divergence;

/// Every failure of this crate; each says what was found and what was needed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CfoError {
    /// The recipe is not what the format asks for.
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
        /// The most similar word that exists.
        nearest: Option<String>,
    },
    /// A key has a value out of range.
    #[error("`{key}`: {problem}")]
    InvalidKey {
        /// Its path.
        key: String,
        /// What is wrong.
        problem: String,
    },
    /// A key has a word that stands for nothing.
    #[error("`{key}`: `{found}` is none of `{}`", known.join("`, `"))]
    UnknownChoice {
        /// Its path.
        key: String,
        /// What was found.
        found: String,
        /// The words that there are.
        known: Vec<String>,
    },
    /// The data do not fit what was asked of them.
    #[error("{problem}")]
    BadData {
        /// What was found and what was needed.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// A folder is to hold a new run and has one already.
    #[error("`{}` already holds a run", folder.display())]
    RunExists {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process trains in the folder.
    #[error("`{}` is being trained in by {holder}", folder.display())]
    RunBusy {
        /// The folder.
        folder: PathBuf,
        /// Which process, on which machine.
        holder: String,
    },
    /// A folder that is to be a run's has no checkpoint.
    #[error("`{}` is not the folder of a run: it has no checkpoint", folder.display())]
    NoRun {
        /// The folder.
        folder: PathBuf,
    },
    /// A recipe says nothing of its data, and nobody else does.
    #[error("the recipe names no data")]
    NoData,
    /// The network cannot take the data's grid.
    #[error("operator `{operator}` cannot take {found}: {needed}")]
    BadGrid {
        /// Which network.
        operator: &'static str,
        /// The grid found.
        found: String,
        /// What it takes.
        needed: String,
    },
    /// A run's file is missing, torn or of another version.
    #[error("{}: {problem}", path.display())]
    BadCheckpoint {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The step does not fit the device.
    #[error("a batch of {batch} needs {needed} bytes on the device, but {available} are free")]
    BatchTooLarge {
        /// The batch asked for.
        batch: usize,
        /// Bytes that it needs.
        needed: u64,
        /// Bytes that the device has free.
        available: u64,
    },
    /// The weights do not fit the machine.
    #[error(
        "a network of {parameters} parameters needs {} for its weights and their training, but {} are free",
        gibibytes(*needed),
        gibibytes(*available)
    )]
    NetworkTooLarge {
        /// Trainable numbers.
        parameters: usize,
        /// Bytes that they need, with what the optimiser keeps for each.
        needed: u64,
        /// Bytes that there are.
        available: u64,
    },
    /// The loss became NaN or infinite, or grew without bound.
    #[error("{}", seen.text(*step, *loss))]
    Diverged {
        /// The step.
        step: u32,
        /// The loss.
        loss: f64,
        /// What else was seen.
        seen: Box<Divergence>,
        /// The last checkpoint from before.
        last_good: Option<String>,
    },
    /// A rollout did not arrive.
    #[error("the integration of trajectory {trajectory} {halt} after time {time}")]
    RolloutDiverged {
        /// Which trajectory of those asked for.
        trajectory: usize,
        /// The last time that was reached, in the user's units.
        time: f64,
        /// Why it went no further.
        halt: crate::rollout::Halt,
    },
    /// A rollout was stopped from outside.
    #[error("interrupted during a rollout")]
    RolloutInterrupted,
    /// The work was stopped from outside.
    #[error("interrupted at step {step}")]
    Interrupted {
        /// The step reached.
        step: u32,
    },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A simulator refused.
    #[error(transparent)]
    Simulation(#[from] SimulationError),
    /// A trajectory file refused.
    #[error(transparent)]
    Data(#[from] cfo_data::DataError),
    /// This process cannot work with the others of its job.
    #[error(transparent)]
    Ranks(#[from] cfo_ranks::RanksError),
    /// Another process of the job failed; it says why.
    #[error("another rank could not go on")]
    Elsewhere,
}

impl CfoError {
    /// A key with a value out of range.
    pub(crate) fn invalid(key: &str, problem: impl Into<String>) -> Self {
        Self::InvalidKey { key: key.into(), problem: problem.into() }
    }

    /// The engine's refusal of a training step, in terms of its batch.
    pub(crate) fn of_step(error: EngineError, batch: usize) -> Self {
        match error {
            EngineError::OutOfMemory { needed, available } => {
                Self::BatchTooLarge { batch, needed, available }
            }
            other => other.into(),
        }
    }

    /// The engine's refusal to make room for a network's weights.
    pub fn of_network(error: EngineError, parameters: usize) -> Self {
        match error {
            EngineError::OutOfMemory { needed, available } => {
                Self::NetworkTooLarge { parameters, needed, available }
            }
            other => other.into(),
        }
    }

    /// The known word that may be meant by one that stands for nothing. Names of solvers are too alike to tell.
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

    /// What to do next, where that can be said.
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
            Self::NoRun { .. } => Some("train into the folder first".into()),
            Self::NoData => Some("set `data.path` or `data.simulate`".into()),
            Self::BadGrid { .. } => Some("choose another operator or its sizes, or resample the data".into()),
            Self::BatchTooLarge { batch, needed, available } => {
                // A plan grows with the batch; 5 % are left to what does not.
                let fits = (0.95 * *batch as f64 * *available as f64 / (*needed).max(1) as f64) as usize;
                Some(match fits {
                    _ if fits >= *batch => {
                        "other programs hold the memory; on a GPU `nvidia-smi` lists them".into()
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
                "resume the run from the newest checkpoint that is whole, or load another by its name".into(),
            ),
            Self::Interrupted { .. } => Some("resume the run to go on from here".into()),
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

    /// Whether the fault lies in what the user gave rather than in the work itself.
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

/// What to do about an error of the engine, which knows nothing of batches.
fn engine_hint(error: &EngineError) -> Option<String> {
    match error {
        EngineError::OutOfMemory { needed, available } if 20 * available > 19 * needed => {
            Some("other programs hold the rest; on a GPU `nvidia-smi` lists them".into())
        }
        EngineError::OutOfMemory { needed, available } => Some(format!(
            "a batch about {:.0} % as large would fit, if other programs hold nothing (`nvidia-smi` lists those of a GPU)",
            95.0 * *available as f64 / *needed as f64
        )),
        other => other.hint(),
    }
}

fn gibibytes(bytes: u64) -> String {
    format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30))
}

/// What a key is to look like.
fn key_hint(key: &str) -> String {
    match key {
        "evaluate.nfe" => {
            "raise it, set it to 0 for steps that the solver chooses, or choose a method with fewer stages"
                .into()
        }
        "nfe" => "raise it, or choose a method with fewer stages".into(),
        "rtol" => "as in `rtol = 1e-4` and `atol = 1e-6`".into(),
        "solver" | "evaluate.solver" => {
            "`tsit5`, `dopri5` and `heun` choose their steps by tolerances; `rk4` and `euler` take equal ones"
                .into()
        }
        key => format!("change `{key}` of the recipe"),
    }
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
