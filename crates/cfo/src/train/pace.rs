//! When ranks look at each other: seldom enough to cost nothing, often enough to stop together.

use std::time::Instant;

use crate::ranks::job;

/// Seconds between two looks.
const BETWEEN: f64 = 0.2;
/// Steps between two looks at most.
const MOST: u32 = 100;

/// What a rank has to say after some steps; where one says it, it holds for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Signs {
    /// It is to stop.
    pub stop: bool,
    /// It is time for a first checkpoint.
    pub overdue: bool,
}

/// How many steps are made before ranks look at each other again.
#[derive(Debug)]
pub(super) struct Pace {
    steps: u32,
    looked: Instant,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { steps: 1, looked: Instant::now() }
    }

    /// Steps to make before something else is looked at.
    pub(super) fn most(&self, step: u32, asynchronous: bool) -> u32 {
        match job() {
            // The first step's loss is looked at alone.
            _ if step == 0 => 1,
            Some(_) => self.steps,
            None => {
                if asynchronous {
                    20
                } else {
                    1
                }
            }
        }
    }

    /// Combines the signs of all ranks after `steps` steps. All ranks then choose the same pace, that of the slowest.
    pub(super) fn agree(&mut self, own: Signs, steps: u32) -> Signs {
        let each = self.looked.elapsed().as_secs_f64() / f64::from(steps.max(1));
        self.exchange(own, each)
    }

    /// Continues after other work, which does not change the pace.
    pub(super) fn again(&mut self, own: Signs) -> Signs {
        self.exchange(own, BETWEEN / f64::from(self.steps))
    }

    fn exchange(&mut self, own: Signs, each: f64) -> Signs {
        let Some(ranks) = job() else { return own };
        let mut said = vec![u8::from(own.stop), u8::from(own.overdue)];
        said.extend(each.to_le_bytes());
        let all = ranks.gather(&said);
        let seconds = |said: &Vec<u8>| {
            let bytes: [u8; 8] = said[2..].try_into().unwrap_or_default();
            f64::from_le_bytes(bytes)
        };
        let slowest = all.iter().map(seconds).fold(1e-9, f64::max);
        self.steps = ((BETWEEN / slowest).round() as u32).clamp(1, MOST);
        self.looked = Instant::now();
        let any = |which: usize| all.iter().any(|said| said[which] != 0);
        Signs { stop: any(0), overdue: any(1) }
    }
}
