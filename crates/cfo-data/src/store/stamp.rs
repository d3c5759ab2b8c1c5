//! Whether a file was changed, as its file system says.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// Size and times of change of a file. A stamp that differs means that the content may differ: `touch` changes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    /// When content or attributes changed, which no program can set back.
    changed: (i64, i64),
}

/// A file held open to ask for its stamp. A file of another name that takes its place is not looked at.
#[derive(Debug)]
pub(super) struct Stamped {
    file: File,
    /// When it was opened.
    first: Stamp,
}

impl Stamped {
    /// Opens a file.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = fs_err::File::open(path)?.into_file();
        let first = Stamp::of(&file)?;
        Ok(Self { file, first })
    }

    /// The stamps when the file was opened and now.
    pub fn stamps(&self) -> io::Result<[Stamp; 2]> {
        Ok([self.first, Stamp::of(&self.file)?])
    }
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let changed = (metadata.ctime(), metadata.ctime_nsec());
        Ok(Self { length: metadata.len(), modified: metadata.modified().ok(), changed })
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// Also where the size stays and the time of the last change is set back.
    #[test]
    fn a_file_written_again_has_another_stamp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        std::fs::write(&path, b"abc").unwrap();
        let stamped = Stamped::open(&path).unwrap();
        let [first, now] = stamped.stamps().unwrap();
        assert_eq!(first, now);
        // File systems count time in ticks of some milliseconds.
        let begun = Instant::now();
        while stamped.stamps().unwrap()[1] == first {
            assert!(begun.elapsed() < Duration::from_secs(20), "the stamp never changed");
            std::fs::write(&path, b"xyz").unwrap();
            let back = first.modified.unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_modified(back).unwrap();
        }
        assert_eq!(stamped.stamps().unwrap()[1].length, 3);
    }
}
