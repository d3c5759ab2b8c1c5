//! Trajectories and where they come from: files that users already have, and the simulators of the paper's systems.

pub mod simulate;
mod trajectory;

pub use trajectory::{Description, FieldShape, Trajectory};
