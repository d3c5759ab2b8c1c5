//! Checkpoints: a folder that appears whole or not at all, and is refused if a bit of it changed.

use std::collections::HashMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use cfo_engine::{Data, Element, KeptTensor, Memory, Role};
use fs_err as fs;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::recipe::Recipe;

/// Version of the format of `state.json`.
const VERSION: u32 = 1;
const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";

/// Everything of a run but its tensors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct State {
    version: u32,
    /// Version of the program that wrote it.
    pub program: String,
    /// Optimiser steps made.
    pub step: u32,
    /// The model.
    pub model: Model,
    /// Hash of the training data.
    pub data_fingerprint: String,
    /// Lowest validation error so far, with its step.
    pub best: Option<(f64, u32)>,
    /// What the training loop remembers besides.
    #[serde(default)]
    pub course: Course,
    /// SHA-256 of the tensor files, by name.
    files: HashMap<String, String>,
}

/// How a run went so far, as far as its going on depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Course {
    /// Loss of the first step: what later ones are measured by.
    pub first_loss: Option<f64>,
    /// Mean loss of the last report.
    pub loss: Option<f64>,
    /// Validations since the best one.
    pub stale: u32,
    /// How often the learning rate was halved because the network diverged at once.
    pub halvings: u32,
}

impl State {
    /// The recipe as it was given: with the learning rate before it was halved.
    pub fn recipe(&self) -> Recipe {
        let mut recipe = self.model.recipe.clone();
        recipe.train.learning_rate *= f64::from(self.course.halvings).exp2();
        recipe
    }

    /// The state of a run at a step.
    pub fn new(
        model: &Model,
        step: u32,
        data_fingerprint: &str,
        best: Option<(f64, u32)>,
        course: Course,
    ) -> Self {
        Self {
            version: VERSION,
            program: env!("CARGO_PKG_VERSION").into(),
            step,
            model: model.clone(),
            data_fingerprint: data_fingerprint.into(),
            best,
            course,
            files: HashMap::new(),
        }
    }
}

/// What `state.json` holds: the state as text, and the hash of that text.
#[derive(Serialize, Deserialize)]
struct Sealed {
    sha256: String,
    state: serde_json::Value,
}

/// The checkpoints of one run, under `RUN/checkpoints`.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    folder: PathBuf,
}

impl Checkpoints {
    /// Those of a run.
    pub fn of(run: &Path) -> Self {
        Self { folder: run.join("checkpoints") }
    }

    /// Whether there is any.
    pub fn exist(&self) -> bool {
        !self.names().is_empty()
    }

    /// Whether there is one of that name: `latest`, `best` or `step-N`.
    pub fn has(&self, name: &str) -> bool {
        self.folder.join(name).join(STATE).exists()
    }

    /// The one that is meant where none is named: `best` if there is one, else `latest`.
    pub fn preferred(&self) -> &'static str {
        if self.has("best") { "best" } else { "latest" }
    }

    /// Removes all.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Refuses a checkpoint whose tensors, as read into memory, are not those that are needed.
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

    /// Those that there are, the newest first.
    fn names(&self) -> Vec<String> {
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

    /// The newest one that is whole, and what is wrong with those after it.
    ///
    /// # Errors
    /// If none is; what is wrong with the newest.
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

    /// Writes `step-N`, makes it the latest and, if asked, the best, then removes those that are neither, but for the one before.
    ///
    /// # Errors
    /// If the disk refuses; the earlier checkpoints are then untouched.
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
            return Err(CfoError::BadData {
                problem: format!("there is no checkpoint `{name}` in `{}`", self.folder.display()),
                hint: match known.is_empty() {
                    true => "`cfo train RECIPE --out RUN` makes one".into(),
                    false => format!("there are `{}`", known.join("`, `")),
                },
            });
        }
        let text = read(&path)?;
        let sealed: Sealed =
            serde_json::from_slice(&text).map_err(|_| bad(&path, "it is no state of a run"))?;
        if hash(sealed.state.to_string().as_bytes()) != sealed.sha256 {
            return Err(bad(&path, "its content does not match its checksum"));
        }
        match sealed.state.get("version").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => {}
            found => {
                let found = found.map_or("none".into(), |version| version.to_string());
                return Err(bad(
                    &path,
                    format!("it has format version {found}, this program reads {VERSION}"),
                ));
            }
        }
        serde_json::from_value(sealed.state).map_err(|error| bad(&path, error))
    }

    /// Reads a checkpoint's tensors into memory; the optimiser's only if asked.
    ///
    /// # Errors
    /// If a file is missing, torn or changed since it was written.
    pub fn load(&self, name: &str, state: &State, memory: &mut Memory, optimizer: bool) -> Result<()> {
        let files = self.files(name, state, optimizer)?;
        files
            .iter()
            .zip([Role::Weight, Role::Optimizer])
            .try_for_each(|((path, bytes), role)| unpack(path, bytes, role, memory))
    }

    /// Reads a checkpoint's tensor files; the optimiser's only if asked.
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

    /// Points a link at a checkpoint, in one step.
    fn point(&self, link: &str, name: &str) -> Result<()> {
        let temporary = self.folder.join(format!(".{link}.tmp"));
        let _ = fs::remove_file(&temporary);
        #[cfg(unix)]
        fs_err::os::unix::fs::symlink(name, &temporary)?;
        #[cfg(not(unix))]
        fs::write(&temporary, name)?;
        fs::rename(&temporary, self.folder.join(link))?;
        sync_folder(&self.folder)
    }

    /// Removes checkpoints that no link points at, except the newest of them: if the latest is damaged, it is the one to go on from.
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

