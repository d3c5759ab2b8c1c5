//! The thread that speaks with the other ranks. It alone calls MPI; the rest of the process sends it orders.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::error::{RanksError, Result};
use crate::heartbeat::Heartbeat;
use crate::mpi::{Mpi, Packet, Tag, Transfer};
use crate::numbers::Numbers;
use crate::tree::{Pair, Shards, pairs};

/// How often notices of other ranks are looked for.
pub(crate) const GLANCE: Duration = Duration::from_millis(50);
/// Nanoseconds for which threads of this process have waited for sums.
static WAITED: AtomicU64 = AtomicU64::new(0);

/// How long threads of this process have waited for sums, all together.
pub fn waited() -> Duration {
    Duration::from_nanos(WAITED.load(Ordering::Relaxed))
}

/// In which order numbers are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankSum {
    /// As MPI likes: the bits depend on the number of ranks.
    Any,
    /// In a tree over fixed shards, whose values lie one after another: the bits do not. The sum lies where the first was.
    Tree(Shards),
}

/// A sum under way.
#[derive(Debug)]
pub struct Summing(Mutex<Receiver<Numbers>>);

impl Summing {
    /// One that is there already.
    pub fn done(numbers: Numbers) -> Self {
        let (reply, answer) = channel();
        let _ = reply.send(numbers);
        Self::new(answer)
    }

    /// One whose numbers come from elsewhere.
    pub(crate) fn new(answer: Receiver<Numbers>) -> Self {
        Self(Mutex::new(answer))
    }

    /// The sum, once it is there.
    pub fn wait(self) -> Numbers {
        // The messenger answers, or ends the process.
        let answer = self.0.into_inner().unwrap_or_else(|_| park());
        if let Ok(numbers) = answer.try_recv() {
            return numbers;
        }
        let started = Instant::now();
        let numbers = answer.recv().unwrap_or_else(|_| park());
        WAITED.fetch_add(started.elapsed().as_nanos() as u64, Ordering::Relaxed);
        numbers
    }
}

/// Waits for the end of the process.
pub(crate) fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// An order to the messenger's thread; the thread ends after one that breaks.
pub(crate) type MessengerOrder = Box<dyn FnOnce(&mut Messenger) -> ControlFlow<()> + Send>;

pub(crate) struct Messenger {
    pub(crate) mpi: Mpi,
    pub(crate) hosts: Vec<String>,
    /// How long a rank may keep the others waiting.
    pub(crate) limit: Duration,
    /// Tells a user.
    pub(crate) report: fn(&str),
    /// The number of the communication under way.
    pub(crate) sequence: u64,
    /// The last communication in which each other rank said that it waits.
    pub(crate) waiting: HashMap<usize, u64>,
    pub(crate) failures: Vec<(usize, String)>,
    /// When the first of them was heard of.
    pub(crate) failed: Option<Instant>,
    /// Since when the process waits for the others elsewhere, and whether they were told.
    pub(crate) watched: Option<(Instant, bool)>,
    pub(crate) heartbeat: Heartbeat,
}

