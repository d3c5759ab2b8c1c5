//! Who of a machine's ranks is alive.
//!
//! Every rank holds a lock of its own for as long as it lives. When it dies, however that comes about, the system gives the lock on and
//! says that its holder died: before the launcher, which ends the other processes at once, hears of it.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::Machine;
use super::sums::SUMS;

/// Bytes of a life; the first of them holds what has been said.
pub(super) const LIFE: usize = 128;
/// How long the launcher has to end a job of which a rank has died.
const GRACE: Duration = Duration::from_secs(4);

const _: () = assert!(size_of::<libc::pthread_mutex_t>() <= LIFE);

/// The lives of a machine's ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lives(Machine);

/// A rank as it is called in messages.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    pub(crate) rank: usize,
    pub(crate) host: String,
    pub(crate) process: u32,
}

impl Machine {
    /// Makes the locks, before anyone else sees the memory; `None` if the system has none of the kind.
    pub(super) fn make_lives(&self) -> Option<()> {
        let mut kind = MaybeUninit::uninit();
        // SAFETY: memory of the right size that nobody else sees yet; the attributes are initialised first.
        unsafe {
            let done = [
                libc::pthread_mutexattr_init(kind.as_mut_ptr()),
                libc::pthread_mutexattr_setpshared(kind.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED),
                libc::pthread_mutexattr_setrobust(kind.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST),
            ];
            if done != [0; 3] {
                return None;
            }
            let make = |rank| libc::pthread_mutex_init(self.lock(rank), kind.as_ptr());
            (0..self.size).all(|rank| make(rank) == 0).then_some(())
        }
    }

    fn lock(&self, rank: usize) -> *mut libc::pthread_mutex_t {
        self.memory.at(SUMS + (rank + 1) * LIFE, 1).as_ptr()
    }
}

impl Lives {
    /// Begins this rank's life; to be called on a thread that lives as long as the process.
    pub(crate) fn begin(machine: Machine) -> Self {
        // SAFETY: the first rank has made the lock; nobody looks at it before all ranks have come here.
        unsafe { libc::pthread_mutex_lock(machine.lock(machine.rank)) };
        Self(machine)
    }

    /// Whether an end of ranks has been explained, or needs no explanation.
    fn explained(&self) -> &AtomicU32 {
        // SAFETY: zeros are one, and it is touched as an atomic alone.
        unsafe { self.0.memory.at::<AtomicU32>(SUMS, 1).as_ref() }
    }

    /// From now on ranks may end: they are done, or why they are not is being said.
    pub(crate) fn expect_end(&self) {
        self.explained().store(1, Ordering::Release);
    }

    /// Waits on a thread of its own for the end of the next rank of this machine, given by their number here. The first unexpected one
    /// is told, and ends this process if the launcher does not.
    pub(crate) fn watch(self, names: &[Life], report: fn(&str)) {
        let next = (self.0.rank + 1) % self.0.size;
        let Life { rank, host, process } = names[next].clone();
        let watch = move || {
            // SAFETY: as above; its holder lets go by dying alone.
            let told = unsafe { libc::pthread_mutex_lock(self.0.lock(next)) };
            if told != libc::EOWNERDEAD || self.explained().swap(1, Ordering::AcqRel) != 0 {
                return;
            }
            report(&format!(
                "error: rank {rank} on {host} (process {process}) has ended without a word: killed, crashed or out of memory\n\n\
                 hint: the system's log (`dmesg`) says what was killed for want of memory; `--resume` goes on from the latest \
                 checkpoint, with any number of ranks"
            ));
            std::thread::sleep(GRACE);
            // SAFETY: ends the process without the clean-up that would wait for the dead.
            unsafe { libc::_exit(1) };
        };
        let spawned = std::thread::Builder::new().name("lives".into()).spawn(watch);
        spawned.expect("the system gives a thread");
    }
}
