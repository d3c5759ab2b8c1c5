//! Reading ZIP containers of `.npz` files, with random access to members.

mod directory;
mod member;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use directory::{ZipEntry, read_directory};
pub(crate) use member::Member;

use super::array::Origin;
use super::spool::read_exact_at;
use crate::{DataError, Place};

/// The directory of an open ZIP file.
pub(crate) struct Zip {
    pub path: Arc<PathBuf>,
    pub members: Vec<Member>,
}

impl Zip {
    pub fn open(path: &Path) -> Result<Self, DataError> {
        let path = Arc::new(path.to_owned());
        let failed = |error| DataError::reading(&path, error);
        let file = Arc::new(fs_err::File::open(path.as_path()).map_err(failed)?.into_file());
        let bytes = file.metadata().map_err(failed)?.len();
        let directory = read_directory(&file, bytes).map_err(|fault| fault.at(&path, Place::default()))?;
        let mut members = Vec::new();
        let mut rest = directory.as_slice();
        while !rest.is_empty() {
            let (entry, length) = ZipEntry::parse(rest)
                .ok_or_else(|| Fault::Damaged("its directory is broken").at(&path, Place::default()))?;
            let origin = Origin { path: path.clone(), name: entry.name.clone() };
            members.push(Member::open(&file, bytes, entry, origin)?);
            rest = &rest[length..];
        }
        Ok(Self { path, members })
    }
}

/// An error to which the file is added later.
enum Fault {
    Io(io::Error),
    Damaged(&'static str),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Fault {
    fn at(self, path: &Path, place: Place) -> DataError {
        match self {
            Self::Io(error) => DataError::reading(path, error),
            Self::Damaged(detail) => DataError::damaged(path, place, detail),
        }
    }
}

/// Fills `out` from an offset that the file itself contains and that may be out of range.
fn read_within(file: &File, bytes: u64, out: &mut [u8], offset: u64) -> Result<(), Fault> {
    if offset.checked_add(out.len() as u64).is_none_or(|stop| stop > bytes) {
        return Err(Fault::Damaged("a part of it lies outside the file"));
    }
    Ok(read_exact_at(file, out, offset)?)
}

fn word16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
