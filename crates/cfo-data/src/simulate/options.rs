//! Checks of options that all systems share.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use super::SimulationError;

/// Most values that one trajectory may hold (8 GiB of `f32`).
pub(super) const MAX_VALUES: usize = 1 << 31;

fn refuse(name: &'static str, value: impl Display, need: impl Into<String>) -> SimulationError {
    SimulationError::Option { name, value: value.to_string(), need: need.into() }
}

/// The option is finite and above zero.
pub(super) fn positive(name: &'static str, value: f64) -> Result<(), SimulationError> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        Err(refuse(name, value, "a positive finite number"))
    }
}

/// The option is finite and not below zero.
pub(super) fn not_negative(name: &'static str, value: f64) -> Result<(), SimulationError> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        Err(refuse(name, value, "a finite number that is not negative"))
    }
}

/// The option is finite.
pub(super) fn finite(name: &'static str, value: f64) -> Result<(), SimulationError> {
    if value.is_finite() { Ok(()) } else { Err(refuse(name, value, "a finite number")) }
}

/// The option lies between two finite bounds, both allowed.
pub(super) fn between(name: &'static str, value: f64, low: f64, high: f64) -> Result<(), SimulationError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(refuse(name, value, format!("between {low} and {high}")))
    }
}

/// The whole number lies between two bounds, both allowed.
pub(super) fn count(
    name: &'static str,
    value: usize,
    low: usize,
    high: usize,
) -> Result<(), SimulationError> {
    if (low..=high).contains(&value) {
        Ok(())
    } else {
        Err(refuse(name, value, format!("between {low} and {high}")))
    }
}

/// At least two frames over a positive horizon, and a trajectory that fits into memory.
pub(super) fn frames(frames: usize, horizon: f64, points: usize) -> Result<(), SimulationError> {
    if frames < 2 {
        return Err(refuse("frames", frames, "at least 2"));
    }
    positive("horizon", horizon)?;
    size(frames, points)
}

/// A trajectory that fits into memory.
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

/// An error once the caller has asked to stop.
pub(super) fn heed(interrupt: &AtomicBool) -> Result<(), SimulationError> {
    if interrupt.load(Ordering::Relaxed) { Err(SimulationError::Interrupted) } else { Ok(()) }
}
