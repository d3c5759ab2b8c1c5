//! The folder of a run: who may write into it, and how it begins.

use std::fs::TryLockError;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::error::{CfoError, Result};
use crate::recipe::Recipe;
use crate::run::checkpoint::{Checkpoints, State, write_atomically};

/// The file that the writer of a run holds locked. The lock ends with its process, however that ends; the file stays.
const LOCK: &str = ".lock";

/// A run's folder that no other process writes into. One in which nothing was written is gone afterwards.
pub(crate) struct Folder<'a> {
    pub(crate) path: &'a Path,
    pub(crate) checkpoints: Checkpoints,
    /// The folders that were made for it, the outermost first.
    made: Vec<PathBuf>,
    _lock: std::fs::File,
}

impl<'a> Folder<'a> {
    /// Takes a folder, and makes it if need be.
    ///
    /// # Errors
    /// If another process trains in it, if it holds a run that is not to be resumed, or if the disk refuses.
    pub(crate) fn claim(path: &'a Path, resume: bool) -> Result<Self> {
        let checkpoints = Checkpoints::of(path);
        if checkpoints.exist() && !resume {
            return Err(CfoError::RunExists { folder: path.into() });
        }
        let missing = path.ancestors().take_while(|folder| *folder != Path::new("") && !folder.exists());
        let mut made: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        made.reverse();
        fs::create_dir_all(path)?;
        Ok(Self { path, checkpoints, made, _lock: lock(path)? })
    }

    /// The checkpoint to go on from: the newest that is whole; `None` before the first.
    ///
    /// # Errors
    /// If there are checkpoints and none is whole.
    pub(crate) fn newest(&self) -> Result<Option<(String, State)>> {
        if !self.checkpoints.exist() {
            return Ok(None);
        }
        let (name, _) = self.checkpoints.newest_whole()?;
        let state = self.checkpoints.state(&name)?;
        Ok(Some((name, state)))
    }

    /// Writes the resolved recipe.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn write_recipe(&self, recipe: &Recipe) -> Result<()> {
        write_atomically(&self.path.join("recipe.toml"), recipe.to_toml()?.as_bytes())
    }
}

impl Drop for Folder<'_> {
    /// Leaves no trace of a training that was refused: no folder with nothing but its lock.
    fn drop(&mut self) {
        let alone = |mut entries: std::fs::ReadDir| {
            entries.all(|entry| entry.is_ok_and(|entry| entry.file_name() == LOCK))
        };
        if !std::fs::read_dir(self.path).is_ok_and(alone) {
            return;
        }
        // While it is locked: who waits for it finds that it is gone, and takes another.
        let _ = std::fs::remove_file(self.path.join(LOCK));
        for folder in self.made.iter().rev() {
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
        // Its last holder removed it in the meantime.
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
        // Some file systems know no locks; a run there is as safe as it was.
        Err(TryLockError::Error(_)) => Ok(file),
        Ok(()) => {
            let _ = file.set_len(0);
            let _ = writeln!(file, "process {} on {}", std::process::id(), host());
            Ok(file)
        }
    }
}

/// Whether an open file is the one under its name.
fn is_still_there(file: &std::fs::File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |found: std::fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(open), Ok(named)) => number(open) == number(named),
        _ => false,
    }
}

/// The machine's name, if the system tells it.
fn host() -> String {
    let told = std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    let told = told.or_else(|| std::env::var("HOSTNAME").ok());
    told.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "an unknown host".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_writer_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let first = Folder::claim(&run, false).unwrap();
        let refused = Folder::claim(&run, true).err().expect("it is taken");
        assert!(refused.to_string().contains(&format!("process {} on ", std::process::id())), "{refused}");
        drop(first);
        assert!(Folder::claim(&run, false).unwrap().newest().unwrap().is_none());
    }

    #[test]
    fn a_folder_in_which_nothing_was_written_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("runs").join("one");
        drop(Folder::claim(&run, false).unwrap());
        assert!(!folder.path().join("runs").exists());
        // What was there before stays, without the lock.
        std::fs::create_dir_all(run.parent().unwrap()).unwrap();
        drop(Folder::claim(&run, true).unwrap());
        assert!(run.parent().unwrap().exists() && !run.exists());
        let used = Folder::claim(&run, false).unwrap();
        used.write_recipe(&Recipe::default()).unwrap();
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
