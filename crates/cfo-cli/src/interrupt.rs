//! Ctrl-C, SIGTERM and SIGUSR1: long commands look at a flag and end cleanly; a second Ctrl-C or SIGTERM ends the process at
//! once. Schedulers send SIGTERM or SIGUSR1 before they end a job.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};

use anyhow::{Context, Result};

use crate::diagnostics::{FAILED, say};

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

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
        signal_hook::flag::register(signal_hook::consts::SIGUSR1, Arc::clone(&INTERRUPTED))
            .context("cannot listen for SIGUSR1")?;
    }
    Ok(&INTERRUPTED)
}
