//! How a job ends when a rank dies, hangs or fails: with a message that names it, and for all.

use std::time::{Duration, Instant};

use crate::messenger::{Messenger, pause};
use crate::notice::RankWord;
use crate::watch::GRACE;

/// What to do about a rank that does not answer.
const HINT: &str = "check that machine and its process; `CFO_RANKS_TIMEOUT` sets the limit in seconds; `--resume` continues from the \
                    latest checkpoint, with any number of ranks";

impl Messenger {
    /// Names the ranks that do not take part in the communication that this one waits in, and ends the job.
    pub(crate) fn accuse(&mut self, waited: Duration) -> ! {
        self.receive_notices();
        let here = self.mpi.rank;
        let waits =
            |rank: usize| rank == here || self.waiting.get(&rank).is_some_and(|&one| self.is_now(one));
        let (waiting, missing): (Vec<usize>, Vec<usize>) = (0..self.mpi.size).partition(|&rank| waits(rank));
        if waiting.first() != Some(&here) {
            // The first waiting rank reports the error; if it cannot, this one does.
            std::thread::sleep(GRACE);
        }
        let seconds = waited.as_secs();
        let text = match missing.as_slice() {
            [] => format!(
                "error: all ranks have waited for each other for {seconds} s: the network or MPI delivers no messages"
            ),
            missing => format!(
                "error: {} not answered for {seconds} s: dead, hung, or slower than the limit",
                self.named(missing)
            ),
        };
        (self.report)(&format!("{text}\n\nhint: {HINT}"));
        self.abort()
    }

    /// Names a rank that has sent no heartbeats for too long, and ends the job.
    pub(crate) fn report_silence(&self, rank: usize, silence: Duration) -> ! {
        (self.report)(&format!(
            "error: {} sent no heartbeat for {} s: killed, crashed or stopped, or its machine or network is down\n\nhint: {HINT}",
            self.named(&[rank]),
            silence.as_secs()
        ));
        self.abort()
    }

    /// `rank 2 on host` or `ranks 2 on a, 3 on b`, with its verb.
    fn named(&self, ranks: &[usize]) -> String {
        let one = |&rank: &usize| format!("{rank} on {}", self.host(rank));
        let more = ranks.len().saturating_sub(4);
        let listed: Vec<String> = ranks.iter().take(4).map(one).collect();
        match (ranks.len(), more) {
            (1, _) => format!("rank {} has", listed[0]),
            (_, 0) => format!("ranks {} have", listed.join(", ")),
            _ => format!("ranks {} and {more} more have", listed.join(", ")),
        }
    }

    fn host(&self, rank: usize) -> &str {
        self.hosts.get(rank).map_or("an unknown host", String::as_str)
    }

    /// Another rank failed: rank 0 says who and why, and ends the job; the others wait for that.
    pub(crate) fn end_by_failures(&mut self) -> ! {
        let patience = if self.mpi.rank == 0 { GRACE / 4 } else { 2 * GRACE };
        self.collect_failures(patience, self.mpi.size - 1);
        self.say_failures(None);
        self.abort()
    }

    /// This rank failed. Where all others did so too the job ends in order, else for all at once.
    pub(crate) fn fail(&mut self, text: &str) {
        let mut sent = self.tell(RankWord::Failed(text.into()));
        self.collect_failures(GRACE, self.mpi.size - 1);
        let everyone = self.failures.len() + 1 == self.mpi.size;
        if self.mpi.rank == 0 {
            self.say_failures(Some(text));
        }
        let started = Instant::now();
        while everyone && started.elapsed() < GRACE {
            sent.retain_mut(|request| matches!(self.mpi.is_done(request), Ok(false)));
            if sent.is_empty() {
                self.mpi.finalize();
                return;
            }
            pause(started.elapsed());
        }
        if self.mpi.rank != 0 {
            // Rank 0 was told; it says what there is to say and ends this process too.
            std::thread::sleep(2 * GRACE);
            (self.report)(&format!("rank {} on {}: {text}", self.mpi.rank, self.host(self.mpi.rank)));
        }
        self.abort()
    }

    /// Ends the processes of all ranks. What was said before goes through the launcher, which drops what it has not passed on by then.
    pub(crate) fn abort(&self) -> ! {
        std::thread::sleep(Duration::from_millis(200));
        self.mpi.abort(1)
    }

    /// Waits for this number of failures of other ranks, for a limited time.
    fn collect_failures(&mut self, patience: Duration, count: usize) {
        let started = Instant::now();
        while started.elapsed() < patience && self.failures.len() < count {
            self.receive_notices();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Says why other ranks failed, each reason once; one that failed as this rank did says nothing new.
    fn say_failures(&self, own: Option<&str>) {
        let mut said: Vec<&str> = own.into_iter().chain([""]).collect();
        for (rank, text) in &self.failures {
            if !said.contains(&text.as_str()) {
                (self.report)(&format!("rank {rank} on {}: {text}", self.host(*rank)));
                said.push(text);
            }
        }
    }
}
