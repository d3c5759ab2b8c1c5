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

use crate::args::Verb;

/// Carries out the command that was typed.
pub fn run(command: &Verb) -> Result<()> {
    match command {
        Verb::Devices(arguments) => devices::run(arguments),
        Verb::Simulate(arguments) => simulate::run(arguments),
        Verb::Inspect(arguments) => inspect::run(arguments),
        Verb::Init(arguments) => init::run(arguments),
        Verb::Train(arguments) => train::run(arguments),
        Verb::Evaluate(arguments) => evaluate::run(arguments),
        Verb::Predict(arguments) => predict::run(arguments),
        Verb::View(arguments) => view::run(arguments),
        Verb::Serve(arguments) => serve::run(arguments),
        Verb::Export(arguments) => export::run(arguments),
        Verb::Reproduce(arguments) => reproduce::run(arguments),
        Verb::Bench(arguments) => bench::run(arguments),
    }
}
