//! Trajectories from files and from simulators of the paper's systems.

#![warn(clippy::too_many_lines)]

mod changes;
mod distance;
mod error;
mod inputs;
mod noise;
mod normalize;
mod offset;
mod place;
mod rounding_check;
mod sampling;
mod simd;
pub mod simulate;
pub mod split;
pub mod store;
pub mod thin;
mod time_dependence;
mod trajectory;
mod trajectory_error;

pub use changes::ChangeProducts;
pub use distance::distance;
pub use error::DataError;
pub use inputs::{Controls, InputNames, TrajectoryInputs};
pub use noise::{ChannelNoise, NoiseEstimator, mean_interval, noise_of_file};
pub use normalize::{Normalization, Statistics, scale, unscale};
pub use offset::Offset;
pub use place::Place;
pub use rounding_check::RoundingCheck;
pub use sampling::{Rebuilt, SamplingAudit, Verdict, deviation_of_file};
pub use split::Split;
pub use time_dependence::TimeDependence;
pub use trajectory::{Defect, Defects, Description, FieldShape, StoredTrajectory, Trajectory};
pub use trajectory_error::TrajectoryError;
