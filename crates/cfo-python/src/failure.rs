//! Conversion of errors of the library to exceptions of the Python package, with the same text and hint.

use std::error::Error;
use std::io::ErrorKind;

use cfo::CfoError;
use cfo::data::DataError;
use cfo::data::simulate::SimulationError;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// Reasons why work has no result.
pub enum WorkFailure {
    /// The library returned an error, with an optional context.
    Refused(Box<CfoError>, Option<String>),
    /// The library panicked, which is a defect.
    Panicked(String),
}

impl<E: Into<CfoError>> From<E> for WorkFailure {
    fn from(error: E) -> Self {
        Self::Refused(Box::new(error.into()), None)
    }
}

impl WorkFailure {
    /// Converts the failure to an exception.
    pub fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Panicked(text) => internal(py, &text),
            Self::Refused(error, _) if is_interrupt(&error) => {
                PyKeyboardInterrupt::new_err(with_hint(&chain(&*error), error.hint().as_deref()))
            }
            Self::Refused(error, context) => {
                let context = context.map_or_else(String::new, |context| format!("{context}: "));
                let class = match () {
                    () if is_missing(&error) => "MissingFileError",
                    () if error.is_bad_input() => "InputError",
                    () => "CfoError",
                };
                exception(py, class, &(context + &chain(&*error)), error.hint().as_deref())
            }
        }
    }

    /// Adds the context of the failure.
    pub fn context(self, context: String) -> Self {
        match self {
            Self::Refused(error, _) => Self::Refused(error, Some(context)),
            other => other,
        }
    }

    /// Whether the work was interrupted.
    pub fn is_interrupt(&self) -> bool {
        matches!(self, Self::Refused(error, _) if is_interrupt(error))
    }
}

/// An exception for a defect of the library.
pub fn internal(py: Python<'_>, text: &str) -> PyErr {
    let hint =
        "this is a bug in `cfo`, not an error in your input; please report it with the call that you made";
    exception(py, "CfoError", &format!("internal error: {text}"), Some(hint))
}

/// A failure for invalid input that is detected in this crate.
pub fn refuse(problem: impl Into<String>, hint: &str) -> WorkFailure {
    CfoError::BadData { problem: problem.into(), hint: hint.into() }.into()
}

/// An exception of the package.
pub fn exception(py: Python<'_>, class: &str, text: &str, hint: Option<&str>) -> PyErr {
    let made = py.import("cfo._errors").and_then(|module| module.getattr(class)?.call1((text, hint)));
    match made {
        Ok(made) => PyErr::from_value(made),
        Err(error) => error,
    }
}

fn with_hint(text: &str, hint: Option<&str>) -> String {
    hint.map_or_else(|| text.to_owned(), |hint| format!("{text}\n\nhint: {hint}"))
}

fn is_interrupt(error: &CfoError) -> bool {
    fn is_stopped(error: &SimulationError) -> bool {
        match error {
            SimulationError::Interrupted => true,
            SimulationError::Trajectory { cause, .. } => is_stopped(cause),
            _ => false,
        }
    }
    match error {
        CfoError::Interrupted { .. } | CfoError::RolloutInterrupted => true,
        CfoError::Simulation(error) => is_stopped(error),
        _ => false,
    }
}

fn is_missing(error: &CfoError) -> bool {
    match error {
        CfoError::NoRun { .. } | CfoError::Data(DataError::Missing { .. }) => true,
        CfoError::Io(error) => error.kind() == ErrorKind::NotFound,
        CfoError::Data(DataError::Io { source, .. }) => source.kind() == ErrorKind::NotFound,
        CfoError::BadCheckpoint { path, .. } => !path.exists(),
        _ => false,
    }
}

/// Causes joined by colons, without those that the text already contains.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
