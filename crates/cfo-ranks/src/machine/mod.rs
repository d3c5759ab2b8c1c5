//! What the ranks of one machine share: memory to sum through, and a witness of their ends.
#![allow(unsafe_code)]

mod memory;
mod sums;
mod witness;

pub(crate) use sums::Sums;
pub(crate) use witness::{Life, Lines};

use memory::Memory;
use sums::SLOT;

/// Bytes before the slots: the mark, and on cache lines of their own what else the ranks look at.
const HEAD: usize = 4096;

/// Memory of the ranks of a machine, as one of them sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    memory: Memory,
    rank: usize,
    size: usize,
}

impl Machine {
    /// Makes memory for so many ranks, of which this is the first, and lines to them, and says where others find both; `None` if the
    /// system refuses.
    pub(crate) fn create(size: usize) -> Option<(Self, Lines, String)> {
        let (memory, place) = Memory::create(bytes(size))?;
        let lines = Lines::make(size)?;
        let place = place + &lines.places();
        Some((Self { memory, rank: 0, size }, lines, place))
    }

    /// The memory that the first rank of this machine has made, and its line to this one; `None` if this process cannot see them.
    pub(crate) fn open(place: &str, rank: usize, size: usize) -> Option<Self> {
        let memory = Memory::open(place, bytes(size))?;
        let mut words = place.split(' ');
        Lines::hold(words.next()?, words.nth(2 + rank)?)?;
        Some(Self { memory, rank, size })
    }
}

fn bytes(size: usize) -> usize {
    HEAD + (size + 1) * SLOT
}
