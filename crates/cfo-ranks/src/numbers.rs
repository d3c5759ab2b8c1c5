//! Numbers on their way through the ranks.

use crate::mpi::Packet;
use crate::tree::{add, add_in_tree};

/// Numbers to be summed.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// In single precision.
    F32(Vec<f32>),
    /// In double precision.
    F64(Vec<f64>),
}

/// The value of an expression for numbers of either precision.
macro_rules! either {
    ($numbers:expr, $values:ident => $value:expr) => {
        match $numbers {
            Numbers::F32($values) => $value,
            Numbers::F64($values) => $value,
        }
    };
}

impl Numbers {
    pub(crate) fn len(&self) -> usize {
        either!(self, values => values.len())
    }

    pub(crate) fn zeros(&self, length: usize) -> Self {
        match self {
            Self::F32(_) => Self::F32(vec![0.0; length]),
            Self::F64(_) => Self::F64(vec![0.0; length]),
        }
    }

    pub(crate) fn part(&mut self, start: usize, length: usize) -> Packet<'_> {
        match self {
            Self::F32(values) => Packet::F32(&mut values[start..start + length]),
            Self::F64(values) => Packet::F64(&mut values[start..start + length]),
        }
    }

    /// Adds so many shards that lie one after another into the first one, in the tree's order.
    pub(crate) fn add_in_tree(&mut self, count: usize) {
        let size = self.len() / count.max(1);
        either!(self, values => add_in_tree(values, size));
    }

    pub(crate) fn add(&mut self, to: usize, other: &Self) {
        match (self, other) {
            (Self::F32(values), Self::F32(other)) => add(&mut values[to..to + other.len()], other),
            (Self::F64(values), Self::F64(other)) => add(&mut values[to..to + other.len()], other),
            _ => unreachable!("parts of one sum have one precision"),
        }
    }

    /// Adds the numbers from `from` on to those from `to` on, which lie before them.
    pub(crate) fn add_within(&mut self, to: usize, from: usize, length: usize) {
        either!(self, values => {
            let (head, tail) = values.split_at_mut(from);
            add(&mut head[to..to + length], &tail[..length]);
        });
    }
}
