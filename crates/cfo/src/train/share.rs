//! The samples of each batch that this process draws, and the sum of gradients over processes.

use std::ops::Range;
use std::sync::Arc;

use cfo_engine::{Collective, Memory, Shards};
use cfo_ranks::{Alone, world};

use crate::recipe::TrainConfig;

/// Parts of a batch whose gradients are added in a fixed order, whatever the number of ranks.
const SHARDS: usize = 16;

/// Consecutive samples of a batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Samples {
    /// Their numbers.
    pub range: Range<usize>,
    /// Weight of their mean in the mean over the batch.
    pub weight: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Share {
    /// The parts whose gradients are computed separately: at least one, in order.
    pub parts: Vec<Samples>,
    /// The shards of the parts, if gradients are added in a fixed order.
    pub shards: Option<Shards>,
    /// Whether gradients are summed over ranks.
    pub summed: bool,
    /// Whether a GPU launches the sums.
    pub launched: bool,
}

impl Share {
    /// Returns the share of this process among the ranks of a memory. A rank without samples draws one with weight 0.
    ///
    /// If the step is not `divisible`, each rank computes its part as a whole; results then depend on the number of ranks.
    pub fn new(train: &TrainConfig, memory: &Memory, divisible: bool) -> Self {
        let ranks = memory.collective().map(|ranks| (ranks.rank(), ranks.size()));
        // GPU libraries choose algorithms by the size of the batch; CPU kernels add in the same order for any size.
        let fixed = memory.is_deterministic() && !memory.is_asynchronous() && divisible;
        let launched = memory.is_asynchronous();
        Self { launched, ..Self::of(train.batch, ranks.unwrap_or((0, 1)), fixed, ranks.is_some()) }
    }

    fn of(batch: usize, (rank, size): (usize, usize), fixed: bool, summed: bool) -> Self {
        if !fixed {
            return Self { parts: vec![samples(batch, rank, size)], shards: None, summed, launched: false };
        }
        let total = batch.min(SHARDS);
        let shards = Shards::of(total, rank, size);
        let mut parts: Vec<Samples> =
            (shards.first..shards.first + shards.count).map(|shard| samples(batch, shard, total)).collect();
        if parts.is_empty() {
            parts.push(Samples { range: 0..1, weight: 0.0 });
        }
        Self { parts, shards: Some(shards), summed, launched: false }
    }

    /// Returns all samples of the process as one part.
    pub fn whole(&self) -> Samples {
        let weight = self.parts.iter().map(|part| part.weight).sum();
        Samples { range: self.samples(), weight }
    }

    /// Returns all samples of the process.
    pub fn samples(&self) -> Range<usize> {
        let (first, last) = (&self.parts[0], &self.parts[self.parts.len() - 1]);
        first.range.start..last.range.end
    }
}

/// Returns part `index` of a batch that is divided as equally as possible.
fn samples(batch: usize, index: usize, count: usize) -> Samples {
    let start = |index: usize| (index * batch).div_ceil(count);
    let range = start(index)..start(index + 1);
    match range.is_empty() {
        true => Samples { range: 0..1, weight: 0.0 },
        false => Samples { weight: range.len() as f64 / batch as f64, range },
    }
}

/// Returns the ranks over which gradients are summed: those of the job, if there are several. With `CFO_COLLECTIVES=nccl` or `host`, a
/// single process sums over itself, to measure the cost.
pub(crate) fn collective() -> Option<Arc<dyn Collective>> {
    let forced = || std::env::var_os("CFO_COLLECTIVES").is_some_and(|way| way != "auto");
    match world() {
        Some(ranks) if ranks.size() > 1 => Some(Arc::new(ranks)),
        _ => forced().then(|| Arc::new(Alone) as Arc<dyn Collective>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_counts_once_however_a_batch_is_divided() {
        for (batch, size, fixed) in
            [(256, 3, false), (7, 4, false), (2, 5, false), (50, 3, true), (5, 7, true)]
        {
            let shares: Vec<Share> =
                (0..size).map(|rank| Share::of(batch, (rank, size), fixed, true)).collect();
            let parts = shares.iter().flat_map(|share| &share.parts).filter(|part| part.weight > 0.0);
            let drawn: Vec<usize> = parts.clone().flat_map(|part| part.range.clone()).collect();
            assert_eq!(drawn, (0..batch).collect::<Vec<_>>(), "{batch} over {size}");
            let weight: f64 = parts.map(|part| part.weight).sum();
            assert!((weight - 1.0).abs() < 1e-12);
        }
    }

    #[test]
    fn fixed_parts_do_not_depend_on_the_ranks() {
        let parts = |size: usize| -> Vec<Samples> {
            let shares = (0..size).map(|rank| Share::of(50, (rank, size), true, size > 1));
            shares.flat_map(|share| share.parts).filter(|part| part.weight > 0.0).collect()
        };
        for size in [2, 3, 4, 16, 20] {
            assert_eq!(parts(size), parts(1), "{size} ranks");
        }
        assert_eq!(Share::of(50, (0, 1), false, false).parts, [Samples { range: 0..50, weight: 1.0 }]);
    }
}
