//! Results in memory aligned to 64 bytes, which array libraries use without a copy; jax copies unaligned arrays.

use numpy::PyArray1;
use numpy::ndarray::ArrayView1;
use pyo3::prelude::*;

/// A block of numbers with the required alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; Line::LENGTH]);

impl Line {
    const LENGTH: usize = 16;
}

/// Numbers in memory aligned to 64 bytes.
pub struct Aligned {
    lines: Vec<Line>,
    length: usize,
}

impl Aligned {
    /// Concatenates pieces.
    pub fn concat<'a>(pieces: impl IntoIterator<Item = &'a [f32]>) -> Self {
        let (mut lines, mut length): (Vec<Line>, usize) = (Vec::new(), 0);
        for piece in pieces {
            let mut rest = piece;
            while !rest.is_empty() {
                let filled = length % Line::LENGTH;
                if filled == 0 {
                    lines.reserve(rest.len().div_ceil(Line::LENGTH));
                    lines.push(Line([0.0; Line::LENGTH]));
                }
                let count = rest.len().min(Line::LENGTH - filled);
                let (now, later) = rest.split_at(count);
                if let Some(line) = lines.last_mut() {
                    line.0[filled..filled + count].copy_from_slice(now);
                }
                length += count;
                rest = later;
            }
        }
        Self { lines, length }
    }

    /// Converts the numbers to an array that owns them.
    #[allow(unsafe_code)]
    pub fn into_array(mut self, py: Python<'_>) -> PyResult<Bound<'_, PyArray1<f32>>> {
        let first = self.lines.as_mut_ptr().cast::<f32>();
        let length = self.length;
        let owner = Bound::new(py, Owner { _lines: self.lines })?;
        if length == 0 {
            return Ok(PyArray1::from_vec(py, Vec::new()));
        }
        // SAFETY: lines are numbers without gaps, at least `length` of them. The array keeps the owner alive, which
        // never accesses them again, so writes to the array are exclusive. Moving the list did not move its contents.
        Ok(unsafe {
            PyArray1::borrow_from_array(&ArrayView1::from_shape_ptr(length, first), owner.into_any())
        })
    }
}

/// Keeps the memory of an array alive.
#[pyclass(frozen)]
struct Owner {
    _lines: Vec<Line>,
}
