//! `cfo reproduce`: the paper's experiments on this terminal.

use std::sync::atomic::AtomicBool;

use anyhow::Result;
use cfo::{Device, Observer};
use cfo_paper::{Console, Reproduce};

use crate::diagnostics;
use crate::{interrupt, job, progress, report};

#[derive(Debug)]
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
        Box::new(progress::TrainingProgress::new(steps))
    }
}

pub fn run(arguments: &Reproduce) -> Result<()> {
    cfo_paper::run(&Reproduce { console: &Terminal, ..arguments.clone() })
}
