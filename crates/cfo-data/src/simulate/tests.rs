//! Helpers for the tests of several systems.

use super::{Equation, SimulationError};

/// Relative L2 difference of two sets of stored numbers.
pub(super) fn relative_difference(ours: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(ours.len(), reference.len());
    let square = |sum: f64, value: f64| sum + value * value;
    let pairs = ours.iter().zip(reference).map(|(a, b)| f64::from(*a) - f64::from(*b));
    let size = reference.iter().map(|&value| f64::from(value)).fold(0.0, square);
    (pairs.fold(0.0, square) / size).sqrt()
}

/// Checks that `check` and a simulation reject the option `name` with a hint that names it.
pub(super) fn assert_refused(equation: &dyn Equation, name: &str) {
    let error = equation.check().unwrap_err();
    assert!(
        matches!(&error, SimulationError::Option { name: found, .. } if found == name),
        "{name}: {error}"
    );
    assert_eq!(equation.trajectory(0, 0), Err(error.clone()));
    assert!(error.hint().unwrap().contains(name));
}
