//! The time that each rank computes and waits for sums. It distinguishes ranks of unequal speed from slow sums.

use anyhow::Result;
use cfo::ranks::{from_all, world};
use cfo_engine::Memory;
use serde::{Deserialize, Serialize};

use crate::args::BenchWork;

/// A rank's share of a step, in the mean over all steps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RankTime {
    rank: usize,
    host: String,
    own_ms: f64,
    /// Waiting for sums: for the other ranks to come, then for the sum itself.
    waited_ms: f64,
}

impl RankTime {
    /// Collects the times of all ranks, if there are several, on the CPU: sums of GPUs are commands in a stream.
    pub(super) fn of_all(
        work: BenchWork,
        memory: &Memory,
        times: &[f64],
        waited_ms: f64,
    ) -> Result<Vec<Self>> {
        let several = world().filter(|ranks| ranks.size() > 1);
        let Some(ranks) = several.filter(|_| work == BenchWork::TrainStep && !memory.is_asynchronous())
        else {
            return Ok(Vec::new());
        };
        let (rank, host) = (ranks.rank(), ranks.host(ranks.rank()).to_owned());
        let own_ms = times.iter().sum::<f64>() / times.len() as f64 - waited_ms;
        Ok(from_all(&Self { rank, host, own_ms, waited_ms })?)
    }
}

/// A line on all ranks.
pub(super) fn text(ranks: &[RankTime]) -> String {
    if ranks.is_empty() {
        return String::new();
    }
    let spread = |time: fn(&RankTime) -> f64| {
        let times = || ranks.iter().map(time);
        let least = times().fold(f64::INFINITY, f64::min);
        let mean = times().sum::<f64>() / ranks.len() as f64;
        format!("{least:.3} / {mean:.3} / {:.3} ms", times().fold(0.0, f64::max))
    };
    format!(
        "per step on {} ranks (least / mean / most): computation {}, waiting for sums {}\n",
        ranks.len(),
        spread(|rank| rank.own_ms),
        spread(|rank| rank.waited_ms)
    )
}
