//! The folder of a run: recipe, log, checkpoints, evaluation.

pub mod checkpoint;
mod folder;
mod log;
mod progress;
mod report;
mod wall_time;

use std::path::{Path, PathBuf};

use fs_err as fs;
use serde_json::Value;

use crate::error::{CfoError, Result};
use crate::recipe::Recipe;
use checkpoint::{Checkpoints, State, write_atomically};
pub(crate) use folder::Claim;
pub(crate) use log::Log;
pub use progress::Ending;
pub(crate) use progress::Progress;
pub use report::StepReport;
pub use wall_time::WallTime;
pub(crate) use wall_time::timed;

/// The folder of a run. Only this type reads and writes its files.
///
/// A run can be read while it is written: incomplete lines of its log are skipped.
#[derive(Clone, Debug)]
pub struct Run {
    folder: PathBuf,
}

impl Run {
    /// Returns the run in a folder, which may not exist yet.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the checkpoints.
    pub fn checkpoints(&self) -> Checkpoints {
        Checkpoints::of(&self.folder)
    }

    /// Returns the newest intact checkpoint, by its name and state; `None` before the first.
    ///
    /// # Errors
    /// If there are checkpoints and none is intact.
    pub fn newest_checkpoint(&self) -> Result<Option<(String, State)>> {
        let checkpoints = self.checkpoints();
        if !checkpoints.exist() {
            return Ok(None);
        }
        let (name, _) = checkpoints.newest_whole()?;
        let state = checkpoints.state(&name)?;
        Ok(Some((name, state)))
    }

    /// Returns the path of the resolved recipe.
    pub fn recipe_path(&self) -> PathBuf {
        self.folder.join("recipe.toml")
    }

    pub(crate) fn write_recipe(&self, recipe: &Recipe) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        write_atomically(&self.recipe_path(), recipe.to_toml()?.as_bytes())
    }

    /// Returns a warning if the recipe in the folder differs from the recipe in the checkpoints.
    pub fn recipe_warning(&self) -> Option<String> {
        let path = self.recipe_path();
        let trained = self.checkpoints().state("latest").ok()?.recipe();
        let used = "the recipe stored in the checkpoint is used";
        let Ok(text) = fs::read_to_string(&path) else {
            return Some(format!("`{}` is missing or unreadable; {used}", path.display()));
        };
        match Recipe::parse(&text, &[]) {
            Err(error) => Some(format!("`{}` was changed ({error}); {used}", path.display())),
            Ok(found) => {
                let keys = found.differing_keys(&trained);
                let keys = (!keys.is_empty()).then(|| keys.join("`, `"))?;
                Some(format!("`{}` was changed after training (`{keys}`); {used}", path.display()))
            }
        }
    }

    /// Returns the reports of training in order; none without a log.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn reports(&self) -> Result<Vec<StepReport>> {
        log::read(&self.folder)
    }

    /// Writes the recipe and the log of a model that was trained without a folder.
    pub(crate) fn write_history(&self, recipe: &Recipe, history: &[StepReport]) -> Result<()> {
        self.write_recipe(recipe)?;
        log::write(&self.folder, history)
    }

    /// Returns the folder of the evaluation.
    pub fn evaluation_folder(&self) -> PathBuf {
        self.folder.join("evaluation")
    }

    /// Returns the report of the evaluation, as in `cfo evaluate --json`; `None` if there is none.
    ///
    /// # Errors
    /// If it is not a JSON document.
    pub fn evaluation(&self) -> Result<Option<Value>> {
        let path = self.evaluation_folder().join(EVALUATION);
        let Ok(text) = fs::read_to_string(&path) else { return Ok(None) };
        let problem = |error: serde_json::Error| CfoError::BadCheckpoint { path, problem: error.to_string() };
        serde_json::from_str(&text).map(Some).map_err(problem)
    }
}

const EVALUATION: &str = "report.json";

/// Writes the report of an evaluation, JSON and Markdown, into a folder, which is [`Run::evaluation_folder`] by default.
///
/// # Errors
/// If the folder cannot be written.
pub fn write_evaluation(folder: &Path, json: &str, markdown: &str) -> Result<()> {
    write_atomically(&folder.join(EVALUATION), json.as_bytes())?;
    write_atomically(&folder.join("report.md"), markdown.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the log can be read after a writer was killed at any byte.
    #[test]
    fn incomplete_lines_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let run = Run::at(folder.path());
        assert!(run.reports().unwrap().is_empty() && run.evaluation().unwrap().is_none());
        let report = |step: u32| StepReport {
            step,
            steps: 9,
            loss: 0.5,
            learning_rate: 1e-3,
            steps_per_second: 7.0,
            validation: None,
            miss: None,
        };
        run.write_history(&Recipe::default(), &[report(1), report(2)]).unwrap();
        let path = folder.path().join("metrics.jsonl");
        let whole = std::fs::read_to_string(&path).unwrap();
        for length in 0..=whole.len() {
            std::fs::write(&path, &whole[..length]).unwrap();
            let found = run.reports().unwrap();
            let complete =
                usize::from(2 * (length + 1) >= whole.len()) + usize::from(length + 1 >= whole.len());
            assert_eq!(found, [report(1), report(2)][..complete], "{length} of {} bytes", whole.len());
        }
    }
}
