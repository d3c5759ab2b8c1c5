//! The native module `cfo._native` of the Python package: crate `cfo-python`, and the command `cfo`.
//!
//! Both are in one library because each of them contains the whole engine.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs a command line of `cfo` and returns its exit code.
#[pyfunction]
fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    py.detach(|| cfo_cli::run(words))
}

/// The native part of `cfo`.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    cfo_python::fill(module)?;
    module.add_function(wrap_pyfunction!(command, module)?)
}
