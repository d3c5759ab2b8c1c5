//! Members of ZIP files, such as `.npz`, with random access.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::read::DeflateDecoder;

use zip::read::ZipFile;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::array::Origin;
use super::spool::{Spool, read_exact_at};
use crate::{DataError, Place};

/// Bytes before the name in the header of a member.
const LOCAL_BYTES: u64 = 30;
/// Largest growth of deflate.
const GROWTH: u64 = 1032;
/// Members up to this size are verified when the file is opened, larger ones when they are read from end to end.
/// Reading a few frames of a large file must not require reading all of it.
const CHECKED_BYTES: u64 = 64 << 20;

/// Opens the members of a ZIP file.
pub(crate) fn open_members(path: &Path) -> Result<Vec<Member>, DataError> {
    let path = Arc::new(path.to_owned());
    let failed = |error| DataError::reading(&path, error);
    let file = Arc::new(fs_err::File::open(path.as_path()).map_err(failed)?.into_file());
    let bytes = file.metadata().map_err(failed)?.len();
    let broken = |error: ZipError| match error {
        ZipError::Io(error) if error.kind() != io::ErrorKind::UnexpectedEof => failed(error),
        error => DataError::damaged(&path, Place::default(), format!("its directory is broken: {error}")),
    };
    let mut archive = ZipArchive::new(&*file).map_err(broken)?;
    let count = archive.len();
    let member = |index: usize| {
        let entry = archive.by_index_raw(index).map_err(broken)?;
        let name = String::from_utf8_lossy(entry.name_raw()).into_owned();
        let origin = Origin { path: path.clone(), name };
        Member::open(&file, bytes, &entry, origin)
    };
    (0..count).map(member).collect()
}

/// A member with random access.
pub(crate) struct Member {
    pub origin: Origin,
    /// Size after decompression.
    pub size: u64,
    file: Arc<File>,
    start: u64,
    stored_size: u64,
    is_stored: bool,
    checksum: u32,
    /// Position of sequential reading: decompression continues from here, and the checksum covers everything before.
    cursor: Mutex<Option<Cursor>>,
}

struct Cursor {
    content: Content,
    position: u64,
    checksum: crc32fast::Hasher,
    /// The decompressed bytes so far, so that each is inflated once; `None` if they cannot be stored.
    spool: Option<Spool>,
}

/// The bytes of a member as a stream.
enum Content {
    Stored(Section),
    Deflated(DeflateDecoder<Section>),
}

impl Read for Content {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Stored(section) => section.read(out),
            Self::Deflated(decoder) => decoder.read(out),
        }
    }
}

impl Member {
    fn open(
        file: &Arc<File>,
        bytes: u64,
        entry: &ZipFile<'_, &File>,
        origin: Origin,
    ) -> Result<Self, DataError> {
        let is_stored = entry.compression() == CompressionMethod::Stored;
        if entry.encrypted() || !(is_stored || entry.compression() == CompressionMethod::DEFLATE) {
            let what = format!("the compression or encryption of `{}`", origin.name);
            return Err(DataError::unsupported(&origin.path, what));
        }
        // A checksum protects the content, but only a second copy the name.
        let mut name = vec![0; entry.name_raw().len()];
        let named = read_exact_at(file, &mut name, entry.header_start() + LOCAL_BYTES);
        if named.is_err() || name != entry.name_raw() {
            return Err(origin.damaged("its header is not where the directory says"));
        }
        let (size, stored_size) = (entry.size(), entry.compressed_size());
        let consistent = match is_stored {
            true => size == stored_size,
            false => size <= stored_size.saturating_mul(GROWTH),
        };
        let stop = entry.data_start().and_then(|start| start.checked_add(stored_size));
        let Some(start) = stop.filter(|&stop| consistent && stop <= bytes).map(|stop| stop - stored_size)
        else {
            return Err(origin.damaged(format!("{size} bytes do not fit a file of {bytes} bytes")));
        };
        let (file, checksum) = (file.clone(), entry.crc32());
        Ok(Self { origin, size, file, start, stored_size, is_stored, checksum, cursor: Mutex::new(None) })
    }

    /// Fills `out` with the member's bytes from `offset` on.
    ///
    /// Stored members are read in place. Compressed ones are inflated as far as needed and kept, so no byte is inflated
    /// twice for any order of reads.
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<(), DataError> {
        if offset.checked_add(out.len() as u64).is_none_or(|stop| stop > self.size) {
            return Err(self.origin.damaged("it ends too early"));
        }
        let mut guard = self.cursor.lock().unwrap_or_else(PoisonError::into_inner);
        // Taken, so that after a failure reading restarts.
        let cursor = guard.take();
        let cursor = match self.is_stored {
            true => self.read_stored(cursor, offset, out)?,
            false => Some(self.read_deflated(cursor, offset, out)?),
        };
        *guard = cursor;
        Ok(())
    }

