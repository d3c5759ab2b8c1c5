//! The classes and functions of the native module of the Python package `cfo`: the library with arrays and plain values
//! as arguments. Crate `cfo-wheel` makes the module of them.
//!
//! The public interface is written in Python (`python/cfo`), which checks and shapes arguments. This crate takes
//! contiguous arrays of the right type, releases the interpreter's lock during work, and converts errors to the
//! package's exceptions.

mod aligned;
mod arrays;
mod failure;
mod model;
mod path;
mod set;
mod task;
mod training;

use cfo_device::{DeviceList, DeviceReport};
use pyo3::prelude::*;

/// Available devices of this machine, as JSON.
#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<String> {
    let found = task::at_once(py, || Ok(DeviceList::from(DeviceReport::gather())))?;
    serde_json::to_string(&found).map_err(|error| failure::internal(py, &error.to_string()))
}

/// Waits until work that continued after Ctrl-C has ended, or until another Ctrl-C.
#[pyfunction]
fn settle(py: Python<'_>) -> PyResult<()> {
    if !task::has_left() {
        return Ok(());
    }
    task::interruptible(py, |_| {
        task::settle();
        Ok(())
    })
}

/// Adds all classes and functions to a module.
///
/// # Errors
/// If the interpreter raises an exception.
pub fn fill(module: &Bound<'_, PyModule>) -> PyResult<()> {
    task::silence_panics();
    module.add_class::<set::Set>()?;
    module.add_class::<model::PythonModel>()?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(settle, module)?)?;
    module.add_function(wrap_pyfunction!(path::path_weights, module)?)?;
    module.add_function(wrap_pyfunction!(training::train, module)?)?;
    module.add_function(wrap_pyfunction!(training::propose, module)?)?;
    Ok(())
}
