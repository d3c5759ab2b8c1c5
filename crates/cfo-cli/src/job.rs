//! This process among others that `mpiexec` or `srun` started with the same command line.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;
use cfo::device::gpu_count;
use cfo::graph::EngineError;
use cfo::ranks::{self, Launcher, world};
use cfo::{CfoError, Device, Precision};

use crate::args::Verb;
use crate::diagnostics::speak;

static QUIET: AtomicBool = AtomicBool::new(false);

/// Returns whether only rank 0 prints, and this process is another.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Silences this process unless it is the first by the launcher's variables; used before the ranks have joined.
pub fn be_quiet_unless_first() {
    let first = Launcher::detect().and_then(|launcher| launcher.rank).is_none_or(|rank| rank == 0);
    QUIET.store(!first, Ordering::Relaxed);
}

/// Joins the other processes, if a launcher started this one. Returns whether this process carries out the command: only
/// rank 0 carries out commands that do not use ranks.
pub fn enter(command: &Verb) -> Result<bool> {
    let version = env!("CARGO_PKG_VERSION");
    let Some(ranks) = ranks::join(version, speak).map_err(CfoError::from)? else {
        QUIET.store(false, Ordering::Relaxed);
        return Ok(true);
    };
    QUIET.store(!ranks.is_first(), Ordering::Relaxed);
    share_cores();
    let together = matches!(
        command,
        Verb::Train(_) | Verb::Evaluate(_) | Verb::Reproduce(_) | Verb::Bench(_) | Verb::Devices(_)
    );
    Ok(together || ranks.is_first())
}

/// Divides the cores of a machine among its ranks, unless the launcher or `RAYON_NUM_THREADS` sets their number.
fn share_cores() {
    let Some(ranks) = world() else { return };
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let allowed = status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap_or_default();
    let own = format!("{} {allowed}", ranks.host(ranks.rank()));
    let sharing = ranks.gather(own.as_bytes()).iter().filter(|other| **other == own.as_bytes()).count();
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / sharing.max(1)).max(1);
        // An existing pool is kept.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
}

/// Waits until rank 0 has printed its error. Processes that fail before they have joined let only rank 0 print; a launcher
/// would end it as soon as another process has failed.
pub fn let_first_speak() {
    if is_quiet() && world().is_none() {
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
}

/// Leaves the job together with all other ranks.
pub fn leave() {
    if let Some(ranks) = world() {
        ranks.finish();
    }
}

/// Sends the error of this rank to the others; returns if all of them failed.
pub fn fail(text: &str) {
    if let Some(ranks) = world() {
        ranks.abort(text);
    }
}

/// The value of `--precision`.
pub fn precision(name: &str) -> Result<Precision> {
    let refused = |error: EngineError| CfoError::invalid("--precision", error.to_string());
    Ok(name.parse().map_err(refused)?)
}

/// The device that an option names; in a job, `auto` and `cuda` are the GPU of this process's number on its machine.
pub fn device(name: &str) -> Result<Device> {
    let local = world().filter(|ranks| ranks.size() > 1).map(|ranks| ranks.local_rank());
    // Counted without using any: a process leaves nothing on the GPUs of others.
    let own = local.and_then(|local| local.checked_rem(gpu_count())).map(Device::Cuda);
    Ok(match (name, own) {
        ("auto", Some(own)) if own.check().is_ok() => own,
        ("auto", Some(_)) => Device::Cpu,
        ("cuda", Some(own)) => own.to_string().parse().map_err(CfoError::from)?,
        _ => name.parse().map_err(CfoError::from)?,
    })
}
