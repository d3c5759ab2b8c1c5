//! The threads of a run. One of rayon's threads leads: it iterates over the steps and offers the tasks of each step.
//! The others follow and spin between steps instead of sleeping, because most steps are shorter than the time to wake a
//! thread. Offering tasks is a store to memory: nothing is queued or allocated.
//!
//! Kernels divide tasks independently of the number of threads, so results do not depend on it. Every thread starts
//! with its own part of a step's tasks, the same part in every step. It thus mostly reads from its own cache what it
//! wrote in the previous step. Threads that have finished take over tasks of others.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Maximum number of parts of a step's tasks; more threads share them.
const PARTS: usize = 16;
/// Number of checks for an offer after which a follower yields to other processes: about a tenth of a millisecond.
const PATIENCE: usize = 2000;
/// Bit of [`Team::state`] set while tasks are offered. Lower bits count the threads at work, upper bits the offers.
const OPEN: u64 = 1 << 32;

thread_local! {
    /// The team that this thread leads, while no task runs on it.
    static LED: Cell<*const Team> = const { Cell::new(std::ptr::null()) };
}

struct Team {
    /// Number of offers, whether one is open, and the number of followers that work on it.
    state: AtomicU64,
    /// The offered work. Written while no offer is open and no thread works, read by threads that have joined.
    offer: UnsafeCell<*const (dyn Fn() + Sync)>,
    over: AtomicBool,
}

// SAFETY: the offer is read and written as its comment describes, in an order that `state` establishes.
unsafe impl Sync for Team {}

/// Number of threads of a run, for which per-thread memory is planned.
pub(crate) fn lanes() -> usize {
    rayon::current_num_threads()
}

/// Runs `body` on one of rayon's threads, with the others following it.
pub(crate) fn lead<R: Send>(body: impl FnOnce() -> R + Send) -> R {
    if lanes() == 1 {
        return body();
    }
    let team =
        Team { state: AtomicU64::new(0), offer: UnsafeCell::new(&|| ()), over: AtomicBool::new(false) };
    let led = || {
        // Ends the followers' wait, also if the body panics.
        let _end = End(&team);
        let _led = Led::set(&team);
        body()
    };
    rayon::join(led, || followers(&team, lanes() - 1)).0
}

struct End<'a>(&'a Team);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
    }
}

/// Makes a team the one that this thread leads (or none) until dropped.
struct Led(*const Team);

impl Led {
    fn set(team: *const Team) -> Self {
        Self(LED.replace(team))
    }
}

impl Drop for Led {
    fn drop(&mut self) {
        LED.set(self.0);
    }
}

fn followers(team: &Team, count: usize) {
    match count {
        0 | 1 => team.follow(),
        _ => {
            rayon::join(|| team.follow(), || followers(team, count - 1));
        }
    }
}

impl Team {
    fn follow(&self) {
        let (mut seen, mut looks) = (0, 0);
        while !self.over.load(Ordering::Acquire) {
            let state = self.state.load(Ordering::Acquire);
            let fresh = state & OPEN != 0 && state >> 33 != seen;
            // Only an open offer can be joined, and the leader closes it before it waits for the threads that joined.
            if fresh
                && self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            {
                (seen, looks) = (state >> 33, 0);
                let _joined = Joined(self);
                // SAFETY: the leader keeps the offered work until no thread uses it.
                unsafe { (**self.offer.get())() };
            } else if looks < PATIENCE {
                looks += 1;
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    /// Runs `work` on this thread and on threads that join; returns when all have returned.
    fn offer(&self, work: &(dyn Fn() + Sync)) {
        // SAFETY: only the lifetime is extended. No thread holds the reference after this function has returned,
        // because `Open` waits for all threads that joined, even if `work` panics.
        let work: *const (dyn Fn() + Sync) = unsafe {
            std::mem::transmute::<*const (dyn Fn() + Sync + '_), *const (dyn Fn() + Sync + 'static)>(work)
        };
        // SAFETY: no offer is open and no thread works.
        unsafe { *self.offer.get() = work };
        let offers = self.state.load(Ordering::Relaxed) >> 33;
        self.state.store((offers + 1) << 33 | OPEN, Ordering::Release);
        let _open = Open(self);
        // SAFETY: as above.
        unsafe { (*work)() };
    }
}

struct Joined<'a>(&'a Team);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}

struct Open<'a>(&'a Team);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut looks = 0;
        self.0.state.fetch_and(!OPEN, Ordering::AcqRel);
        while self.0.state.load(Ordering::Acquire) & (OPEN - 1) != 0 {
            looks += 1;
            match looks < PATIENCE {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
    }
}

/// The next task of a part, on its own cache line.
#[repr(align(64))]
struct NextTask(AtomicUsize);

/// Runs every task once. Tasks started within a task run on its thread, one after another.
pub(crate) fn for_each(tasks: usize, work: impl Fn(usize) + Sync) {
    for_each_task(tasks, &mut [], 0, |task, _: &mut [u8]| work(task));
}

