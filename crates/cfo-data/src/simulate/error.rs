//! Errors of simulations.

use super::options::MAX_VALUES;
use crate::TrajectoryError;
use crate::distance::distance;

/// Reasons why a simulation could not start or finish.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// An option has an invalid value.
    #[error("`{name}` is {value}; it must be {need}")]
    Option {
        /// Name of the configuration's field.
        name: String,
        /// The value.
        value: String,
        /// Accepted values.
        need: String,
    },
    /// There is no system or no option of this name.
    #[error("unknown {what} `{found}`; known are `{}`", known.join("`, `"))]
    Unknown {
        /// `system`, or `option` with the name of the system.
        what: String,
        /// The name.
        found: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// One trajectory would be larger than the largest that can be stored.
    #[error(
        "a trajectory of {frames} frames of {points} values is too large; at most {MAX_VALUES} values are possible"
    )]
    TooLarge {
        /// Stored frames.
        frames: usize,
        /// Values in a frame.
        points: usize,
    },
    /// Seed 0 is the benchmark's generator, which is seeded with the index in 32 bits.
    #[error("trajectory {index} of seed {seed} needs a generator seed of more than 32 bits")]
    Seed {
        /// The seed of the data set.
        seed: u64,
        /// Index of the trajectory.
        index: u64,
    },
    /// The state became NaN or infinite, or no step was small enough to continue.
    #[error("the {system} simulation diverged at time {time}")]
    Diverged {
        /// The system.
        system: &'static str,
        /// Time of the last finite state.
        time: f64,
    },
    /// The space grid is too coarse for the solution.
    #[error(
        "the {system} solution is not resolved at time {time}: {share:.1e} of its amplitude is in the finest \
         modes of {points} points"
    )]
    Unresolved {
        /// The system.
        system: &'static str,
        /// Time at which it was detected.
        time: f64,
        /// Amplitude of the finest modes relative to the largest one.
        share: f64,
        /// Points of the internal grid.
        points: usize,
    },
    /// The times of the trajectory are too close to be distinct.
    #[error(transparent)]
    NotATrajectory(#[from] TrajectoryError),
    /// The caller asked to stop.
    #[error("the simulation was interrupted")]
    Interrupted,
    /// One trajectory of many failed.
    #[error("trajectory {index}: {cause}")]
    Trajectory {
        /// Index of the trajectory.
        index: u64,
        /// The error.
        cause: Box<SimulationError>,
    },
}

impl SimulationError {
    /// Advice on what to change, if any.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Option { name, need, .. } => Some(format!("set `{name}` to {need}")),
            Self::Unknown { found, known, .. } => {
                let nearest = known.iter().min_by_key(|name| distance(found, name))?;
                Some(format!("`{nearest}` is the most similar name"))
            }
            Self::TooLarge { .. } => Some("lower `frames` or `grid`".into()),
            Self::Seed { .. } => Some("choose a seed other than 0, or fewer than 4294967296 samples".into()),
            Self::Diverged { .. } => Some(
                "move the system's parameters closer to their defaults, or lower the step or the tolerance"
                    .into(),
            ),
            Self::Unresolved { points, .. } => {
                Some(format!("raise `resolution` above {points}, or raise `viscosity`"))
            }
            Self::NotATrajectory(error) => error.hint(),
            Self::Interrupted => None,
            Self::Trajectory { cause, .. } => cause.hint(),
        }
    }
}
