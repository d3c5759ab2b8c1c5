//! The command `cfo`: arguments, terminal, reports and figures around the library. No mathematics lives here.

mod args;
mod command;
mod diagnostics;
mod hints;
mod interrupt;
mod page;
mod plot;
mod progress;
mod report;
mod serve;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match args::Arguments::try_parse() {
        Ok(arguments) => diagnostics::conclude(|| command::run(&arguments.command)),
        Err(error) => diagnostics::refuse_usage(&error),
    }
}
