//! The native part of the Python package `cfo`: the library with arrays and plain values as arguments.
//!
//! The public interface is written in Python (`python/cfo`), which checks and shapes arguments. This crate takes
//! contiguous arrays of the right type, releases the interpreter's lock during work, and converts errors to the
//! package's exceptions.

mod aligned;
mod failure;
mod model;
mod path;
mod set;
mod task;
mod training;

use std::ffi::OsString;

use pyo3::prelude::*;

/// Available devices of this machine, as JSON.
#[pyfunction]
fn devices(py: Python<'_>) -> PyResult<String> {
    let found = task::at_once(py, || Ok(cfo_cli::devices()))?;
    found.map(|found| found.to_string()).map_err(|error| failure::internal(py, &error.to_string()))
}

/// Runs a command line of `cfo` and returns its exit code.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| cfo_cli::run(words))
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

/// The native part of `cfo`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    task::silence_panics();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<set::Set>()?;
    module.add_class::<model::Model>()?;
    module.add_function(wrap_pyfunction!(devices, module)?)?;
    module.add_function(wrap_pyfunction!(command, module)?)?;
    module.add_function(wrap_pyfunction!(settle, module)?)?;
    module.add_function(wrap_pyfunction!(path::path_weights, module)?)?;
    module.add_function(wrap_pyfunction!(training::train, module)?)?;
    module.add_function(wrap_pyfunction!(training::propose, module)?)?;
    Ok(())
}
