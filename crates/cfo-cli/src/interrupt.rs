//! Ctrl-C and SIGTERM: long commands look at a flag and end cleanly; a second one ends the process at once.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::diagnostics::{FAILED, say};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The flag that the first Ctrl-C sets; from now on it no longer ends the process.
pub fn flag() -> Result<&'static AtomicBool> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_ok() {
        ctrlc::set_handler(|| {
            if INTERRUPTED.swap(true, Ordering::Relaxed) {
                process::exit(FAILED.into());
            }
            say("stopping; press Ctrl-C again to stop at once");
        })
        .context("cannot listen for Ctrl-C")?;
    }
    Ok(&INTERRUPTED)
}