impl Messenger {
    pub(crate) fn serve(&mut self, orders: &Receiver<MessengerOrder>) {
        loop {
            match orders.recv_timeout(4 * GLANCE) {
                Ok(order) => {
                    if order(self).is_break() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.glance();
                    self.beat();
                    self.look_after();
                }
                // All senders are dropped without a last order: the process is ending.
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Does the work of a communication, in which all ranks take part.
    pub(crate) fn communicate<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> T {
        self.sequence += 1;
        work(self).unwrap_or_else(|error| self.end(&error))
    }

    pub(crate) fn sum(&mut self, mut numbers: Numbers, order: RankSum) -> Result<Numbers> {
        match order {
            RankSum::Any => {
                let length = numbers.len();
                // SAFETY: the numbers are held here until the request is done.
                #[allow(unsafe_code)]
                let request = unsafe { self.mpi.start_sum(numbers.part(0, length))? };
                self.complete(request)?;
            }
            RankSum::Tree(shards) => self.sum_in_tree(&mut numbers, shards)?,
        }
        Ok(numbers)
    }

    /// Adds in the tree's order: the holder of a pair's left node receives the right one. All have room for the sum.
    fn sum_in_tree(&mut self, numbers: &mut Numbers, own: Shards) -> Result<()> {
        let size = numbers.len().checked_div(own.count.max(1)).unwrap_or(0);
        let (ranks, here) = (self.mpi.size, self.mpi.rank);
        let holder = |shard: usize| {
            (0..ranks).find(|&rank| {
                let part = Shards::of(own.total, rank, ranks);
                (part.first..part.first + part.count).contains(&shard)
            })
        };
        let place = |shard: usize| (shard - own.first) * size;
        let mut received = numbers.zeros(size);
        for Pair { left, right } in pairs(own.total) {
            match (holder(left) == Some(here), holder(right) == Some(here)) {
                (true, true) => numbers.add_within(place(left), place(right), size),
                (true, false) => {
                    self.transfer(received.part(0, size), holder(right), false)?;
                    numbers.add(place(left), &received);
                }
                (false, true) => self.transfer(numbers.part(place(right), size), holder(left), true)?,
                (false, false) => {}
            }
        }
        // SAFETY: the numbers are held here until the request is done.
        #[allow(unsafe_code)]
        let request = unsafe { self.mpi.start_broadcast(numbers.part(0, size))? };
        self.complete(request)
    }

    fn transfer(&mut self, values: Packet<'_>, rank: Option<usize>, sends: bool) -> Result<()> {
        let rank = rank.expect("every shard has a holder");
        // SAFETY: the caller holds the values until this returns.
        #[allow(unsafe_code)]
        let request = unsafe {
            match sends {
                true => self.mpi.start_send(values, rank, Tag::Shard)?,
                false => self.mpi.start_receive(values, Some(rank), Tag::Shard)?,
            }
        };
        self.complete(request)
    }

    /// Rank 0's bytes on every rank.
    pub(crate) fn broadcast(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut length = (bytes.len() as u64).to_le_bytes();
        // SAFETY: held here until the request is done, as below.
        #[allow(unsafe_code)]
        let request = unsafe { self.mpi.start_broadcast(Packet::Bytes(&mut length))? };
        self.complete(request)?;
        bytes.resize(u64::from_le_bytes(length) as usize, 0);
        // Larger than what one message may have.
        for part in bytes.chunks_mut(1 << 30) {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            let request = unsafe { self.mpi.start_broadcast(Packet::Bytes(part))? };
            self.complete(request)?;
        }
        Ok(bytes)
    }

    /// Every rank's bytes on every rank.
    pub(crate) fn gather(&mut self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let lengths = self.gather_equal((bytes.len() as u64).to_le_bytes().to_vec())?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, &byte| word << 8 | u64::from(byte));
        let lengths: Vec<usize> = lengths.chunks(8).map(|bytes| word(bytes) as usize).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        if longest == 0 {
            return Ok(vec![Vec::new(); self.mpi.size]);
        }
        let mut padded = bytes.to_vec();
        padded.resize(longest, 0);
        let all = self.gather_equal(padded)?;
        Ok(all.chunks(longest).zip(lengths).map(|(part, length)| part[..length].to_vec()).collect())
    }

    fn gather_equal(&mut self, mut own: Vec<u8>) -> Result<Vec<u8>> {
        let mut all = vec![0; own.len() * self.mpi.size];
        // SAFETY: both are held here until the request is done.
        #[allow(unsafe_code)]
        let request = unsafe { self.mpi.start_gather(&mut own, &mut all)? };
        self.complete(request)?;
        Ok(all)
    }

    /// Drives a communication to its end. Where that does not come in time the job ends.
    fn complete(&mut self, request: Transfer) -> Result<()> {
        self.complete_within(request, Some(self.limit))
    }

    fn complete_within(&mut self, mut request: Transfer, limit: Option<Duration>) -> Result<()> {
        self.until(limit, |mpi, waited| {
            let done = mpi.is_done(&mut request)?;
            if !done {
                pause(waited);
            }
            Ok(done)
        })
    }

    /// Leaves the job together with the others, however long they still take.
    pub(crate) fn finish(&mut self) {
        self.sequence += 1;
        let (mut own, mut all) = (vec![0_u8], vec![0_u8; self.mpi.size]);
        // SAFETY: both are held here until the request is done.
        #[allow(unsafe_code)]
        let started = unsafe { self.mpi.start_gather(&mut own, &mut all) };
        let left = started.and_then(|request| self.complete_within(request, None));
        match left.and_then(|()| self.stop_heartbeats()) {
            Ok(()) => self.mpi.finalize(),
            Err(error) => self.end(&error),
        }
    }

    fn end(&self, error: &RanksError) -> ! {
        (self.report)(&format!("error: rank {}: {error}\n\nhint: {}", self.mpi.rank, error.hint()));
        self.abort()
    }
}

/// Lets others run while nothing has come: at first for as short as can be, then the longer the longer it takes.
pub(crate) fn pause(waited: Duration) {
    if waited < Duration::from_micros(20) {
        std::hint::spin_loop();
    } else if waited < Duration::from_millis(1) {
        std::thread::yield_now();
    } else {
        std::thread::sleep((waited / 64).clamp(Duration::from_micros(50), Duration::from_millis(1)));
    }
}
