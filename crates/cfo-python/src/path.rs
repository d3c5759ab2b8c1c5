//! Weights of snapshots in a path and in its velocity.

use cfo::CfoError;
use cfo::numerics::{Path, PathWeights, Spline, TimeGrid};
use numpy::{PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::failure::WorkFailure;
use crate::task;

/// For each time the first snapshot with a weight, the weights in the value and those in the velocity.
type Weights<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>);

/// The weights of the path through snapshots at `knots` at some times; rows of weights are padded with zeros.
#[pyfunction]
pub fn path_weights<'py>(
    py: Python<'py>,
    knots: PyReadonlyArray1<'py, f64>,
    times: PyReadonlyArray1<'py, f64>,
    spline: &str,
    stencil: usize,
) -> PyResult<Weights<'py>> {
    let (knots, times) = (knots.as_slice()?.to_vec(), times.as_slice()?.to_vec());
    let (first, value, velocity) = task::at_once(py, || weights(knots, &times, spline, stencil))?;
    let count = first.len();
    let rows = |values: Vec<f64>| PyArray1::from_vec(py, values).reshape([count, PathWeights::MAX]);
    Ok((PyArray1::from_vec(py, first), rows(value)?, rows(velocity)?))
}

type Rows = (Vec<i64>, Vec<f64>, Vec<f64>);

fn weights(knots: Vec<f64>, times: &[f64], spline: &str, stencil: usize) -> Result<Rows, WorkFailure> {
    let bad = |key: &str, problem: String| CfoError::InvalidKey { key: key.into(), problem };
    let spline: Spline = spline.parse().map_err(|error| bad("path.spline", format!("{error}")))?;
    let path = match spline {
        Spline::Linear => Path { spline, stencil },
        _ => Path::new(spline, stencil).map_err(|error| bad("path.stencil", error.to_string()))?,
    };
    let knots = TimeGrid::new(knots).map_err(|error| {
        CfoError::from(cfo::data::DataError::from(cfo::data::TrajectoryError::from(error)))
    })?;
    let (mut first, mut value, mut velocity) = (Vec::new(), Vec::new(), Vec::new());
    for &time in times {
        let weights = path.weights(&knots, time);
        first.push(weights.first as i64);
        value.extend(weights.value);
        velocity.extend(weights.velocity);
    }
    Ok((first, value, velocity))
}
