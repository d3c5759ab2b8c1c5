//! `cfo reproduce`: the paper's experiments on this terminal.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use cfo::Observer;
use cfo::engine::Device;
use cfo_paper::{Console, Options};

use crate::diagnostics;
use crate::{args, interrupt, job, progress, report};

struct Terminal;

impl Console for Terminal {
    fn say(&self, text: &str) {
        diagnostics::say(text);
    }

    fn print(&self, text: &str) -> Result<()> {
        Ok(report::print(text)?)
    }

    fn print_json(&self, document: &str) -> Result<()> {
        report::print_document(document)
    }

    fn interrupt(&self) -> Result<&'static AtomicBool> {
        interrupt::flag()
    }

    fn device(&self, name: &str) -> Result<Device> {
        job::device(name)
    }

    fn training(&self, steps: u32) -> Box<dyn Observer> {
        Box::new(progress::Training::new(steps))
    }
}

pub fn run(arguments: &args::Reproduce) -> Result<()> {
    let args::Reproduce {
        target,
        scale,
        out,
        runs,
        recipe,
        seeds,
        dry_run,
        system,
        set,
        share,
        device,
        seed,
        json,
    } = arguments.clone();
    cfo_paper::run(&Options {
        target,
        scale,
        out,
        runs,
        recipe,
        seeds,
        dry_run,
        system,
        set,
        share,
        device,
        seed,
        json,
        part_of_all: false,
        console: &Terminal,
    })
}
