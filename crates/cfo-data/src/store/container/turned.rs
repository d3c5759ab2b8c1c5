//! Conversion of arrays from Fortran order to C order: in memory if they are small, otherwise in a temporary file.

use std::io;

use super::spool::Spool;

/// Maximum bytes in memory during a conversion.
const HELD_BYTES: usize = 64 << 20;

/// An array whose first axis is stored fastest.
#[derive(Clone, Debug)]
pub(crate) struct Turning<'a> {
    pub shape: &'a [usize],
    /// Bytes of one number.
    pub size: usize,
}

/// Reasons for an early end.
pub(crate) enum Stopped<E> {
    /// The array cannot be read.
    Reading(E),
    /// The result cannot be stored.
    Writing,
}

impl<E> From<io::Error> for Stopped<E> {
    fn from(_: io::Error) -> Self {
        Self::Writing
    }
}

impl Turning<'_> {
    /// Returns the array in C order. `read` fills a buffer with the array's bytes from an offset on; it is called for
    /// each byte once, in order.
    pub fn turn<E>(
        &self,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>,
    ) -> Result<Spool, Stopped<E>> {
        let (rows, size) = (self.shape[0], self.size);
        let inner: usize = self.shape[1..].iter().product();
        let mut spool = Spool::new((rows * inner * size) as u64)?;
        // First the columns of each row are collected, in the order in which they are stored.
        let columns = (HELD_BYTES / (rows * size)).clamp(1, inner.max(1));
        let mut block = vec![0; columns * rows * size];
        let mut line = vec![0; columns * size];
        for column in (0..inner).step_by(columns) {
            let count = columns.min(inner - column);
            let block = &mut block[..count * rows * size];
            read((column * rows * size) as u64, block).map_err(Stopped::Reading)?;
            for row in 0..rows {
                for (entry, place) in line.chunks_exact_mut(size).take(count).enumerate() {
                    place.copy_from_slice(&block[(entry * rows + row) * size..][..size]);
                }
                spool.write_at(((row * inner + column) * size) as u64, &line[..count * size])?;
            }
        }
        // Then each row's columns are brought into their own order.
        let order = self.order();
        let together = (HELD_BYTES / 2 / (inner * size).max(1)).clamp(1, rows.max(1));
        let mut turned = vec![0; inner * size];
        let mut held = vec![0; together * inner * size];
        for row in (0..rows).step_by(together) {
            let start = (row * inner * size) as u64;
            let held = &mut held[..together.min(rows - row) * inner * size];
            spool.read_at(start, held)?;
            for row in held.chunks_exact_mut((inner * size).max(1)) {
                for (entry, &place) in row.chunks_exact(size).zip(&order) {
                    turned[place * size..][..size].copy_from_slice(entry);
                }
                row.copy_from_slice(&turned);
            }
            spool.write_at(start, held)?;
        }
        Ok(spool)
    }

    /// Position in a row in C order of each entry of a row in Fortran order.
    fn order(&self) -> Vec<usize> {
        let shape = &self.shape[1..];
        let mut strides = vec![1; shape.len()];
        for axis in (0..strides.len().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1] * shape[axis + 1];
        }
        let mut counter = vec![0; shape.len()];
        let mut place = 0;
        let next = |_| {
            let found = place;
            for axis in 0..counter.len() {
                counter[axis] += 1;
                place += strides[axis];
                if counter[axis] < shape[axis] {
                    break;
                }
                place -= strides[axis] * shape[axis];
                counter[axis] = 0;
            }
            found
        };
        (0..shape.iter().product()).map(next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_finds_its_place_in_one_pass() {
        for shape in [vec![5, 3], vec![4, 3, 2, 2], vec![1, 6], vec![3, 1, 5], vec![64, 300_000]] {
            // Entry (i, j, ...) holds its position in C order; in Fortran order the first axis is fastest.
            let count: usize = shape.iter().product();
            let mut fortran = Vec::with_capacity(4 * count);
            for flat in 0..count {
                let (mut rest, mut place) = (flat, 0);
                let mut index = Vec::new();
                for &extent in &shape {
                    index.push(rest % extent);
                    rest /= extent;
                }
                for (&index, &extent) in index.iter().zip(&shape) {
                    place = place * extent + index;
                }
                fortran.extend((place as u32).to_le_bytes());
            }
            let mut position = 0;
            let read = |offset: u64, out: &mut [u8]| {
                assert_eq!(offset, position, "each byte once, in order");
                out.copy_from_slice(&fortran[offset as usize..][..out.len()]);
                position += out.len() as u64;
                Ok::<(), ()>(())
            };
            let Ok(spool) = (Turning { shape: &shape, size: 4 }).turn(read) else { panic!("{shape:?}") };
            let mut out = vec![0; 4 * count];
            spool.read_at(0, &mut out).unwrap();
            assert!(out.chunks_exact(4).enumerate().all(|(i, word)| word == (i as u32).to_le_bytes()));
        }
    }
}
