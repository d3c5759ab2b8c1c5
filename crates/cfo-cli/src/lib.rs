//! The command `cfo`: arguments, terminal, reports and figures around the library. No mathematics lives here.
//!
//! It is a library so that the Python package can contain the command. Its only public item is [`run`].

mod args;
mod command;
mod diagnostics;
mod hints;
mod interrupt;
mod job;
mod progress;
mod report;
mod terminal;

use std::ffi::OsString;

use clap::Parser;

/// Carries out a command line, whose first word is the program's name, and returns its exit code: 0 done, 1 the work failed,
/// 2 wrong usage or bad input. It writes to stdout and stderr, and may take over Ctrl-C and SIGTERM.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    diagnostics::expect_json(words.iter().any(|word| word == "--json"));
    job::be_quiet_unless_first();
    match args::Arguments::try_parse_from(words) {
        Ok(arguments) => diagnostics::conclude(|| match job::enter(&arguments.command)? {
            true => command::run(&arguments.command),
            false => Ok(()),
        }),
        Err(error) => diagnostics::refuse_usage(&error),
    }
}