/// Runs every task once. Concurrent tasks get different pieces of `scratch`, of `each` elements.
///
/// The result of a task must not depend on the piece.
pub(crate) fn for_each_task<T: Send>(
    tasks: usize,
    scratch: &mut [T],
    each: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    if tasks == 0 {
        return;
    }
    let team = LED.get();
    let room = scratch.len().checked_div(each).unwrap_or(usize::MAX);
    if team.is_null() || tasks <= 1 || room <= 1 {
        let piece = &mut scratch[..each];
        (0..tasks).for_each(|task| work(task, piece));
        return;
    }
    let parts = lanes().min(PARTS).min(tasks);
    let start = |part: usize| part * tasks / parts;
    let next: [NextTask; PARTS] =
        std::array::from_fn(|part| NextTask(AtomicUsize::new(start(part.min(parts)))));
    let (pieces, joined) = (Shared::new(scratch), AtomicUsize::new(0));
    let drain = || {
        let piece = joined.fetch_add(1, Ordering::Relaxed);
        if piece >= room {
            return;
        }
        // SAFETY: every thread that joins gets its own number, and therefore its own piece.
        let piece = unsafe { std::slice::from_raw_parts_mut(pieces.pointer().add(piece * each), each) };
        let own = rayon::current_thread_index().unwrap_or(0);
        for part in (own..own + parts).map(|part| part % parts) {
            loop {
                let task = next[part].0.fetch_add(1, Ordering::Relaxed);
                if task >= start(part + 1) {
                    break;
                }
                work(task, piece);
            }
        }
    };
    let _within = Led::set(std::ptr::null());
    // SAFETY: a team exists as long as it is led.
    unsafe { (*team).offer(&drain) };
}

/// Runs the tasks in parallel if they divide evenly, otherwise one after another, each with all threads.
pub(crate) fn for_each_outer(tasks: usize, work: impl Fn(usize) + Sync) {
    if tasks.is_multiple_of(lanes()) || tasks >= 4 * lanes() {
        for_each(tasks, work);
    } else {
        (0..tasks).for_each(work);
    }
}

/// Divides a slice into chunks and runs one task for each.
pub(crate) fn chunks<T: Send>(slice: &mut [T], size: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    chunk_pairs((slice, size), (&mut [0u8; 0], 0), |index, chunk, _| work(index, chunk));
}

/// Divides two slices into chunks of individual sizes and runs one task for each pair of chunks with the same index.
pub(crate) fn chunk_pairs<T: Send, U: Send>(
    (first, size): (&mut [T], usize),
    (second, other): (&mut [U], usize),
    work: impl Fn(usize, &mut [T], &mut [U]) + Sync,
) {
    let size = size.max(1);
    let (lengths, tasks) = ([first.len(), second.len()], first.len().div_ceil(size));
    let (first, second) = (Shared::new(first), Shared::new(second));
    for_each(tasks, |task| {
        // SAFETY: chunks of different tasks are disjoint.
        unsafe { work(task, first.chunk(task, size, lengths[0]), second.chunk(task, other, lengths[1])) }
    });
}

/// A pointer that tasks share; each writes its own elements.
pub(crate) struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: this is only an address; its uses state why they are sound.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }

    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }

    /// Chunk `index` of `length` elements divided into chunks of `size` elements; the last ones may be shorter.
    ///
    /// # Safety
    /// The elements exist, and nothing else holds this chunk.
    pub(crate) unsafe fn chunk<'a>(self, index: usize, size: usize, length: usize) -> &'a mut [T] {
        // SAFETY: by the caller.
        unsafe { self.range((index * size).min(length)..((index + 1) * size).min(length)) }
    }

    /// The elements of a range.
    ///
    /// # Safety
    /// The elements exist, and nothing else holds them.
    pub(crate) unsafe fn range<'a>(self, range: std::ops::Range<usize>) -> &'a mut [T] {
        // SAFETY: by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_threads<R: Send>(threads: usize, body: impl FnOnce() -> R + Send) -> R {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| lead(body))
    }

    #[test]
    fn every_task_runs_once_whatever_the_threads() {
        for (threads, tasks) in [(1, 10), (2, 0), (2, 1), (2, 2), (2, 1000), (3, 7), (20, 100)] {
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            with_threads(threads, || {
                for _ in 0..20 {
                    for_each(tasks, |task| {
                        counts[task].fetch_add(1, Ordering::Relaxed);
                        for_each(3, |_| ()); // nested: serial
                    });
                }
            });
            assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 20), "{threads} threads");
        }
    }

    #[test]
    fn pieces_of_scratch_are_not_shared() {
        let mut scratch = vec![0usize; 3 * 100];
        let sums: Vec<usize> = with_threads(4, || {
            let sums: Vec<AtomicUsize> = (0..500).map(|_| AtomicUsize::new(0)).collect();
            for_each_task(500, &mut scratch, 100, |task, piece| {
                piece.fill(task);
                std::thread::yield_now();
                sums[task].store(piece.iter().sum(), Ordering::Relaxed);
            });
            sums.iter().map(|sum| sum.load(Ordering::Relaxed)).collect()
        });
        assert!(sums.iter().enumerate().all(|(task, &sum)| sum == 100 * task));
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller() {
        for threads in [1, 2] {
            let caught = std::panic::catch_unwind(|| {
                with_threads(threads, || for_each(100, |task| assert!(task != 99, "task 99")));
            });
            assert!(caught.is_err(), "{threads} threads");
        }
    }
}