    fn read_stored(
        &self,
        cursor: Option<Cursor>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Option<Cursor>, DataError> {
        let cursor = cursor.filter(|cursor| cursor.position == offset);
        let Some(mut cursor) = cursor.or_else(|| (offset == 0).then(|| self.rewind())) else {
            let read = read_exact_at(&self.file, out, self.start + offset);
            return read.map(|()| None).map_err(|error| DataError::reading(&self.origin.path, error));
        };
        self.advance(&mut cursor, out)?;
        Ok(Some(cursor))
    }

    fn read_deflated(
        &self,
        cursor: Option<Cursor>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Cursor, DataError> {
        let mut cursor = cursor.unwrap_or_else(|| self.rewind());
        if cursor.spool.is_some() {
            self.skip(&mut cursor, offset + out.len() as u64)?;
        }
        if let Some(spool) = &cursor.spool {
            spool.read_at(offset, out).map_err(|error| DataError::reading(&self.origin.path, error))?;
            return Ok(cursor);
        }
        if cursor.position > offset {
            cursor = Cursor { spool: None, ..self.rewind() };
        }
        self.skip(&mut cursor, offset)?;
        self.advance(&mut cursor, out)?;
        Ok(cursor)
    }

    /// Reads the whole member and verifies its checksum.
    pub fn read_all(&self) -> Result<Vec<u8>, DataError> {
        let mut bytes = vec![0; self.size as usize];
        match self.is_stored {
            true => self.advance(&mut self.rewind(), &mut bytes)?,
            false => self.read_at(0, &mut bytes)?,
        }
        Ok(bytes)
    }

    /// Reads a small member from end to end to verify its checksum.
    pub fn check(&self) -> Result<(), DataError> {
        if self.size > CHECKED_BYTES {
            return Ok(());
        }
        let mut cursor = self.rewind();
        self.skip(&mut cursor, self.size)?;
        // Reading an empty member verifies its checksum at once.
        self.advance(&mut cursor, &mut [])?;
        if !self.is_stored {
            *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = Some(cursor);
        }
        Ok(())
    }

    fn rewind(&self) -> Cursor {
        let section =
            Section { file: self.file.clone(), position: self.start, end: self.start + self.stored_size };
        let (content, spool) = match self.is_stored {
            true => (Content::Stored(section), None),
            false => (Content::Deflated(DeflateDecoder::new(section)), Spool::new(self.size).ok()),
        };
        Cursor { content, position: 0, checksum: crc32fast::Hasher::new(), spool }
    }

    fn skip(&self, cursor: &mut Cursor, offset: u64) -> Result<(), DataError> {
        let mut skipped = [0; 64 << 10];
        while cursor.position < offset {
            let length = (offset - cursor.position).min(skipped.len() as u64) as usize;
            self.advance(cursor, &mut skipped[..length])?;
        }
        Ok(())
    }

    fn advance(&self, cursor: &mut Cursor, out: &mut [u8]) -> Result<(), DataError> {
        cursor.content.read_exact(out).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
                self.origin.damaged("its compressed bytes are corrupt")
            }
            io::ErrorKind::UnexpectedEof => self.origin.damaged("its bytes end too early"),
            _ => DataError::reading(&self.origin.path, error),
        })?;
        cursor.position += out.len() as u64;
        cursor.checksum.update(out);
        // If no temporary file can be written, bytes that are read again are inflated again.
        cursor.spool = cursor.spool.take().and_then(|mut spool| spool.append(out).is_ok().then_some(spool));
        if cursor.position == self.size && cursor.checksum.clone().finalize() != self.checksum {
            return Err(self.origin.damaged("its checksum is wrong"));
        }
        Ok(())
    }
}

/// The stored bytes of a member.
struct Section {
    file: Arc<File>,
    position: u64,
    end: u64,
}

impl Read for Section {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let length = (self.end - self.position).min(out.len() as u64) as usize;
        read_exact_at(&self.file, &mut out[..length], self.position)?;
        self.position += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;

    /// A compressed member with the given bytes, for tests.
    fn member(content: &[u8]) -> Member {
        let mut encoder = DeflateEncoder::new(tempfile::tempfile().unwrap(), Compression::fast());
        encoder.write_all(content).unwrap();
        let file = encoder.finish().unwrap();
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(content);
        Member {
            origin: Origin { path: Arc::new("a.npz".into()), name: "values".to_string() },
            size: content.len() as u64,
            stored_size: file.metadata().unwrap().len(),
            file: Arc::new(file),
            start: 0,
            is_stored: false,
            checksum: hasher.finalize(),
            cursor: Mutex::new(None),
        }
    }

    /// Number of bytes inflated: the position, as long as it never goes back.
    fn inflated(member: &Member) -> u64 {
        member.cursor.lock().unwrap().as_ref().map_or(0, |cursor| cursor.position)
    }

    #[test]
    fn no_order_of_reads_inflates_a_byte_twice() {
        // Small enough for memory, and too large for it.
        for size in [100_000, 33 << 20] {
            let content: Vec<u8> = (0..size).map(|i: u32| (i.wrapping_mul(i) >> 7) as u8).collect();
            let member = member(&content);
            let mut furthest = 0;
            let mut out = [0; 100];
            for i in 0..400_usize {
                let offset = (i * 7919 * 1009) % (content.len() - out.len());
                member.read_at(offset as u64, &mut out).unwrap();
                assert_eq!(out, content[offset..offset + out.len()]);
                furthest = furthest.max(offset + out.len());
                assert_eq!(inflated(&member), furthest as u64, "after read {i} of {size} bytes");
            }
        }
    }

    #[test]
    fn without_room_for_a_temporary_file_members_are_still_read() {
        let content: Vec<u8> = (0..5000_u32).map(|i| (i % 251) as u8).collect();
        let member = member(&content);
        *member.cursor.lock().unwrap() = Some(Cursor { spool: None, ..member.rewind() });
        for offset in [4000, 10, 3000, 0] {
            let mut out = [0; 900];
            member.read_at(offset as u64, &mut out).unwrap();
            assert_eq!(out, content[offset..offset + 900]);
        }
    }

    #[test]
    fn what_was_checked_is_not_inflated_again() {
        let content = vec![7; 10_000];
        let member = member(&content);
        member.check().unwrap();
        assert_eq!(member.read_all().unwrap(), content);
        assert_eq!(inflated(&member), 10_000);
        let damaged = Member { checksum: member.checksum ^ 1, ..super::tests::member(&content) };
        assert!(damaged.check().is_err());
    }
}
