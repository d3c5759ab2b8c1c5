//! Memory that processes of one machine share.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::IntoRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// A mapping that is as long as was asked for, begins with a mark, and stays for as long as the process lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping belongs to the process, whichever thread looks at it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Bytes of the mark.
    pub(super) const MARK: usize = size_of::<u64>();

    /// Memory of zeros, and where other processes find it: a process, one of its files, and the mark. `None` if the system refuses.
    pub(super) fn create(bytes: usize) -> Option<(Self, String)> {
        let file = File::from(memfd_create("cfo-ranks", MemfdFlags::CLOEXEC).ok()?);
        ftruncate(&file, bytes as u64).ok()?;
        let memory = Self::map(&file, bytes)?;
        let mark = RandomState::new().build_hasher().finish();
        memory.mark().store(mark, Ordering::Release);
        // It stays open: others look for it at any time.
        Some((memory, format!("{} {} {mark}", std::process::id(), file.into_raw_fd())))
    }

    /// The memory that another process has made; `None` if this one cannot see it.
    pub(super) fn open(place: &str, bytes: usize) -> Option<Self> {
        let mut words = place.split(' ');
        let path = format!("/proc/{}/fd/{}", words.next()?, words.next()?);
        let mark: u64 = words.next()?.parse().ok()?;
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        // In a container of its own the number may be that of another process, and the file any.
        if file.metadata().ok()?.len() != bytes as u64 {
            return None;
        }
        let memory = Self::map(&file, bytes)?;
        (memory.mark().load(Ordering::Acquire) == mark).then_some(memory)
    }

    fn map(file: &File, bytes: usize) -> Option<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping of a file that has this length; it is never unmapped.
        let base = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, file, 0) };
        Some(Self { base: NonNull::new(base.ok()?.cast())?, bytes })
    }

    fn mark(&self) -> &AtomicU64 {
        // SAFETY: zeros are one, and it is touched as an atomic alone.
        unsafe { self.at::<AtomicU64>(0, 1).as_ref() }
    }

    /// The place of some values, a multiple of their alignment from the beginning on.
    pub(super) fn at<T>(&self, offset: usize, count: usize) -> NonNull<T> {
        assert!(offset + count * size_of::<T>() <= self.bytes && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: within the mapping, which is aligned to a page.
        unsafe { self.base.add(offset).cast() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_another_job_is_not_taken() {
        let (_, place) = Memory::create(4096).unwrap();
        let (process, rest) = place.split_once(' ').unwrap();
        let (file, _) = rest.split_once(' ').unwrap();
        assert!(Memory::open(&place, 4096).is_some());
        assert!(Memory::open(&place, 8192).is_none(), "another length");
        assert!(Memory::open(&format!("{process} {file} 7"), 4096).is_none(), "another mark");
        assert!(Memory::open("", 4096).is_none());
    }
}
