//! The terminal of experiments.

use std::fmt::Debug;
use std::panic::RefUnwindSafe;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use cfo::{Device, Observer};

/// Services of the command for experiments: messages, results, progress, Ctrl-C, devices.
pub trait Console: Debug + RefUnwindSafe + Sync {
    /// Writes a line to stderr.
    fn say(&self, text: &str);

    /// Prints results.
    ///
    /// # Errors
    /// If stdout is closed.
    fn print(&self, text: &str) -> Result<()>;

    /// Prints a JSON document, the only one.
    ///
    /// # Errors
    /// If stdout is closed.
    fn print_json(&self, document: &str) -> Result<()>;

    /// The flag that Ctrl-C sets.
    ///
    /// # Errors
    /// If signals cannot be handled.
    fn interrupt(&self) -> Result<&'static AtomicBool>;

    /// The device of that name.
    ///
    /// # Errors
    /// If there is no such device.
    fn device(&self, name: &str) -> Result<Device>;

    /// Shows the progress of a training of this number of steps.
    fn training(&self, steps: u32) -> Box<dyn Observer>;
}

#[derive(Debug)]
pub(crate) struct Silent;

impl Console for Silent {
    fn say(&self, _: &str) {}

    fn print(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn print_json(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn interrupt(&self) -> Result<&'static AtomicBool> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Ok(&NEVER)
    }

    fn device(&self, _: &str) -> Result<Device> {
        Ok(Device::Cpu)
    }

    fn training(&self, _: u32) -> Box<dyn Observer> {
        struct Nothing;
        impl Observer for Nothing {
            fn report(&mut self, _: &cfo::StepReport) -> std::ops::ControlFlow<()> {
                std::ops::ControlFlow::Continue(())
            }
        }
        Box::new(Nothing)
    }
}
