//! One file per verb; each reads its arguments, calls the library and reports.

mod devices;
mod inspect;
mod reproduce;
mod simulate;

use anyhow::Result;

use crate::args::Command;

/// Carries out the command that was typed.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Devices(arguments) => devices::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
    }
}
