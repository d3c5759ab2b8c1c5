//! Stored arrays as layouts use them: named, with random access to blocks.

use std::path::PathBuf;
use std::sync::Arc;

use crate::{DataError, Place};

/// A stored array of real numbers.
pub(crate) trait Array: Send + Sync {
    /// File and name of the array.
    fn origin(&self) -> &Origin;

    /// Extent along each axis.
    fn shape(&self) -> &[usize];

    /// Reads the block of `count` entries from `start` on along each axis, last axis fastest.
    ///
    /// Callers keep the block inside [`Array::shape`]; see [`read_block`].
    fn read_f64(&self, block: &Slab) -> Result<Vec<f64>, DataError>;

    /// Reads a block, rounded to single precision.
    fn read_f32(&self, block: &Slab) -> Result<Vec<f32>, DataError>;

    /// Reads a block, rounded to single precision, into a buffer of the block's length.
    fn read_f32_into(&self, block: &Slab, out: &mut [f32]) -> Result<(), DataError> {
        out.copy_from_slice(&self.read_f32(block)?);
        Ok(())
    }

    /// Whether the numbers have more digits than single precision.
    fn is_double(&self) -> bool;

    /// Whether blocks are cheap to read only in sequential order.
    fn is_sequential(&self) -> bool {
        false
    }
}

/// A type in which blocks are read: `f64` as stored, or rounded to `f32`.
pub(crate) trait Float: Copy + Default {
    /// Reads a block.
    fn read(array: &dyn Array, block: &Slab) -> Result<Vec<Self>, DataError>;
}

impl Float for f32 {
    fn read(array: &dyn Array, block: &Slab) -> Result<Vec<Self>, DataError> {
        array.read_f32(block)
    }
}

impl Float for f64 {
    fn read(array: &dyn Array, block: &Slab) -> Result<Vec<Self>, DataError> {
        array.read_f64(block)
    }
}

/// File and name of an array, for messages.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub path: Arc<PathBuf>,
    pub name: String,
}

impl Origin {
    pub fn damaged(&self, detail: impl Into<String>) -> DataError {
        DataError::damaged(&self.path, self.place(), detail)
    }

    pub fn unfit(&self, found: impl Into<String>, needed: impl Into<String>) -> DataError {
        DataError::unfit(&self.path, self.place(), found, needed)
    }

    /// As [`unfit`](Self::unfit), for one trajectory.
    pub fn unfit_in(&self, trajectory: usize, found: String, needed: impl Into<String>) -> DataError {
        DataError::unfit(&self.path, self.place().in_trajectory(trajectory), found, needed)
    }

    pub fn ragged(&self, found: &str) -> DataError {
        let path = self.path.to_path_buf();
        DataError::Ragged { path, place: Box::new(self.place()), found: found.to_string() }
    }

    pub fn place(&self) -> Place {
        Place::dataset(&self.name)
    }
}

/// A block of an array: first entry and number of entries along each axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slab {
    pub start: Vec<usize>,
    pub count: Vec<usize>,
}

impl Slab {
    /// The block of the whole array.
    pub fn whole(shape: &[usize]) -> Self {
        Self { start: vec![0; shape.len()], count: shape.to_vec() }
    }

    /// Narrows one axis to `start..start + count`.
    #[must_use]
    pub fn narrow(mut self, axis: usize, start: usize, count: usize) -> Self {
        self.start[axis] = start;
        self.count[axis] = count;
        self
    }

    /// Number of entries in the block.
    pub fn len(&self) -> usize {
        self.count.iter().product()
    }

    /// Number of leading axes to iterate over so that the remaining axes are contiguous in a C-ordered array, and the
    /// length of that contiguous piece.
    pub fn contiguous_tail(&self, shape: &[usize]) -> (usize, usize) {
        let mut axis = shape.len();
        let mut length = 1;
        while axis > 0 {
            axis -= 1;
            length *= self.count[axis];
            if self.count[axis] != shape[axis] {
                break;
            }
        }
        (axis, length)
    }
}

/// Number of entries of an array of this shape; `None` if it overflows.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1usize, |product, &extent| product.checked_mul(extent))
}

/// Reads all entries, for arrays that are small compared to the values.
pub(crate) fn read_all(array: &dyn Array) -> Result<Vec<f64>, DataError> {
    array.read_f64(&Slab::whole(array.shape()))
}

/// Reads the first `count` entries of a list, or of row `row` of a table.
pub(crate) fn read_row(array: &dyn Array, row: usize, count: usize) -> Result<Vec<f64>, DataError> {
    let whole = Slab::whole(array.shape());
    match array.shape().len() {
        1 => array.read_f64(&whole.narrow(0, 0, count)),
        _ => array.read_f64(&whole.narrow(0, row, 1).narrow(1, 0, count)),
    }
}

/// Reads all entries as nonnegative integers.
pub(crate) fn read_counts(array: &dyn Array) -> Result<Vec<usize>, DataError> {
    let values = read_all(array)?;
    let whole =
        |&value: &f64| (value >= 0.0 && value.fract() == 0.0 && value < 1e15).then_some(value as usize);
    let found = |value: f64, index: usize| {
        array.origin().unfit(format!("{value} at {index}"), "whole numbers, 0 or more")
    };
    values.iter().enumerate().map(|(index, value)| whole(value).ok_or_else(|| found(*value, index))).collect()
}

/// A shape as text.
pub(crate) fn shape_text(shape: &[usize]) -> String {
    let extents: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("shape [{}]", extents.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_the_longest_contiguous_pieces() {
        let shape = [4, 5, 6];
        assert_eq!(Slab::whole(&shape).contiguous_tail(&shape), (0, 120));
        assert_eq!(Slab::whole(&shape).narrow(0, 1, 2).contiguous_tail(&shape), (0, 60));
        assert_eq!(Slab::whole(&shape).narrow(1, 1, 2).contiguous_tail(&shape), (1, 12));
        assert_eq!(Slab::whole(&shape).narrow(2, 0, 1).contiguous_tail(&shape), (2, 1));
        assert_eq!(Slab::whole(&[]).contiguous_tail(&[]), (0, 1));
    }
}
