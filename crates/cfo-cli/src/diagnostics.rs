//! The end of a command: exit code and message on stderr.
//!
//! 0 success, 1 the work failed, 2 wrong usage or bad input. Every error prints as its chain of causes, then the first
//! hint of the chain; with `--json` also as a document on stdout, unless there is one already.

use std::error::Error;
use std::io::{self, Write};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};

use cfo::CfoError;
use cfo::graph::EngineError;
use cfo_data::DataError;
use cfo_data::simulate::SimulationError;
use serde::Serialize;

pub use cfo_paper::Incomplete;

use crate::hints;
use crate::job;
use crate::report;

use crate::report::harmless;

const DONE: u8 = 0;

/// Exit code for work that failed through no fault of the input.
pub const FAILED: u8 = 1;

/// Exit code for wrong usage and bad input.
pub const BAD_INPUT: u8 = 2;

/// Whether the command line has `--json`, even if it cannot be parsed.
static JSON: AtomicBool = AtomicBool::new(false);

/// Notes whether the command line has `--json`.
pub fn expect_json(asked: bool) {
    JSON.store(asked, Ordering::Relaxed);
}

#[derive(Serialize)]
struct Failure {
    error: String,
    hint: Option<String>,
}

impl Failure {
    /// Prints the document if `--json` was given and no document has been printed.
    fn print(&self) {
        if JSON.load(Ordering::Relaxed) && !report::has_printed_json() {
            // Fails only if stdout is closed.
            let _ = report::print_json(self);
        }
    }
}

/// Prints the error of an invalid command line, or the help that was asked for.
pub fn refuse_usage(error: &clap::Error) -> u8 {
    if !job::is_quiet() {
        let _ = error.print();
    }
    if error.use_stderr() {
        job::let_first_speak();
        let (error, hint) = usage(error);
        Failure { error, hint: Some(hint) }.print();
    }
    u8::try_from(error.exit_code()).unwrap_or(BAD_INPUT)
}

/// Returns the problem of an invalid command line, and a hint.
pub fn usage(error: &clap::Error) -> (String, String) {
    let text = error.render().to_string();
    let first = text.lines().next().unwrap_or_default();
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let hint = tip.unwrap_or("`cfo --help` lists the commands, `cfo COMMAND --help` their options");
    (first.strip_prefix("error: ").unwrap_or(first).to_owned(), hint.to_owned())
}

/// Runs `command`, reports its error on stderr and returns its exit code.
pub fn conclude(command: impl FnOnce() -> anyhow::Result<()> + panic::UnwindSafe) -> u8 {
    panic::set_hook(Box::new(|information| {
        let place = information.location().map(|place| format!(" at {}:{}", place.file(), place.line()));
        let text = information.payload_as_str().unwrap_or("no message");
        speak(&format!("error: internal error{}: {text}", place.unwrap_or_default()));
        speak(
            "\nhint: this is a bug in `cfo`, not an error in your input; please report it with the command you ran",
        );
    }));
    match panic::catch_unwind(command) {
        Ok(Ok(())) => {
            job::leave();
            DONE
        }
        Ok(Err(error)) if is_broken_pipe(&error) => {
            job::leave();
            DONE
        }
        Ok(Err(error)) => {
            let hint = hint(&error);
            let advice = hint.as_ref().map_or(String::new(), |hint| format!("\n\nhint: {hint}"));
            let text = format!("error: {}{advice}", chain(&error));
            say(&text);
            let code = code(&error);
            Failure { error: chain(&error), hint }.print();
            job::let_first_speak();
            // A rank that stops because another one failed sends no error of its own.
            job::fail(if matches!(error.downcast_ref(), Some(CfoError::Elsewhere)) { "" } else { &text });
            code
        }
        Err(_) => {
            let hint = "this is a bug in `cfo`; please report it with the command you ran".to_owned();
            Failure { error: "internal error".into(), hint: Some(hint) }.print();
            job::fail("internal error");
            FAILED
        }
    }
}

/// Writes a line to stderr, unless another process of the job prints messages; a closed stderr is ignored.
pub fn say(line: &str) {
    if !job::is_quiet() {
        speak(line);
    }
}

/// Writes a line to stderr, whichever process of the job this is.
pub fn speak(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", harmless(line));
}

/// Causes joined by colons, without those that the message before already quotes.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().filter_map(judge).find_map(|(_, hint)| hint)
}

/// Returns the exit code of the first known cause: a file error explains the I/O error below it.
fn code(error: &anyhow::Error) -> u8 {
    let (is_bad_input, _) = error.chain().find_map(judge).unwrap_or_default();
    if is_bad_input { BAD_INPUT } else { FAILED }
}

