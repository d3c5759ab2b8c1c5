//! Intersections of chunks and blocks of an array.

use crate::store::container::array::Slab;

/// The intersection of a chunk and a block. All lengths count numbers, not bytes.
pub(super) struct Overlap<'a> {
    extent: &'a [usize],
    block: &'a Slab,
    /// Its start in the chunk.
    source: Vec<usize>,
    /// Its start in the block.
    target: Vec<usize>,
    /// Its extent along each axis.
    shared: Vec<usize>,
    /// Number of leading axes to iterate over; the others are contiguous in chunk and block.
    walked: usize,
    /// Length of a contiguous piece.
    pub piece: usize,
}

impl<'a> Overlap<'a> {
    /// The intersection with the chunk at an index of the grid of chunks with the given extent.
    pub fn new(chunk: &[usize], extent: &'a [usize], block: &'a Slab) -> Self {
        let axes = extent.len();
        let low = |axis: usize| block.start[axis].max(chunk[axis] * extent[axis]);
        let high =
            |axis: usize| (block.start[axis] + block.count[axis]).min((chunk[axis] + 1) * extent[axis]);
        let shared: Vec<usize> = (0..axes).map(|axis| high(axis) - low(axis)).collect();
        let (mut walked, mut piece) = (axes, 1);
        while walked > 0 {
            walked -= 1;
            piece *= shared[walked];
            if shared[walked] != extent[walked] || shared[walked] != block.count[walked] {
                break;
            }
        }
        Self {
            extent,
            block,
            source: (0..axes).map(|axis| low(axis) - chunk[axis] * extent[axis]).collect(),
            target: (0..axes).map(|axis| low(axis) - block.start[axis]).collect(),
            shared,
            walked,
            piece,
        }
    }

    /// Position of its first number in the chunk.
    pub fn start(&self) -> usize {
        flat(&self.source, self.extent)
    }

    /// Numbers in the chunk from its first to its last.
    pub fn span(&self) -> usize {
        let last: Vec<usize> =
            self.source.iter().zip(&self.shared).map(|(&start, &count)| start + count - 1).collect();
        flat(&last, self.extent) + 1 - self.start()
    }

    /// Whether it is the whole chunk.
    pub fn is_whole_chunk(&self) -> bool {
        self.shared == self.extent
    }

    /// Calls `sink(from, to)` for every piece, with its first position in the chunk and in the block.
    pub fn for_each_piece(&self, mut sink: impl FnMut(usize, usize)) {
        let mut at = vec![0; self.walked];
        loop {
            let shifted = |origin: &[usize]| -> Vec<usize> {
                origin.iter().enumerate().map(|(axis, &o)| o + at.get(axis).copied().unwrap_or(0)).collect()
            };
            sink(flat(&shifted(&self.source), self.extent), flat(&shifted(&self.target), &self.block.count));
            let more = |axis: &usize| at[*axis] + 1 < self.shared[*axis];
            let Some(next) = (0..self.walked).rev().find(more) else { return };
            at[next] += 1;
            at[next + 1..].fill(0);
        }
    }
}

/// Position in an array of this shape, last axis fastest.
fn flat(at: &[usize], shape: &[usize]) -> usize {
    at.iter().zip(shape).fold(0, |flat, (&at, &extent)| flat * extent + at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of any extent cover a block exactly once, and every number comes from its own position.
    #[test]
    fn chunks_cover_a_block_once() {
        let shape = [3, 5, 4];
        for extent in [[1, 1, 1], [2, 3, 4], [3, 5, 4], [1, 5, 4], [2, 2, 3]] {
            let block = Slab { start: vec![1, 1, 1], count: vec![2, 3, 2] };
            let mut found = vec![None; block.len()];
            for i in 1 / extent[0]..3_usize.div_ceil(extent[0]) {
                for j in 1 / extent[1]..4_usize.div_ceil(extent[1]) {
                    for k in 1 / extent[2]..3_usize.div_ceil(extent[2]) {
                        let overlap = Overlap::new(&[i, j, k], &extent, &block);
                        overlap.for_each_piece(|from, to| {
                            for n in 0..overlap.piece {
                                let (in_plane, in_row) = ((from + n) / extent[2], (from + n) % extent[2]);
                                let place = [
                                    i * extent[0] + in_plane / extent[1],
                                    j * extent[1] + in_plane % extent[1],
                                    k * extent[2] + in_row,
                                ];
                                assert!(found[to + n].replace(flat(&place, &shape)).is_none());
                                assert!(from + n < overlap.start() + overlap.span());
                            }
                        });
                    }
                }
            }
            let expected = (1..3)
                .flat_map(|i| (1..4).flat_map(move |j| (1..3).map(move |k| Some(flat(&[i, j, k], &shape)))));
            assert_eq!(found, expected.collect::<Vec<_>>(), "{extent:?}");
        }
    }
}
