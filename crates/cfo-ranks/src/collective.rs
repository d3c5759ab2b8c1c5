//! What a program that runs on many ranks asks of them.

use std::fmt;

use crate::messenger::{RankSum, Summing};
use crate::numbers::Numbers;
use crate::ranks::Ranks;

/// Processes that run the same program. All of them call the same functions in the same order.
pub trait Collective: fmt::Debug + Send + Sync {
    /// The number of this process, from 0 on.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Starts to sum numbers over all; everyone gets the sum.
    fn start_sum(&self, numbers: Numbers, order: RankSum) -> Summing;

    /// The bytes of rank 0.
    fn broadcast(&self, bytes: &[u8]) -> Vec<u8>;

    /// The bytes of all ranks, by rank.
    fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>>;
}

impl Collective for &'static Ranks {
    fn rank(&self) -> usize {
        Ranks::rank(self)
    }

    fn size(&self) -> usize {
        Ranks::size(self)
    }

    fn start_sum(&self, numbers: Numbers, order: RankSum) -> Summing {
        Ranks::start_sum(self, numbers, order)
    }

    fn broadcast(&self, bytes: &[u8]) -> Vec<u8> {
        Ranks::broadcast(self, bytes)
    }

    fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        Ranks::gather(self, bytes)
    }
}

/// One process alone: every sum is its own value.
#[derive(Clone, Copy, Debug)]
pub struct Alone;

impl Collective for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn size(&self) -> usize {
        1
    }

    fn start_sum(&self, mut numbers: Numbers, order: RankSum) -> Summing {
        if let RankSum::Tree(shards) = order {
            numbers.add_in_tree(shards.count);
        }
        Summing::done(numbers)
    }

    fn broadcast(&self, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn gather(&self, bytes: &[u8]) -> Vec<Vec<u8>> {
        vec![bytes.to_vec()]
    }
}
