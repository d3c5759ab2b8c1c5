//! Learning, resuming and integrating, end to end on small systems.

mod learning;
mod resuming;
mod util;
