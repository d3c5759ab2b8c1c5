//! Convolutions and padding.

mod direct;
mod geometry;
mod pad;

pub(super) use direct::{forward, input, weight};
pub(super) use geometry::Geometry;
pub(super) use pad::{fold, pad};
