//! Filled states on the disk, for sets whose snapshots are streamed.

use std::os::unix::fs::FileExt;

use fs_err::File;

use crate::error::Result;

/// A temporary file of states, one per row of the training set; only the rows of filled states are written. The file has no name and
/// disappears with the process.
#[derive(Debug)]
pub(crate) struct FilledRows {
    file: File,
    /// Values per state.
    size: usize,
}

impl FilledRows {
    /// Creates the file, for `rows` states of `size` values that are 0.
    ///
    /// # Errors
    /// If the folder for temporary files cannot be written.
    pub fn new(rows: usize, size: usize) -> Result<Self> {
        let folder = std::env::temp_dir();
        let file = File::from_parts(tempfile::tempfile_in(&folder)?, folder.join("filled states"));
        let states = Self { file, size };
        states.file.set_len(states.place(rows))?;
        Ok(states)
    }

    fn place(&self, row: usize) -> u64 {
        4 * (row * self.size) as u64
    }

    /// Reads consecutive states.
    ///
    /// # Errors
    /// If the disk has an error.
    pub fn read(&self, row: usize, states: &mut [f32]) -> Result<()> {
        let mut bytes = vec![0; 4 * states.len()];
        self.file.file().read_exact_at(&mut bytes, self.place(row))?;
        for (state, bytes) in states.iter_mut().zip(bytes.as_chunks().0) {
            *state = f32::from_le_bytes(*bytes);
        }
        Ok(())
    }

    /// Writes consecutive states.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn write(&self, row: usize, states: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = states.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(self.file.file().write_all_at(&bytes, self.place(row))?)
    }
}
