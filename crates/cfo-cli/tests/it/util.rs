//! A folder of its own and the command run in it.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A temporary folder in which `cfo` runs; it disappears with the test.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// What the folder holds, sorted.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Runs `cfo` with the words of `line`.
    pub fn cfo(&self, line: &str) -> Outcome {
        self.run(&mut self.command(line), line)
    }

    /// The command in this folder, not started yet.
    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cfo"));
        command.args(line.split_whitespace()).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs another program in this folder; `name` identifies it in failures.
    pub fn run(&self, command: &mut Command, name: &str) -> Outcome {
        Outcome::new(name, &command.current_dir(self.0.path()).output().unwrap())
    }
}

/// A Python with NumPy and h5py, to write files as others do and to look from outside; `None` where there is none, which
/// the checks do not accept.
pub fn python() -> Option<String> {
    python_with(&["numpy", "h5py"])
}

/// A Python with these packages, in the same way.
pub fn python_with(packages: &[&str]) -> Option<String> {
    let python = std::env::var("CFO_PYTHON").unwrap_or_else(|_| "python3".into());
    let wanted = packages.join(", ");
    let found = Command::new(&python).args(["-c", &format!("import {wanted}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "the checks need a Python with {wanted}");
    println!("skipped: `{python}` does not have all of {wanted}");
    None
}

/// A browser without a window; `None` where there is none, which the checks do not accept.
pub fn browser() -> Option<PathBuf> {
    let named = std::env::var_os("CFO_BROWSER").map(PathBuf::from);
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| ["chromium", "chromium-browser", "google-chrome"].map(|name| folder.join(name)))
        .find(|path| path.is_file());
    let browser = named.or(found);
    assert!(browser.is_some() || std::env::var_os("CI").is_none(), "the checks need Chromium");
    if browser.is_none() {
        println!("skipped: there is no Chromium");
    }
    browser
}

/// What a run left behind.
#[derive(Debug)]
pub struct Outcome {
    line: String,
    code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Outcome {
    fn new(line: &str, output: &Output) -> Self {
        Self {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// The run did its work.
    #[track_caller]
    pub fn done(self) -> Self {
        self.ended_with(0)
    }

    /// The run ended with this exit code, without a panic.
    #[track_caller]
    pub fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "`cfo {}`\n{}\n{}", self.line, self.stdout, self.stderr);
        assert!(!self.stderr.contains("internal error"), "`cfo {}`\n{}", self.line, self.stderr);
        self
    }

    /// The only thing on stdout is one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}
