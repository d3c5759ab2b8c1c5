//! The wall time of a training by kind of work.

use std::fmt;
use std::time::Instant;

use serde::Serialize;

/// The wall time of training in seconds, by kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct WallTime {
    /// Reading, measuring, scaling and uploading the data.
    pub reading: f64,
    /// Building the step and compiling it.
    pub compiling: f64,
    /// Training steps.
    pub steps: f64,
    /// Filling gaps between snapshots, for `[refine]`.
    pub refining: f64,
    /// Validation rollouts.
    pub validation: f64,
    /// Writing checkpoints.
    pub checkpoints: f64,
    /// Everything else: logs, plots, files.
    pub other: f64,
}

impl WallTime {
    /// Returns the sum.
    pub fn total(&self) -> f64 {
        let work = self.steps + self.refining + self.validation + self.checkpoints;
        self.reading + self.compiling + work + self.other
    }

    /// Sets `other` to the time since `started` that is not in the other fields.
    pub fn close(&mut self, started: Instant) {
        self.other = 0.0;
        self.other = (started.elapsed().as_secs_f64() - self.total()).max(0.0);
    }
}

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let refining = (self.refining > 0.0).then_some((self.refining, "refining"));
        let parts = [(self.reading, "reading"), (self.compiling, "compiling"), (self.steps, "steps")];
        let rest =
            [(self.validation, "validation"), (self.checkpoints, "checkpoints"), (self.other, "other")];
        write!(f, "{:.1} s:", self.total())?;
        for (i, (seconds, name)) in parts.into_iter().chain(refining).chain(rest).enumerate() {
            write!(f, "{} {name} {seconds:.1}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// Does some work and adds its duration to `seconds`.
pub(crate) fn timed<T>(seconds: &mut f64, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let done = work();
    *seconds += started.elapsed().as_secs_f64();
    done
}
