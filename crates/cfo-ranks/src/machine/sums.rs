//! Sums of ranks on one machine, through memory that they share.
//!
//! Every rank puts its numbers into a slot of its own. When all have done so each rank adds one part of all slots, in the order of the
//! ranks; when all have done that everyone takes the whole sum. A part is added by one rank, so that all get the same bits, and the
//! bits depend on the number of ranks alone.
//!
//! A rank that waits sleeps until the last one wakes it: it takes no time from a computation on the same core.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::futex::{self, Timespec};

use super::memory::Memory;
use super::witness::EXPLAINED;
use super::{HEAD, Machine};
use crate::tree::add;

/// Bytes of a rank's slot; larger messages go in several pieces.
pub(super) const SLOT: usize = 1 << 20;
/// Where the number of arrivals lies.
const ARRIVALS: usize = 256;
/// Numbers of a part are a multiple of this, so that no two ranks write to one cache line.
const LINE: usize = 32;
/// How long a rank looks for the others before it sleeps, about as long as it takes to be woken.
const LOOK: Duration = Duration::from_micros(20);
/// The same while nothing else is to be done on its core.
const LONG_LOOK: Duration = Duration::from_millis(1);

const _: () = assert!(Memory::MARK <= ARRIVALS && ARRIVALS < EXPLAINED && EXPLAINED < HEAD);

/// Sums over all ranks of a machine.
#[derive(Debug)]
pub(crate) struct Sums {
    machine: Machine,
    /// How many arrivals there are when all ranks have come to the next meeting; wraps around.
    due: u32,
    /// Whether there is a core for each rank.
    roomy: bool,
}

impl Sums {
    /// Numbers that a slot holds.
    pub(crate) fn capacity<T>() -> usize {
        SLOT / size_of::<T>()
    }

    pub(crate) fn new(machine: Machine) -> Self {
        // Those of the machine: a launcher may have bound this process to one.
        // SAFETY: asks the system for a number.
        let cores = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        let roomy = usize::try_from(cores).is_ok_and(|cores| machine.size <= cores);
        Self { machine, due: machine.size as u32, roomy }
    }

    fn arrivals(&self) -> &AtomicU32 {
        // SAFETY: zeros are one, and it is touched as an atomic alone.
        unsafe { self.machine.memory.at::<AtomicU32>(ARRIVALS, 1).as_ref() }
    }

    /// Some numbers of a slot; that after the ranks' own is for the sum.
    fn numbers<T>(&self, slot: usize, start: usize, count: usize) -> *mut [T] {
        let offset = HEAD + slot * SLOT + start * size_of::<T>();
        std::ptr::slice_from_raw_parts_mut(self.machine.memory.at::<T>(offset, count).as_ptr(), count)
    }

    /// Puts this rank's numbers where the others find them, before the first meeting.
    pub(crate) fn put<T: Copy>(&mut self, values: &[T]) {
        // SAFETY: between a second meeting and the next first one a rank alone touches its slot.
        unsafe { &mut *self.numbers::<T>(self.machine.rank, 0, values.len()) }.copy_from_slice(values);
    }

    /// Adds this rank's part of all slots, between two meetings.
    pub(crate) fn add_part<T: Copy + AddAssign>(&mut self, count: usize) {
        let Machine { rank, size, .. } = self.machine;
        let start = |rank: usize| (rank * count.div_ceil(LINE) / size * LINE).min(count);
        let (first, length) = (start(rank), start(rank + 1) - start(rank));
        // SAFETY: between these meetings slots are only read, and every part of the sum is one rank's.
        let slot = |rank: usize| unsafe { &*self.numbers::<T>(rank, first, length) };
        // SAFETY: as above.
        let sum = unsafe { &mut *self.numbers::<T>(size, first, length) };
        sum.copy_from_slice(slot(0));
        (1..size).for_each(|rank| add(sum, slot(rank)));
    }

