//! Ranges of the numbers in a recipe.

use std::fmt::Display;

use crate::error::{CfoError, Result};

/// Returns an error for a key unless its value is `valid`.
pub(crate) fn require(valid: bool, key: &str, value: impl Display, needed: &str) -> Result<()> {
    if valid { Ok(()) } else { Err(CfoError::invalid(key, format!("{value} {needed}"))) }
}

pub(super) fn at_least_one(key: &str, count: usize) -> Result<()> {
    require(count > 0, key, count, "must be positive")
}

pub(super) fn positive(key: &str, value: f64) -> Result<()> {
    require(value > 0.0 && value.is_finite(), key, value, "must be a positive number")
}

pub(crate) fn not_negative(key: &str, value: f64) -> Result<()> {
    require(value >= 0.0 && value.is_finite(), key, value, "must be 0 or positive")
}

pub(crate) fn below_one(key: &str, value: f64) -> Result<()> {
    require((0.0..1.0).contains(&value), key, value, "must lie in [0, 1)")
}
