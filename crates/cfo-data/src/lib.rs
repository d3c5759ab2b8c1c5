//! Trajectories and where they come from: files that users already have, and the simulators of the paper's systems.

mod changes;
mod error;
mod normalize;
mod sampling;
pub mod simulate;
pub mod split;
pub mod store;
pub mod thin;
mod trajectory;

pub use changes::ChangeProducts;
pub use error::{DataError, Place};
pub use normalize::{Normalization, Statistics};
pub use sampling::{Rebuilt, SamplingAudit};
pub use split::Split;
pub use trajectory::{Defect, Defects, Description, FieldShape, Trajectory};
