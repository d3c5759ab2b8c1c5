//! Detection of changes of a file from its metadata.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

/// Size and times of change of a file. A different stamp means that the content may differ: `touch` changes it too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    length: u64,
    modified: Option<SystemTime>,
    /// Time of the last change of content or attributes (ctime), which programs cannot set.
    changed: (i64, i64),
}

/// A file held open to query its stamp. Another file that replaces it under its name is not examined.
#[derive(Debug)]
pub(super) struct Stamped {
    file: File,
    /// Stamp at opening.
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

    /// A file written again has another stamp, also with the same size and a reset modification time.
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
