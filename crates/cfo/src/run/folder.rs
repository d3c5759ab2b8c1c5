//! The lock on the folder of a run.

use std::fs::TryLockError;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use cfo_ranks::host_name;
use fs_err as fs;

use super::Run;
use super::checkpoint::Checkpoints;
use crate::error::{CfoError, Result};

/// The file that the writer of a run locks. The lock ends with the process; the file stays.
const LOCK: &str = ".lock";

/// A run whose folder is locked for other processes. If nothing was written, the folder is removed afterwards.
pub(crate) struct Claim {
    pub(crate) run: Run,
    pub(crate) checkpoints: Checkpoints,
    /// The folders that were created, the outermost first.
    created: Vec<PathBuf>,
    _lock: std::fs::File,
}

impl Claim {
    /// Locks a folder, and creates it if necessary.
    ///
    /// # Errors
    /// If another process trains in it, it holds a run and `resume` is `false`, or the disk has an error.
    pub(crate) fn new(run: Run, resume: bool) -> Result<Self> {
        let (path, checkpoints) = (run.folder(), run.checkpoints());
        if checkpoints.exist() && !resume {
            return Err(CfoError::RunExists { folder: path.into() });
        }
        let missing = path.ancestors().take_while(|folder| *folder != Path::new("") && !folder.exists());
        let mut created: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        created.reverse();
        fs::create_dir_all(path)?;
        let lock = lock(path)?;
        Ok(Self { run, checkpoints, created, _lock: lock })
    }
}

impl Drop for Claim {
    /// Removes a folder that contains only the lock.
    fn drop(&mut self) {
        let alone = |mut entries: std::fs::ReadDir| {
            entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == LOCK))
        };
        if !std::fs::read_dir(self.run.folder()).is_ok_and(alone) {
            return;
        }
        // The file is still locked: a process that waits for it detects that it was removed.
        let _ = std::fs::remove_file(self.run.folder().join(LOCK));
        for folder in self.created.iter().rev() {
            // Only if it is empty.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

fn lock(folder: &Path) -> Result<std::fs::File> {
    let path = folder.join(LOCK);
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
    let mut file = file.into_file();
    match file.try_lock() {
        // Its last holder has removed it.
        Ok(()) if !is_still_there(&file, &path) => {
            fs::create_dir_all(folder)?;
            lock(folder)
        }
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let holder = if holder.trim().is_empty() { "another process" } else { holder.trim() };
            Err(CfoError::RunBusy { folder: folder.into(), holder: holder.into() })
        }
        // Some file systems have no locks; runs there are not protected.
        Err(TryLockError::Error(_)) => Ok(file),
        Ok(()) => {
            let _ = file.set_len(0);
            let host = host_name().unwrap_or_else(|| "an unknown host".into());
            let _ = writeln!(file, "process {} on {host}", std::process::id());
            Ok(file)
        }
    }
}

fn is_still_there(file: &std::fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |found: std::fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => number(open) == number(named),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;

    #[test]
    fn a_folder_has_one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let first = Claim::new(Run::at(&run), false).unwrap();
        let refused = Claim::new(Run::at(&run), true).err().expect("it is taken");
        assert!(refused.to_string().contains(&format!("process {} on ", std::process::id())), "{refused}");
        drop(first);
        assert!(Claim::new(Run::at(&run), false).unwrap().run.newest_checkpoint().unwrap().is_none());
    }

    #[test]
    fn a_folder_in_which_nothing_was_written_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("runs").join("one");
        drop(Claim::new(Run::at(&run), false).unwrap());
        assert!(!folder.path().join("runs").exists());
        // What was there before stays, without the lock.
        std::fs::create_dir_all(run.parent().unwrap()).unwrap();
        drop(Claim::new(Run::at(&run), true).unwrap());
        assert!(run.parent().unwrap().exists() && !run.exists());
        let used = Claim::new(Run::at(&run), false).unwrap();
        used.run.write_recipe(&Recipe::default()).unwrap();
        drop(used);
        assert!(run.join("recipe.toml").exists() && run.join(LOCK).exists());
    }

    #[test]
    fn a_lock_that_its_holder_removed_protects_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let held = lock(folder.path()).unwrap();
        std::fs::remove_file(folder.path().join(LOCK)).unwrap();
        assert!(!is_still_there(&held, &folder.path().join(LOCK)));
        assert!(is_still_there(&lock(folder.path()).unwrap(), &folder.path().join(LOCK)));
    }
}