/// Returns whether a cause is the input's fault, and a hint; `None` for unknown causes.
fn judge(cause: &(dyn Error + 'static)) -> Option<(bool, Option<String>)> {
    if let Some(error) = cause.downcast_ref::<CfoError>() {
        Some(match error {
            // Transparent: it hides the error below it from the chain.
            CfoError::Io(error) => (is_bad_path(error.kind()), io_hint(error)),
            CfoError::Data(data) => (error.is_bad_input(), data_hint(data)),
            CfoError::Engine(EngineError::DeviceUnavailable { .. }) => {
                let hint = "`cfo devices` lists what was found; `--device cpu` always works";
                (error.is_bad_input(), Some(hint.into()))
            }
            error => (error.is_bad_input(), hints::hint(error)),
        })
    } else if let Some(error) = cause.downcast_ref::<DataError>() {
        Some((error.is_bad_input(), data_hint(error)))
    } else if let Some(error) = cause.downcast_ref::<SimulationError>() {
        Some((is_bad_option(error), error.hint()))
    } else if let Some(error) = cause.downcast_ref::<Incomplete>() {
        Some((false, Some(error.hint.clone())))
    } else {
        cause.downcast_ref::<io::Error>().map(|error| (is_bad_path(error.kind()), io_hint(error)))
    }
}

/// The hint for a data error: one that names options where there is one, else the library's own.
fn data_hint(error: &DataError) -> Option<String> {
    let own = match error {
        DataError::Missing { .. } => "check the path, or create an example file with `cfo simulate`",
        DataError::Exists { .. } => "choose another name, or replace the file with `--force`",
        DataError::NotFinite { value, .. } if !value.is_finite() => {
            "`cfo inspect` lists all such places; shorten or remove these trajectories"
        }
        other => return other.hint(),
    };
    Some(own.into())
}

fn io_hint(error: &io::Error) -> Option<String> {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::FileTooLarge | io::ErrorKind::QuotaExceeded => {
            Some("free some space, or write to another disk; existing files were not changed".into())
        }
        io::ErrorKind::PermissionDenied => Some("check the permissions of the path".into()),
        io::ErrorKind::NotFound => {
            Some("check the path; the folder `recipes` of the source tree has examples of recipes".into())
        }
        _ => None,
    }
}

/// Whether an option was out of range; otherwise the simulation itself failed.
fn is_bad_option(error: &SimulationError) -> bool {
    match error {
        SimulationError::Trajectory { cause, .. } => is_bad_option(cause),
        SimulationError::Option { .. }
        | SimulationError::Unknown { .. }
        | SimulationError::TooLarge { .. }
        | SimulationError::Seed { .. } => true,
        _ => false,
    }
}

/// Whether a path given by the user is at fault rather than the machine.
fn is_bad_path(kind: io::ErrorKind) -> bool {
    matches!(
        kind,
        io::ErrorKind::NotFound
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
    )
}

/// Whether the reader of our stdout closed it, as `head` does: that is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn the_code_follows_the_cause_and_not_the_context() {
        let option =
            SimulationError::Option { name: "frames".into(), value: "1".into(), need: "at least 2".into() };
        let usage = anyhow::Error::new(option).context("simulating");
        assert_eq!(code(&usage), BAD_INPUT);
        let full = anyhow::Error::new(io::Error::from(io::ErrorKind::StorageFull)).context("simulating");
        assert_eq!(code(&full), FAILED);
        assert!(hint(&full).is_some());
        let missing = Err::<(), _>(io::Error::from(io::ErrorKind::NotFound)).context("opening").unwrap_err();
        assert_eq!(code(&missing), BAD_INPUT);
    }

    #[test]
    fn the_command_line_adds_its_words_to_those_of_the_libraries() {
        let exists = || DataError::Exists { path: "a.h5".into() };
        let missing = || DataError::Missing { path: "a.h5".into() };
        for (error, word) in [(exists(), "--force"), (missing(), "cfo simulate")] {
            assert!(!error.hint().unwrap().contains(word), "{error}");
            let bare = anyhow::Error::new(error).context("simulating");
            assert!(hint(&bare).unwrap().contains(word));
        }
        let wrapped = anyhow::Error::new(CfoError::from(exists()));
        assert!(hint(&wrapped).unwrap().contains("--force"));
    }

    #[test]
    fn a_cause_already_quoted_is_not_said_twice() {
        let cause = io::Error::other("no such file");
        let error = anyhow::Error::new(cause).context("reading `a`: no such file").context("inspecting");
        assert_eq!(chain(&error), "inspecting: reading `a`: no such file");
    }

    #[test]
    fn a_broken_pipe_is_quiet() {
        let error = anyhow::Error::new(io::Error::from(io::ErrorKind::BrokenPipe)).context("printing");
        assert!(is_broken_pipe(&error));
    }
}
