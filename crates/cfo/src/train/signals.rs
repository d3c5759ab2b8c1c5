//! The exchange of signals between ranks, so that they stop together.

use std::time::Instant;

use crate::ranks::job;

const BETWEEN: f64 = 0.2;
const MOST: u32 = 100;
/// Largest number of steps of a GPU between two looks at the interrupt, without other ranks.
const MOST_ALONE: u32 = 20;

/// Requests of a rank after some steps. A request of one rank holds for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signals {
    /// Training is to stop.
    pub stop: bool,
    /// The first checkpoint is due.
    pub overdue: bool,
}

#[derive(Debug)]
pub(super) struct Exchange {
    steps: u32,
    last: Instant,
}

impl Exchange {
    pub(super) fn new() -> Self {
        Self { steps: 1, last: Instant::now() }
    }

    /// Returns the largest number of steps until the next exchange.
    pub(super) fn most(&self, step: u32, asynchronous: bool) -> u32 {
        match job() {
            // The first step's loss is read alone.
            _ if step == 0 => 1,
            Some(_) => self.steps,
            None if asynchronous => MOST_ALONE,
            None => 1,
        }
    }

    /// Combines the signals of all ranks after `steps` steps, and sets the number of steps until the next exchange by the slowest rank.
    pub(super) fn after_steps(&mut self, own: Signals, steps: u32) -> Signals {
        let each = self.last.elapsed().as_secs_f64() / f64::from(steps.max(1));
        self.combined(own, each)
    }

    /// Combines the signals of all ranks after other work, which does not change the number of steps.
    pub(super) fn after_work(&mut self, own: Signals) -> Signals {
        self.combined(own, BETWEEN / f64::from(self.steps))
    }

    fn combined(&mut self, own: Signals, seconds_per_step: f64) -> Signals {
        let Some(ranks) = job() else { return own };
        let mut message = vec![u8::from(own.stop), u8::from(own.overdue)];
        message.extend(seconds_per_step.to_le_bytes());
        let all = ranks.gather(&message);
        let seconds = |message: &Vec<u8>| {
            let bytes: [u8; 8] = message[2..].try_into().unwrap_or_default();
            f64::from_le_bytes(bytes)
        };
        let slowest = all.iter().map(seconds).fold(1e-9, f64::max);
        self.steps = ((BETWEEN / slowest).round() as u32).clamp(1, MOST);
        self.last = Instant::now();
        let any = |which: usize| all.iter().any(|message| message[which] != 0);
        Signals { stop: any(0), overdue: any(1) }
    }
}
