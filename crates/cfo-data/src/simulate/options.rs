//! Checks of options, shared by all systems.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use super::SimulationError;

/// Largest number of values of one trajectory (8 GiB of `f32`).
pub(super) const MAX_VALUES: usize = 1 << 31;

fn require(
    valid: bool,
    name: &'static str,
    value: impl Display,
    need: impl Into<String>,
) -> Result<(), SimulationError> {
    match valid {
        true => Ok(()),
        false => {
            Err(SimulationError::Option { name: name.into(), value: value.to_string(), need: need.into() })
        }
    }
}

pub(super) fn positive(name: &'static str, value: f64) -> Result<(), SimulationError> {
    require(value.is_finite() && value > 0.0, name, value, "a positive finite number")
}

pub(super) fn not_negative(name: &'static str, value: f64) -> Result<(), SimulationError> {
    require(value.is_finite() && value >= 0.0, name, value, "a finite number that is not negative")
}

pub(super) fn finite(name: &'static str, value: f64) -> Result<(), SimulationError> {
    require(value.is_finite(), name, value, "a finite number")
}

/// Checks that the option is between two bounds, both included.
pub(super) fn between<T: PartialOrd + Display>(
    name: &'static str,
    value: T,
    low: T,
    high: T,
) -> Result<(), SimulationError> {
    let need = format!("between {low} and {high}");
    require((low..=high).contains(&value), name, value, need)
}

/// Checks that there are at least two frames over a positive horizon, and that a trajectory fits into memory.
pub(super) fn frames(frames: usize, horizon: f64, points: usize) -> Result<(), SimulationError> {
    require(frames >= 2, "frames", frames, "at least 2")?;
    positive("horizon", horizon)?;
    size(frames, points)
}

/// Checks that a trajectory fits into memory.
pub(super) fn size(frames: usize, points: usize) -> Result<(), SimulationError> {
    match frames.checked_mul(points) {
        Some(values) if values <= MAX_VALUES => Ok(()),
        _ => Err(SimulationError::TooLarge { frames, points }),
    }
}

/// `frames` equally spaced times from 0 to `horizon`, both included.
pub(super) fn uniform_times(frames: usize, horizon: f64) -> Vec<f64> {
    (0..frames).map(|frame| horizon * frame as f64 / (frames - 1) as f64).collect()
}

/// Returns an error if the caller has set the interrupt flag.
pub(super) fn heed(interrupt: &AtomicBool) -> Result<(), SimulationError> {
    if interrupt.load(Ordering::Relaxed) { Err(SimulationError::Interrupted) } else { Ok(()) }
}
