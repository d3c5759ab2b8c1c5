//! One file per verb; each reads its arguments, calls the library and reports.

mod bench;
mod devices;
mod evaluate;
mod export;
mod init;
mod inspect;
mod output;
mod predict;
mod reproduce;
mod serve;
mod simulate;
mod train;
mod view;

use anyhow::Result;

use crate::args::Command;

/// Carries out the command that was typed.
pub fn run(command: &Command) -> Result<()> {
    match command {
        Command::Devices(arguments) => devices::run(arguments),
        Command::Simulate(arguments) => simulate::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Init(arguments) => init::run(arguments),
        Command::Train(arguments) => train::run(arguments),
        Command::Evaluate(arguments) => evaluate::run(arguments),
        Command::Predict(arguments) => predict::run(arguments),
        Command::View(arguments) => view::run(arguments),
        Command::Serve(arguments) => serve::run(arguments),
        Command::Export(arguments) => export::run(arguments),
        Command::Reproduce(arguments) => reproduce::run(arguments),
        Command::Bench(arguments) => bench::run(arguments),
    }
}
