//! Temporary storage of decoded bytes: in memory if they are few, otherwise in an unnamed temporary file, which the
//! system removes with the process.

use std::fs::File;
use std::io;

/// Maximum bytes of one array in memory.
const HELD_BYTES: u64 = 32 << 20;

/// Bytes that are appended once and read at any offset.
pub(crate) enum Spool {
    Memory(Vec<u8>),
    File { file: File, length: u64 },
}

impl Spool {
    /// Creates a spool for this number of bytes.
    pub fn new(bytes: u64) -> io::Result<Self> {
        if bytes <= HELD_BYTES { Ok(Self::Memory(Vec::new())) } else { Self::in_file() }
    }

    /// Creates a spool in a temporary file for any number of bytes.
    pub fn in_file() -> io::Result<Self> {
        Ok(Self::File { file: tempfile::tempfile()?, length: 0 })
    }

    /// Number of bytes appended.
    pub fn len(&self) -> u64 {
        match self {
            Self::Memory(held) => held.len() as u64,
            Self::File { length, .. } => *length,
        }
    }

    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(held) => held.extend_from_slice(bytes),
            Self::File { file, length } => {
                write_all_at(file, bytes, *length)?;
                *length += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// Fills `out` from `offset` on. The bytes must have been appended.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Memory(held) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                let found = held.get(start..).and_then(|rest| rest.get(..out.len()));
                out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
            Self::File { file, .. } => read_exact_at(file, out, offset),
        }
    }

    /// Replaces bytes, or appends them after a gap.
    pub fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Memory(held) => {
                let start = usize::try_from(offset).map_err(io::Error::other)?;
                if held.len() < start + bytes.len() {
                    held.resize(start + bytes.len(), 0);
                }
                held[start..start + bytes.len()].copy_from_slice(bytes);
                Ok(())
            }
            Self::File { file, length } => {
                write_all_at(file, bytes, offset)?;
                *length = (*length).max(offset + bytes.len() as u64);
                Ok(())
            }
        }
    }
}

pub(crate) fn read_exact_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_appended_or_written_is_read_wherever_it_is_kept() {
        for mut spool in [Spool::new(10).unwrap(), Spool::in_file().unwrap()] {
            spool.append(b"abcdef").unwrap();
            spool.write_at(4, b"EFGH").unwrap();
            assert_eq!(spool.len(), 8);
            let mut out = [0; 5];
            spool.read_at(2, &mut out).unwrap();
            assert_eq!(&out, b"cdEFG");
            assert!(spool.read_at(5, &mut out).is_err());
        }
    }
}
