//! `cfo view`: trajectories, predictions and runs as one page for a browser.

mod rollouts;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use cfo::CfoError;
use cfo::data::store::TrajectoryFile;
use serde::Serialize;

use super::output::{check_trajectories, refuse_existing};
use crate::args;
use crate::diagnostics::say;
use crate::report;
use cfo_view::page::{self, PageDocument, PageSource};

#[derive(Debug, Serialize)]
struct Report {
    out: PathBuf,
    bytes: usize,
    files: Vec<PathBuf>,
    runs: Vec<PathBuf>,
    /// Trajectories of the first file that the page has.
    trajectories: Vec<usize>,
    notes: Vec<String>,
}

pub fn run(arguments: &args::ViewPage) -> Result<()> {
    refuse_existing(&arguments.out, arguments.force)?;
    let (runs, paths): (Vec<PathBuf>, Vec<PathBuf>) =
        arguments.paths.iter().cloned().partition(|path| path.is_dir());
    if runs.len() > 1 {
        bail!(CfoError::bad_data(
            format!("{} folders of runs were given; a page can show one", runs.len()),
            "write a page for each run"
        ));
    }
    let mut document = PageDocument {
        version: env!("CARGO_PKG_VERSION"),
        title: title(arguments),
        ..PageDocument::default()
    };
    if let Some(run) = runs.first() {
        document.run = Some(read_run(run, &mut document.notes)?);
    }
    if !paths.is_empty() {
        let mut files = open(&paths, arguments)?;
        let mut wanted = arguments.trajectory.clone();
        let temporary = tempfile::tempdir()?;
        if let ([run], [_]) = (&runs[..], &files[..]) {
            let predicted = rollouts::predict(run, &files[0].file, &wanted, temporary.path())?;
            wanted = predicted.of.clone().unwrap_or_default();
            files.push(predicted);
        }
        let (field, notes) = page::gather(&files, &wanted)?;
        document.field = Some(field);
        document.notes.splice(0..0, notes);
    }
    let page = page::render(&document)?;
    cfo::checkpoint::write_atomically(&arguments.out, page.as_bytes())?;
    let trajectories = document.field.iter().flat_map(|field| &field.trajectories);
    let found = Report {
        out: arguments.out.clone(),
        bytes: page.len(),
        files: paths,
        runs,
        trajectories: trajectories.map(|trajectory| trajectory.index).collect(),
        notes: document.notes,
    };
    if !arguments.json {
        found.notes.iter().for_each(|note| say(&format!("note: {note}")));
    }
    report::print_result(arguments.json, &found, || {
        format!("{} ({})\n", found.out.display(), report::bytes(found.bytes as u64))
    })
}

fn open(paths: &[PathBuf], arguments: &args::ViewPage) -> Result<Vec<PageSource>> {
    let mut files = Vec::new();
    for path in paths {
        let label = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = TrajectoryFile::open(path)?;
        let file = match files.first() {
            Some(PageSource { file: truth, .. }) => page::about(file, truth),
            None => file,
        };
        files.push(PageSource { label, file, of: None });
    }
    check_trajectories(&arguments.trajectory, files[0].file.len())?;
    Ok(files)
}

fn read_run(run: &Path, notes: &mut Vec<String>) -> Result<page::RunPart> {
    let part = page::read_run(run, notes)?;
    if part.history.is_empty() && part.metrics.is_empty() {
        bail!(CfoError::bad_data(
            format!("`{}` is not the folder of a run: it has no `metrics.jsonl`", run.display()),
            "check the path, or train a run with `cfo train RECIPE --out RUN`"
        ));
    }
    Ok(part)
}

fn title(arguments: &args::ViewPage) -> String {
    let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    arguments.title.clone().unwrap_or_else(|| {
        let names: Vec<String> = arguments.paths.iter().map(name).collect();
        names.join(", ")
    })
}