/// The key in a file of weights whose value names the averages among them, as a list in JSON.
const AVERAGES: &str = "averages";

/// The names of the averages in a file of weights. Earlier versions did not write them down: a prefix told.
fn averages(path: &Path, bytes: &[u8]) -> Result<Vec<String>> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| bad(path, error))?;
    match header.metadata().as_ref().and_then(|metadata| metadata.get(AVERAGES)) {
        Some(list) => serde_json::from_str(list).map_err(|error| bad(path, error)),
        None => Ok(header.tensors().into_keys().filter(|name| name.starts_with("ema/")).collect()),
    }
}

fn pack(memory: &Memory, chosen: fn(Role) -> bool) -> Result<Vec<u8>> {
    let mut tensors = Vec::new();
    for name in memory.names_where(chosen) {
        let value_type = memory.value_type(name)?;
        let (dtype, bytes) = match value_type.element {
            Element::Index => {
                (Dtype::U32, memory.read_index(name)?.iter().flat_map(|v| v.to_le_bytes()).collect())
            }
            _ => (Dtype::F32, memory.read(name)?.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()),
        };
        tensors.push((name.to_owned(), dtype, value_type.shape.axes().to_vec(), bytes));
    }
    let views = tensors.iter().map(|(name, dtype, shape, bytes)| {
        TensorView::new(*dtype, shape.clone(), bytes).map(|view| (name.as_str(), view))
    });
    let views =
        views.collect::<std::result::Result<Vec<_>, _>>().map_err(|error| bad(Path::new(WEIGHTS), error))?;
    let mut averages: Vec<&str> = memory.names_where(|role| role == Role::Average).collect();
    averages.sort_unstable();
    let metadata = chosen(Role::Average)
        .then(|| [(AVERAGES.to_owned(), serde_json::json!(averages).to_string())].into());
    safetensors::serialize(views, metadata).map_err(|error| bad(Path::new(WEIGHTS), error))
}

/// Reads the tensors of a file, whose role is the one given or, among weights, that of an average.
fn unpack(path: &Path, bytes: &[u8], role: Role, memory: &mut Memory) -> Result<()> {
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| bad(path, error))?;
    let averages = averages(path, bytes)?;
    for (name, view) in tensors.iter() {
        let role = if role == Role::Weight && averages.iter().any(|average| average == name) {
            Role::Average
        } else {
            role
        };
        let words = view.data().chunks_exact(4).map(|word| [word[0], word[1], word[2], word[3]]);
        match view.dtype() {
            Dtype::F32 => {
                let values: Vec<f32> = words.map(f32::from_le_bytes).collect();
                memory.insert_as(role, name, Element::Real, view.shape(), Data::F32(&values))?;
            }
            Dtype::U32 => {
                let values: Vec<u32> = words.map(u32::from_le_bytes).collect();
                memory.insert_as(role, name, Element::Index, view.shape(), Data::Index(&values))?;
            }
            other => return Err(bad(path, format!("tensor `{name}` has type {other:?}"))),
        }
    }
    Ok(())
}

/// Reads a file of a checkpoint; one that is not there makes the checkpoint a damaged one.
fn read(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(bad(path, "the file is missing")),
        read => Ok(read?),
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hash of the training data, to notice that a run is resumed on other data.
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
    #[cfg(unix)]
    fs::File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

/// Writes a file so that it appears whole or not at all.
///
/// # Errors
/// If the disk refuses; an earlier file is then untouched.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let temporary = path.with_file_name(format!(".{name}.tmp"));
    if let Err(error) = write_synced(&temporary, bytes) {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(fs::rename(&temporary, path)?)
}
