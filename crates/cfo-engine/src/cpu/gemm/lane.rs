//! Tasks run on all cores, each with memory of its own for intermediate results.

use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

/// How many tasks run at once: one for each thread that there is when the memory is planned.
pub(crate) fn lanes() -> usize {
    rayon::current_num_threads()
}

/// Runs every task once; the ones that run at the same time get different pieces of `scratch`, of `each` elements.
///
/// Tasks are handed out as lanes get free; what a task computes must not depend on the lane.
pub(crate) fn for_each_task<T: Send>(
    tasks: usize,
    scratch: &mut [T],
    each: usize,
    work: impl Fn(usize, &mut [T]) + Sync,
) {
    let next = AtomicUsize::new(0);
    let lane = |scratch: &mut [T]| {
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                break;
            }
            work(task, scratch);
        }
    };
    match scratch.len().checked_div(each) {
        None => match tasks.min(lanes()) {
            0 | 1 => lane(&mut []),
            count => (0..count).into_par_iter().with_max_len(1).for_each(|_| lane(&mut [])),
        },
        Some(room) => match tasks.min(room) {
            0 | 1 => lane(&mut scratch[..each]),
            count => scratch[..count * each].par_chunks_exact_mut(each).with_max_len(1).for_each(lane),
        },
    }
}

/// A pointer that tasks share; each writes elements of its own.
#[derive(Clone, Copy)]
pub(crate) struct Shared<T>(*mut T);

#[allow(unsafe_code)]
// SAFETY: only an address; whoever dereferences it says why that is sound.
unsafe impl<T> Send for Shared<T> {}
#[allow(unsafe_code)]
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(crate) fn new(slice: &mut [T]) -> Self {
        Self(slice.as_mut_ptr())
    }

    pub(crate) fn pointer(self) -> *mut T {
        self.0
    }
}
