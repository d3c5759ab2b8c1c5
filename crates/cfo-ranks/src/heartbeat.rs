//! Heartbeats: each rank sends one per second to the next rank in a ring, and ends the job if the previous rank's stop.
//!
//! The thread that calls MPI sends them, so a long computation does not delay them. A rank counts the beats that it sent since it
//! received one. A clock would also count the time in which the whole job was suspended.

use std::time::{Duration, Instant};

use crate::error::Result;
use crate::messenger::Messenger;
use crate::mpi::{Mpi, Packet, Tag, Transfer};
use crate::watch::GRACE;

const INTERVAL: Duration = Duration::from_secs(1);

/// The heartbeats of this rank and of the previous one.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// When the last beat was due.
    last: Instant,
    /// The message; it stays here until it is sent.
    byte: Box<[u8; 1]>,
    sending: Option<Transfer>,
    sent: u64,
    received: u64,
    /// Intervals since the last beat was received.
    missed: u32,
    stopped: bool,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        let (last, byte) = (Instant::now(), Box::new([0]));
        Self { last, byte, sending: None, sent: 0, received: 0, missed: 0, stopped: false }
    }

    fn receive(&mut self, mpi: &Mpi) {
        while mpi.has_message(Tag::Heartbeat) {
            let mut byte = [0];
            // SAFETY: held here until the request is done.
            #[allow(unsafe_code)]
            let started = unsafe { mpi.start_receive(Packet::Bytes(&mut byte), None, Tag::Heartbeat) };
            let Ok(mut request) = started else { return };
            // The message is there already.
            while matches!(mpi.is_done(&mut request), Ok(false)) {
                std::thread::yield_now();
            }
            (self.received, self.missed) = (self.received + 1, 0);
        }
    }

    /// Sends a beat to the next rank, unless the last one is still under way. If this fails, the next rank misses it.
    fn send(&mut self, mpi: &Mpi) {
        if self.is_sending(mpi) {
            return;
        }
        let next = (mpi.rank + 1) % mpi.size;
        // SAFETY: the byte stays where it is, and the next beat waits for this one.
        #[allow(unsafe_code)]
        let started = unsafe { mpi.start_send(Packet::Bytes(&mut *self.byte), next, Tag::Heartbeat) };
        if let Ok(request) = started {
            (self.sending, self.sent) = (Some(request), self.sent + 1);
        }
    }

    fn is_sending(&mut self, mpi: &Mpi) -> bool {
        self.sending.as_mut().is_some_and(|request| matches!(mpi.is_done(request), Ok(false)))
    }
}

impl Messenger {
    /// Sends and receives the heartbeats that are due. Ends the job if the previous rank's are missing for too long.
    pub(crate) fn beat(&mut self) {
        let heartbeat = &mut self.heartbeat;
        heartbeat.receive(&self.mpi);
        if heartbeat.stopped || self.mpi.size == 1 || heartbeat.last.elapsed() < INTERVAL {
            return;
        }
        heartbeat.last = Instant::now();
        heartbeat.send(&self.mpi);
        heartbeat.missed += 1;
        let silence = INTERVAL * heartbeat.missed;
        // Ranks that wait for its part of a sum report it before.
        if silence > self.limit + 3 * GRACE {
            self.report_silence((self.mpi.rank + self.mpi.size - 1) % self.mpi.size, silence);
        }
    }

    /// Stops the heartbeats of all ranks and receives those on their way, because MPI must not end with messages under way.
    pub(crate) fn stop_heartbeats(&mut self) -> Result<()> {
        self.heartbeat.stopped = true;
        let sent = self.gather(&self.heartbeat.sent.to_le_bytes())?;
        let previous = &sent[(self.mpi.rank + self.mpi.size - 1) % self.mpi.size];
        while self.heartbeat.received.to_le_bytes() != previous[..] || self.heartbeat.is_sending(&self.mpi) {
            self.heartbeat.receive(&self.mpi);
        }
        Ok(())
    }
}
