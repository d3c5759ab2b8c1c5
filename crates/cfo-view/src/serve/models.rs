//! The run's models: a few copies that predict at the same time, each with the checkpoint that it last used.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use cfo::{Device, Run, Trained};

/// Predictions at a time. A long one does not block the others.
const AT_ONCE: usize = 4;
/// Predictions that may wait for their turn.
const WAITING: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time of a prediction.
pub const LONGEST: Duration = Duration::from_secs(20);

/// Copies of the run's models.
pub struct Models {
    run: Run,
    device: Device,
    shared: Mutex<Shared>,
    free: Condvar,
}

struct Shared {
    /// Unused copies, with the names of their checkpoints.
    idle: Vec<(String, Trained)>,
    /// When each prediction began, and the flag that ends it.
    busy: Vec<(Instant, Arc<AtomicBool>)>,
    waiting: usize,
    stopped: bool,
}

/// Why no model is available.
pub enum Busy {
    /// Too many wait already, or one has waited too long.
    Full,
    /// The checkpoint cannot be read.
    Failed(anyhow::Error),
}

/// A model for one prediction; dropping the lease returns it.
pub struct Lease<'a> {
    models: &'a Models,
    checkpoint: String,
    trained: Option<Trained>,
    /// Set when the prediction has to end.
    pub flag: Arc<AtomicBool>,
}

impl Models {
    pub fn new(run: &Path, device: Device) -> Self {
        let shared = Shared { idle: Vec::new(), busy: Vec::new(), waiting: 0, stopped: false };
        Self { run: Run::at(run), device, shared: Mutex::new(shared), free: Condvar::new() }
    }

    /// The names of the existing checkpoints: `best` and `latest`, then all by their steps.
    pub fn checkpoints(&self) -> Vec<String> {
        let checkpoints = self.run.checkpoints();
        let links = ["best", "latest"].into_iter().filter(|name| checkpoints.has(name)).map(String::from);
        links.chain(checkpoints.names()).collect()
    }

    /// The checkpoint to use when none is named.
    pub fn preferred(&self) -> String {
        self.run.checkpoints().preferred().unwrap_or("latest").to_string()
    }

    /// Returns the checkpoint of a name: `best` and `latest` change while training continues.
    fn resolved(&self, name: &str) -> String {
        self.run.checkpoints().target(name)
    }

    /// A model of a checkpoint, once there is a free one.
    pub fn lease(&self, checkpoint: &str) -> Result<Lease<'_>, Busy> {
        let wanted = self.resolved(checkpoint);
        let flag = Arc::new(AtomicBool::new(false));
        let idle = self.wait(&wanted, &flag)?;
        let mut lease = Lease { models: self, checkpoint: wanted, trained: None, flag };
        lease.trained = Some(match idle {
            Some(trained) => trained,
            None => self.load(&lease.checkpoint).map_err(Busy::Failed)?,
        });
        Ok(lease)
    }

    /// Waits for a turn; a copy of the checkpoint, if one is idle.
    fn wait(&self, wanted: &str, flag: &Arc<AtomicBool>) -> Result<Option<Trained>, Busy> {
        let mut shared = self.lock();
        let deadline = Instant::now() + PATIENCE;
        if shared.busy.len() >= AT_ONCE && shared.waiting >= WAITING {
            return Err(Busy::Full);
        }
        shared.waiting += 1;
        while shared.busy.len() >= AT_ONCE && !shared.stopped && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            shared = self.free.wait_timeout(shared, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        shared.waiting -= 1;
        if shared.busy.len() >= AT_ONCE || shared.stopped {
            return Err(Busy::Full);
        }
        shared.busy.push((Instant::now(), Arc::clone(flag)));
        match shared.idle.iter().position(|(name, _)| name == wanted) {
            Some(place) => Ok(Some(shared.idle.swap_remove(place).1)),
            None => {
                // A copy of another checkpoint is dropped to make room.
                let room = AT_ONCE.saturating_sub(shared.busy.len());
                shared.idle.truncate(room);
                Ok(None)
            }
        }
    }

    fn load(&self, checkpoint: &str) -> Result<Trained> {
        Ok(Trained::loader(self.run.folder()).checkpoint(checkpoint).device(self.device).load()?)
    }

    /// Ends predictions that take too long, or all of them.
    pub fn watch(&self, stop: bool) {
        let mut shared = self.lock();
        for (began, flag) in &shared.busy {
            if stop || began.elapsed() > LONGEST {
                flag.store(true, Ordering::Relaxed);
            }
        }
        shared.stopped |= stop;
        if stop {
            self.free.notify_all();
        }
    }

    /// Whether no prediction is running.
    pub fn is_idle(&self) -> bool {
        self.lock().busy.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lease<'_> {
    /// The model.
    pub fn trained(&self) -> &Trained {
        self.trained.as_ref().expect("a lease has its model until it ends")
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut shared = self.models.lock();
        shared.busy.retain(|(_, flag)| !Arc::ptr_eq(flag, &self.flag));
        if let Some(trained) = self.trained.take()
            && shared.idle.len() < AT_ONCE
        {
            shared.idle.push((std::mem::take(&mut self.checkpoint), trained));
        }
        self.models.free.notify_one();
    }
}
