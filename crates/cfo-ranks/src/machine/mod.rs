//! What the ranks of one machine share: memory to sum through, and the knowledge of who is alive.
#![allow(unsafe_code)]

mod lives;
mod memory;
mod sums;

pub(crate) use lives::{Life, Lives};
pub(crate) use sums::Sums;

use lives::LIFE;
use memory::Memory;
use sums::{SLOT, SUMS};

/// Memory of the ranks of a machine, as one of them sees it: the mark, what sums need, a life for each rank, then slots for numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    memory: Memory,
    rank: usize,
    size: usize,
}

impl Machine {
    /// Makes memory for so many ranks, of which this is the first, and says where others find it; `None` if the system refuses.
    pub(crate) fn create(size: usize) -> Option<(Self, String)> {
        let (memory, place) = Memory::create(bytes(size))?;
        let machine = Self { memory, rank: 0, size };
        machine.make_lives()?;
        Some((machine, place))
    }

    /// The memory that the first rank of this machine has made; `None` if this process cannot see it.
    pub(crate) fn open(place: &str, rank: usize, size: usize) -> Option<Self> {
        Some(Self { memory: Memory::open(place, bytes(size))?, rank, size })
    }

    /// Bytes before the slots, of which each begins on a page.
    fn head(&self) -> usize {
        head(self.size)
    }
}

fn head(size: usize) -> usize {
    (SUMS + (size + 1) * LIFE).next_multiple_of(4096)
}

fn bytes(size: usize) -> usize {
    head(size) + (size + 1) * SLOT
}