    /// Takes the sum, after the second meeting.
    pub(crate) fn take<T: Copy>(&self, values: &mut [T]) {
        // SAFETY: the sum is written again after all ranks have come to another meeting.
        values.copy_from_slice(unsafe { &*self.numbers::<T>(self.machine.size, 0, values.len()) });
    }

    /// Says that this rank has come to the next meeting; the last one wakes the others.
    pub(crate) fn arrive(&mut self) {
        let before = self.arrivals().fetch_add(1, Ordering::AcqRel);
        if before.wrapping_add(1) == self.due {
            let _ = futex::wake(self.arrivals(), futex::Flags::empty(), i32::MAX as u32);
        }
    }

    /// Whether all ranks have come to the meeting that this one came to; waits for them, and not for long. An `idle` process has nothing
    /// else to do.
    pub(crate) fn have_all_arrived(&mut self, patience: Duration, idle: bool) -> bool {
        let look = if idle && self.roomy { LONG_LOOK } else { LOOK };
        let started = Instant::now();
        loop {
            let now = self.arrivals().load(Ordering::Acquire);
            // Others may have gone on to the next meeting.
            if now.wrapping_sub(self.due) as i32 >= 0 {
                self.due = self.due.wrapping_add(self.machine.size as u32);
                return true;
            }
            let waited = started.elapsed();
            if waited >= patience {
                return false;
            }
            if waited < look {
                std::hint::spin_loop();
                continue;
            }
            let left = Timespec::try_from(patience - waited).ok();
            // Woken, too late to sleep, or interrupted: it looks again.
            let _ = futex::wait(self.arrivals(), futex::Flags::empty(), now, left.as_ref());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All ranks' sums, by threads that each map the memory anew.
    fn summed<T: Copy + AddAssign + Send + Sync>(parts: &[Vec<T>]) -> Vec<Vec<T>> {
        let (_, _lines, place) = Machine::create(parts.len()).unwrap();
        std::thread::scope(|scope| {
            let start = |(rank, part): (usize, &Vec<T>)| {
                let mut values = part.clone();
                let mut sums = Sums::new(Machine::open(&place, rank, parts.len()).unwrap());
                scope.spawn(move || {
                    for piece in values.chunks_mut(Sums::capacity::<T>()) {
                        sums.put(piece);
                        sums.arrive();
                        while !sums.have_all_arrived(Duration::from_millis(1), false) {}
                        sums.add_part::<T>(piece.len());
                        sums.arrive();
                        while !sums.have_all_arrived(Duration::from_millis(1), false) {}
                        sums.take(piece);
                    }
                    values
                })
            };
            let threads: Vec<_> = parts.iter().enumerate().map(start).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_get_the_sum_in_the_order_of_the_ranks() {
        // Fewer numbers than ranks, no multiple of a line, more than a slot.
        for (ranks, count) in [(2, 1), (3, 1000), (5, 33), (4, 600_001)] {
            let value = |rank: usize, i: usize| (0.1 + rank as f32) * (i as f32 * 0.37).sin();
            let parts: Vec<Vec<f32>> =
                (0..ranks).map(|rank| (0..count).map(|i| value(rank, i)).collect()).collect();
            let expected: Vec<f32> =
                (0..count).map(|i| (1..ranks).fold(value(0, i), |sum, rank| sum + value(rank, i))).collect();
            assert!(summed(&parts).iter().all(|sum| *sum == expected), "{ranks} ranks, {count} numbers");
        }
        let doubles: Vec<Vec<f64>> = (0..3).map(|rank| vec![0.1 * f64::from(rank); 200_000]).collect();
        assert!(summed(&doubles).iter().flatten().all(|&sum| sum == 0.1 + 0.2));
    }

    #[test]
    fn meetings_go_on_when_their_count_wraps_around() {
        let mut sums = Sums::new(Machine::create(1).unwrap().0);
        sums.arrivals().store(u32::MAX, Ordering::Release);
        sums.due = 0;
        for _ in 0..3 {
            assert!(!sums.have_all_arrived(Duration::ZERO, true));
            sums.arrive();
            assert!(sums.have_all_arrived(Duration::ZERO, true));
        }
    }
}
