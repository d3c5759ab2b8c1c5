//! This process among the others.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvError, Sender, channel};
use std::time::Instant;

use crate::error::{RanksError, Result};
use crate::messenger::{Messenger, MessengerOrder, RankSum, Summing, park};
use crate::numbers::Numbers;

/// Who a rank is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The version of its program.
    pub version: String,
    /// Its machine.
    pub host: String,
}

/// This process among those of its job. Every function but the questions is called by all ranks, in the same order.
#[derive(Debug)]
pub struct Ranks {
    pub(crate) rank: usize,
    pub(crate) identities: Vec<Identity>,
    pub(crate) library: PathBuf,
    pub(crate) version: String,
    pub(crate) orders: Sender<MessengerOrder>,
}

impl Ranks {
    /// The number of this process, from 0 on.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many processes there are.
    pub fn size(&self) -> usize {
        self.identities.len()
    }

    /// Whether this is the process that talks and writes.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// The machine of a rank.
    pub fn host(&self, rank: usize) -> &str {
        &self.identities[rank].host
    }

    /// The number of this process among those of its machine.
    pub fn local_rank(&self) -> usize {
        self.identities[..self.rank].iter().filter(|other| other.host == self.host(self.rank)).count()
    }

    /// How many processes there are on this machine.
    pub fn local_size(&self) -> usize {
        self.identities.iter().filter(|other| other.host == self.host(self.rank)).count()
    }

    /// The file of the MPI library.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// What the MPI library calls itself.
    pub fn library_version(&self) -> &str {
        &self.version
    }

    /// Waits until all have come here.
    pub fn barrier(&self) {
        self.gather(&[]);
    }

    /// Starts to sum numbers over all ranks; every rank gets the sum.
    pub fn start_sum(&self, numbers: Numbers, order: RankSum) -> Summing {
        Summing::new(self.communicate(move |messenger| messenger.sum(numbers, order)))
    }

    /// The sum of numbers over all ranks.
    pub fn all_reduce(&self, values: Vec<f64>) -> Vec<f64> {
        match self.start_sum(Numbers::F64(values), RankSum::Any).wait() {
            Numbers::F64(values) => values,
            Numbers::F32(_) => unreachable!("the precision of a sum is that of its numbers"),
        }
    }

    /// Rank 0's bytes; those of the others are not looked at.
    pub fn broadcast(&self, bytes: &[u8]) -> Vec<u8> {
        let bytes = if self.is_first() { bytes.to_vec() } else { Vec::new() };
        let answer = self.communicate(move |messenger| messenger.broadcast(bytes));
        answer.recv().unwrap_or_else(|_| park())
    }

    /// The bytes of all ranks, by rank.
    pub fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let bytes = bytes.to_vec();
        let answer = self.communicate(move |messenger| messenger.gather(&bytes));
        answer.recv().unwrap_or_else(|_| park())
    }

    /// Says that this process begins or ends to wait for the others where MPI does not see it, as for a sum between GPUs: that
    /// it waits for no longer than for any other communication.
    pub fn watch(&self, begins: bool) {
        self.order(move |messenger| {
            messenger.watched = begins.then(|| (Instant::now(), false));
            ControlFlow::Continue(())
        });
    }

    /// Refuses to go on where a rank has something else than rank 0; all ranks refuse alike.
    ///
    /// # Errors
    /// Which rank, what it has, and what rank 0 has.
    pub fn require_same(&self, what: &'static str, value: &str) -> Result<()> {
        let all = self.gather(value.as_bytes());
        match (1..self.size()).find(|&rank| all[rank] != all[0]) {
            None => Ok(()),
            Some(rank) => Err(RanksError::Different {
                rank,
                host: self.host(rank).into(),
                what,
                found: String::from_utf8_lossy(&all[rank]).into_owned(),
                expected: String::from_utf8_lossy(&all[0]).into_owned(),
            }),
        }
    }

    /// Tells the others that this rank failed. Returns where all of them did too; else the job ends here.
    ///
    /// Rank 0 speaks for itself before it calls this.
    pub fn abort(&self, text: &str) {
        let text = text.to_owned();
        self.end_with(move |messenger| messenger.fail(&text)).unwrap_or_else(|_| park());
    }

    /// Leaves the job when all others do. Nothing is called afterwards.
    pub fn finish(&self) {
        // A messenger that has failed has ended the process.
        let _ = self.end_with(Messenger::finish);
    }

    /// Orders a communication; returns where its result arrives.
    fn communicate<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Messenger) -> Result<T> + Send + 'static,
    ) -> Receiver<T> {
        let (reply, answer) = channel();
        self.order(move |messenger| {
            // The receiver may be gone; the other ranks still wait for this one.
            let _ = reply.send(messenger.communicate(work));
            ControlFlow::Continue(())
        });
        answer
    }

    /// Orders the last work of the messenger and waits until it is done.
    fn end_with(
        &self,
        work: impl FnOnce(&mut Messenger) + Send + 'static,
    ) -> std::result::Result<(), RecvError> {
        let (reply, answer) = channel();
        self.order(move |messenger| {
            work(messenger);
            let _ = reply.send(());
            ControlFlow::Break(())
        });
        answer.recv()
    }

    fn order(&self, order: impl FnOnce(&mut Messenger) -> ControlFlow<()> + Send + 'static) {
        if self.orders.send(Box::new(order)).is_err() {
            // The messenger is gone only where the process is ending.
            park();
        }
    }
}
