//! The central directory of a ZIP file: positions of its members.

use std::fs::File;

use super::{Fault, read_within, word16, word32, word64};

const END: &[u8] = b"PK\x05\x06";
const END_BYTES: usize = 22;
const ENTRY: &[u8] = b"PK\x01\x02";
const ENTRY_BYTES: usize = 46;
const LARGE_LOCATOR: &[u8] = b"PK\x06\x07";
const LARGE_LOCATOR_BYTES: usize = 20;
const LARGE_END: &[u8] = b"PK\x06\x06";
const LARGE_END_BYTES: usize = 56;
/// The tag of the extra field with 64-bit sizes.
const LARGE_TAG: u16 = 1;
const LONGEST_COMMENT: usize = 65535;

/// The bytes of the central directory, which follow all members.
pub(super) fn read_directory(file: &File, bytes: u64) -> Result<Vec<u8>, Fault> {
    let tail_bytes = bytes.min((END_BYTES + LONGEST_COMMENT + LARGE_LOCATOR_BYTES) as u64) as usize;
    let tail_start = bytes - tail_bytes as u64;
    let mut tail = vec![0; tail_bytes];
    read_within(file, bytes, &mut tail, tail_start)?;
    let last = tail_bytes.checked_sub(END_BYTES).ok_or(Fault::Damaged("it is too short"))?;
    let end = (0..=last)
        .rev()
        .find(|&at| tail[at..].starts_with(END))
        .ok_or(Fault::Damaged("it has no directory at its end"))?;
    let mut size = u64::from(word32(&tail, end + 12));
    let mut start = u64::from(word32(&tail, end + 16));
    let locator = end.checked_sub(LARGE_LOCATOR_BYTES).filter(|&at| tail[at..].starts_with(LARGE_LOCATOR));
    if let Some(locator) = locator {
        let mut large = [0; LARGE_END_BYTES];
        read_within(file, bytes, &mut large, word64(&tail, locator + 8))?;
        if !large.starts_with(LARGE_END) {
            return Err(Fault::Damaged("its 64-bit directory is not where it should be"));
        }
        (size, start) = (word64(&large, 40), word64(&large, 48));
    }
    if start.checked_add(size).is_none_or(|stop| stop > tail_start + end as u64) {
        return Err(Fault::Damaged("its directory lies outside the file"));
    }
    let mut directory = vec![0; size as usize];
    read_within(file, bytes, &mut directory, start)?;
    Ok(directory)
}

/// One entry of the central directory.
pub(super) struct ZipEntry {
    pub name: String,
    pub flags: u16,
    pub method: u16,
    pub checksum: u32,
    pub stored_size: u64,
    pub size: u64,
    pub local: u64,
}

impl ZipEntry {
    /// Parses the first entry of `bytes`; returns it and its length.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        if bytes.len() < ENTRY_BYTES || !bytes.starts_with(ENTRY) {
            return None;
        }
        let lengths = [28, 30, 32].map(|at| usize::from(word16(bytes, at)));
        let name = bytes.get(ENTRY_BYTES..ENTRY_BYTES + lengths[0])?;
        let extra_start = ENTRY_BYTES + lengths[0];
        let extra = bytes.get(extra_start..extra_start + lengths[1])?;
        let length = extra_start + lengths[1] + lengths[2];
        bytes.get(..length)?;
        let mut entry = Self {
            name: String::from_utf8_lossy(name).into_owned(),
            flags: word16(bytes, 8),
            method: word16(bytes, 10),
            checksum: word32(bytes, 16),
            stored_size: u64::from(word32(bytes, 20)),
            size: u64::from(word32(bytes, 24)),
            local: u64::from(word32(bytes, 42)),
        };
        entry.widen(extra)?;
        Some((entry, length))
    }

    /// Replaces numbers that did not fit by the 64-bit ones of the extra field.
    fn widen(&mut self, mut extra: &[u8]) -> Option<()> {
        while extra.len() >= 4 {
            let length = usize::from(word16(extra, 2));
            let field = extra.get(4..4 + length)?;
            if word16(extra, 0) == LARGE_TAG {
                let mut numbers = field.chunks_exact(8).map(|number| word64(number, 0));
                for number in [&mut self.size, &mut self.stored_size, &mut self.local] {
                    if *number == u64::from(u32::MAX) {
                        *number = numbers.next()?;
                    }
                }
            }
            extra = &extra[4 + length..];
        }
        Some(())
    }
}
