//! What the ranks' thread looks after while it waits: the clock, and the notices of other ranks.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::messenger::{GLANCE, Messenger};
use crate::mpi::{Mpi, Packet, Tag, Transfer};
use crate::notice::{BYTES, Notice, RankWord};

/// How long other ranks have to say that they wait too, or that they failed too.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

impl Messenger {
    /// Waits until something is done, which is asked with the time waited. Where that does not come in time the job ends.
    pub(crate) fn until(
        &mut self,
        limit: Option<Duration>,
        mut is_done: impl FnMut(&Mpi, Duration) -> Result<bool>,
    ) -> Result<()> {
        let started = Instant::now();
        let (mut glanced, mut asked) = (started, None);
        while !is_done(&self.mpi, started.elapsed())? {
            if glanced.elapsed() < GLANCE {
                continue;
            }
            glanced = Instant::now();
            self.glance();
            self.beat();
            let waited = started.elapsed();
            match (asked, limit) {
                (None, Some(limit)) if waited > limit || self.is_asked() => {
                    self.tell(RankWord::Waits(self.sequence));
                    asked = Some(waited > limit);
                }
                // Another rank's patience ended first.
                (Some(false), Some(limit)) if waited > limit => asked = Some(true),
                (Some(true), Some(limit)) if waited > limit + GRACE => self.accuse(waited),
                _ => {}
            }
        }
        Ok(())
    }

    /// Ends the job where the process waits for the others elsewhere for too long.
    pub(crate) fn look_after(&mut self) {
        let Some((since, told)) = self.watched else { return };
        let waited = since.elapsed();
        if !told && (waited > self.limit || self.is_asked()) {
            self.tell(RankWord::Waits(self.sequence));
            self.watched = Some((since, true));
        }
        if waited > self.limit + GRACE {
            self.accuse(waited);
        }
    }

    /// Whether another rank asks who else waits.
    fn is_asked(&self) -> bool {
        self.waiting.values().any(|&sequence| self.is_now(sequence))
    }

    /// Whether a communication is the one under way: some ranks may have gone on to the next one before this rank hung.
    pub(crate) fn is_now(&self, sequence: u64) -> bool {
        sequence.abs_diff(self.sequence) <= 2
    }

    /// Receives the notices that have come. A failure elsewhere ends the job, unless this rank soon fails by itself: a file that is
    /// missing is missing for all, and then the job ends in order.
    pub(crate) fn glance(&mut self) {
        self.receive_notices();
        if !self.failures.is_empty() && self.failed.get_or_insert_with(Instant::now).elapsed() > GRACE / 2 {
            self.end_by_failures();
        }
    }

    pub(crate) fn receive_notices(&mut self) {
        while self.mpi.has_message(Tag::Notice) {
            let mut bytes = [0; BYTES];
            // SAFETY: held here until the request is done.
            #[allow(unsafe_code)]
            let started = unsafe { self.mpi.start_receive(Packet::Bytes(&mut bytes), None, Tag::Notice) };
            let Ok(mut request) = started else { return };
            // The message is there already.
            while matches!(self.mpi.is_done(&mut request), Ok(false)) {
                std::thread::yield_now();
            }
            match Notice::from_bytes(&bytes) {
                Notice { rank, word: RankWord::Waits(sequence) } => {
                    self.waiting.insert(rank, sequence);
                }
                Notice { rank, word: RankWord::Failed(text) } => self.failures.push((rank, text)),
            }
        }
    }

    /// Sends a notice to all other ranks. Its memory is never given back: who does not receive it keeps it.
    pub(crate) fn tell(&self, word: RankWord) -> Vec<Transfer> {
        let bytes = Notice { rank: self.mpi.rank, word }.to_bytes();
        let others = (0..self.mpi.size).filter(|&rank| rank != self.mpi.rank);
        let send = |rank: usize| {
            let bytes = Box::leak(bytes.clone().into_boxed_slice());
            // SAFETY: the memory lives for ever.
            #[allow(unsafe_code)]
            let request = unsafe { self.mpi.start_send(Packet::Bytes(bytes), rank, Tag::Notice) };
            request.ok()
        };
        others.filter_map(send).collect()
    }
}
