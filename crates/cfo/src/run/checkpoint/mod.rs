//! Checkpoints: folders that are written atomically and verified by checksums when they are read.

mod state;
mod tensors;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use cfo_engine::{KeptTensor, Memory, Role};
use fs_err as fs;
use sha2::{Digest, Sha256};

use crate::error::{CfoError, Result};
use state::Sealed;
pub use state::{LoopState, State};
use tensors::{pack, unpack};

/// Version of the format of `state.json`.
const VERSION: u32 = 1;
const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";

/// The checkpoints of one run, under `RUN/checkpoints`.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    /// Returns the checkpoints of a run.
    pub fn of(run: &Path) -> Self {
        Self { folder: run.join("checkpoints") }
    }

    /// Returns whether there is a checkpoint.
    pub fn exist(&self) -> bool {
        !self.names().is_empty()
    }

    /// Returns whether there is a checkpoint with this name: `latest`, `best` or `step-N`.
    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).join(STATE).exists()
    }

    /// Returns the name of the default checkpoint: `best` if there is one, else `latest`.
    ///
    /// # Errors
    /// If `best` points to a checkpoint that is missing.
    pub fn preferred(&self) -> Result<&'static str> {
        match fs::symlink_metadata(self.folder.join("best")) {
            Ok(_) if self.has("best") => Ok("best"),
            Ok(_) => Err(CfoError::bad_data(
                format!("`{}` points to a checkpoint that is missing", self.folder.join("best").display()),
                format!(
                    "choose another checkpoint by its name: available are `latest`, `{}`",
                    self.names().join("`, `")
                ),
            )),
            Err(_) => Ok("latest"),
        }
    }

    /// Removes all checkpoints.
    pub(crate) fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Checks that the tensors of a checkpoint, as read into memory, include all that are needed.
    ///
    /// # Errors
    /// If one is missing or has another shape.
    pub(crate) fn check_tensors<'a>(
        &self,
        name: &str,
        needed: impl Iterator<Item = KeptTensor<'a>>,
        memory: &Memory,
    ) -> Result<()> {
        for KeptTensor { name: tensor, shape, role } in needed {
            let file = if role.is_network() { WEIGHTS } else { OPTIMIZER };
            let refused = |problem| Err(bad(&self.folder.join(name).join(file), problem));
            match memory.value_type(tensor) {
                Err(_) => return refused(format!("it lacks `{tensor}`, which the network needs")),
                Ok(found) if found.shape != *shape => {
                    let found = &found.shape;
                    return refused(format!("`{tensor}` is {found}, but the network needs {shape}"));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// Returns the name of a checkpoint, after following the links `latest` and `best`.
    pub fn target(&self, name: &str) -> String {
        let link = fs::read_link(self.folder.join(name)).ok();
        link.and_then(|path| path.file_name()?.to_str().map(str::to_owned)).unwrap_or_else(|| name.to_owned())
    }

    /// Returns the names `step-N` of all checkpoints, the newest first.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let named = entries.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let step: u32 = name.strip_prefix("step-")?.parse().ok()?;
            Some((step, name))
        });
        let mut named: Vec<(u32, String)> = named.collect();
        named.sort_by_key(|&(step, _)| std::cmp::Reverse(step));
        named.into_iter().map(|(_, name)| name).collect()
    }

    /// Returns the newest intact checkpoint, and the errors of the newer ones.
    ///
    /// # Errors
    /// If no checkpoint is intact: the error of the newest.
    pub fn newest_whole(&self) -> Result<(String, Vec<CfoError>)> {
        let mut problems = Vec::new();
        for name in self.names() {
            match self.state(&name).and_then(|state| self.files(&name, &state, true)) {
                Ok(_) => return Ok((name, problems)),
                Err(error) => problems.push(error),
            }
        }
        let missing = || bad(&self.folder, "there is no checkpoint");
        Err(problems.into_iter().next().unwrap_or_else(missing))
    }

    /// Writes `step-N` as the latest and, with `best`, the best checkpoint. Keeps the best and the previous one.
    ///
    /// # Errors
    /// If it cannot be written; earlier checkpoints are then unchanged.
    pub fn save(&self, memory: &Memory, mut state: State, best: bool) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let name = format!("step-{}", state.step);
        let temporary = self.folder.join(format!(".{name}.tmp"));
        if temporary.exists() {
            fs::remove_dir_all(&temporary)?;
        }
        fs::create_dir(&temporary)?;
        let written = self.fill(&temporary, memory, &mut state);
        if let Err(error) = written {
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }
        let target = self.folder.join(&name);
        let old = self.folder.join(format!(".{name}.old"));
        if target.exists() {
            fs::rename(&target, &old)?;
        }
        fs::rename(&temporary, &target)?;
        if old.exists() {
            fs::remove_dir_all(&old)?;
        }
        sync_folder(&self.folder)?;
        self.point("latest", &name)?;
        if best {
            self.point("best", &name)?;
        }
        self.prune()
    }

    fn fill(&self, folder: &Path, memory: &Memory, state: &mut State) -> Result<()> {
        let is_optimizer: fn(Role) -> bool = |role| role == Role::Optimizer;
        for (file, chosen) in [(WEIGHTS, Role::is_network as fn(Role) -> bool), (OPTIMIZER, is_optimizer)] {
            let bytes = pack(memory, chosen)?;
            state.files.insert(file.into(), hash(&bytes));
            write_synced(&folder.join(file), &bytes)?;
        }
        let value = serde_json::to_value(&*state).map_err(|error| bad(&folder.join(STATE), error))?;
        let sealed = Sealed { sha256: hash(value.to_string().as_bytes()), state: value };
        let text = serde_json::to_string_pretty(&sealed).map_err(|error| bad(&folder.join(STATE), error))?;
        write_synced(&folder.join(STATE), text.as_bytes())?;
        sync_folder(folder)
    }

    /// Reads the state of `latest`, `best` or `step-N`.
    ///
    /// # Errors
    /// If it is missing, of another version, or changed since it was written.
    pub fn state(&self, name: &str) -> Result<State> {
        let path = self.folder.join(name).join(STATE);
        if !path.exists() && !self.names().iter().any(|known| known == name) {
            let links = ["latest", "best"].map(String::from).into_iter();
            let links = links.filter(|link| self.folder.join(link).exists());
            let known: Vec<String> = links.chain(self.names()).collect();
            return Err(CfoError::bad_data(
                format!("there is no checkpoint `{name}` in `{}`", self.folder.display()),
                match known.is_empty() {
                    true => "train into the folder first".into(),
                    false => format!("there are `{}`", known.join("`, `")),
                },
            ));
        }
        let text = read(&path)?;
        let sealed: Sealed =
            serde_json::from_slice(&text).map_err(|_| bad(&path, "it is not the state of a run"))?;
        if hash(sealed.state.to_string().as_bytes()) != sealed.sha256 {
            return Err(bad(&path, "its content does not match its checksum"));
        }
        let version = sealed.state.get("version").and_then(serde_json::Value::as_u64);
        if version != Some(u64::from(VERSION)) {
            let found = version.map_or("none".into(), |version| version.to_string());
            let problem = format!("it has format version {found}, this program reads {VERSION}");
            return Err(bad(&path, problem));
        }
        serde_json::from_value(sealed.state).map_err(|error| bad(&path, error))
    }

    /// Reads the tensors of a checkpoint into memory; those of the optimiser only if `optimizer` is set.
    ///
    /// # Errors
    /// If a file is missing, incomplete or changed since it was written.
    pub fn load(&self, name: &str, state: &State, memory: &mut Memory, optimizer: bool) -> Result<()> {
        let files = self.files(name, state, optimizer)?;
        files
            .iter()
            .zip([Role::Weight, Role::Optimizer])
            .try_for_each(|((path, bytes), role)| unpack(path, bytes, role, memory))
    }

    /// Reads the tensor files of a checkpoint; that of the optimiser only if `optimizer` is set.
    fn files(&self, name: &str, state: &State, optimizer: bool) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = Vec::new();
        for file in [WEIGHTS, OPTIMIZER].into_iter().take(if optimizer { 2 } else { 1 }) {
            let path = self.folder.join(name).join(file);
            let bytes = read(&path)?;
            if state.files.get(file) != Some(&hash(&bytes)) {
                return Err(bad(&path, "its content does not match the checksum in `state.json`"));
            }
            files.push((path, bytes));
        }
        Ok(files)
    }

    fn point(&self, link: &str, name: &str) -> Result<()> {
        let temporary = self.folder.join(format!(".{link}.tmp"));
        let _ = fs::remove_file(&temporary);
        fs_err::os::unix::fs::symlink(name, &temporary)?;
        fs::rename(&temporary, self.folder.join(link))?;
        sync_folder(&self.folder)
    }

    /// Removes checkpoints without a link, except the newest of them, from which a run can continue if the latest is damaged.
    fn prune(&self) -> Result<()> {
        let kept: Vec<PathBuf> =
            ["latest", "best"].iter().filter_map(|link| fs::read_link(self.folder.join(link)).ok()).collect();
        let names = self.names();
        for name in names.iter().filter(|name| !kept.contains(&PathBuf::from(name))).skip(1) {
            fs::remove_dir_all(self.folder.join(name))?;
        }
        Ok(())
    }
}

/// Reads a file of a checkpoint. If it is missing, the checkpoint is damaged.
fn read(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(bad(path, "the file is missing")),
        read => Ok(read?),
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the hash of the training data, to detect that a run is resumed on other data.
pub(crate) fn fingerprint(parts: impl Iterator<Item = impl AsRef<[u8]>>) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update(part.as_ref());
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn bad(path: &Path, problem: impl ToString) -> CfoError {
    CfoError::BadCheckpoint { path: path.into(), problem: problem.to_string() }
}

fn write_synced(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    Ok(file.sync_all()?)
}

fn sync_folder(folder: &Path) -> Result<()> {
    Ok(fs::File::open(folder)?.sync_all()?)
}

/// Writes a file atomically.
///
/// # Errors
/// If it cannot be written; an earlier file is then unchanged.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    if let Err(error) = write_synced(&temporary, bytes) {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(fs::rename(&temporary, path)?)
}
