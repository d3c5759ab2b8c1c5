//! The paper's experiments: its tables and figures, with ours beside them.
//!
//! `cfo reproduce` is this crate with the command's [`Console`].
//!
//! One file per target. Targets that train list their training runs; `experiment` carries them out on the shared trajectories of `data`.
//! Each target computes its rows and the `columns` of its table. Most rows are those of a `network`, averaged over seeds by `spread`.
//! `findings` lays out the report. The paper's numbers are in `published.toml`.

mod all;
mod backbones;
mod baselines;
mod columns;
mod console;
mod data;
mod exhibits;
mod experiment;
mod extrapolation;
mod figures;
mod findings;
mod ks;
mod latent;
mod network;
mod nfe;
mod noise;
mod options;
mod page;
mod published;
mod quickstart;
mod reverse;
mod runtime;
mod side_by_side;
mod sparse;
mod spline_choice;
mod spline_order;
mod spread;
mod system;
mod table1;
mod trained_run;
mod training;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cfo::CfoError;
use cfo::checkpoint::write_atomically;
use cfo::ranks;
use serde::Serialize;

use self::experiment::{NoReport, incomplete};
use cfo_view::plot::{self, Figure, Panels};
use cfo_view::text::json;

pub use console::Console;
pub use options::{ChoiceName, Editions, Experiment, Reproduce, Scale, TrainingShare};

/// An experiment of which a part failed: its report is written, and the command fails.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub struct Incomplete {
    /// The missing parts, with the reasons.
    pub problem: String,
    /// Advice.
    pub hint: String,
}

/// Runs an experiment, prints its results and writes its report.
///
/// # Errors
/// If an option does not fit the experiment, a training or a file fails, or a part of the report is missing.
pub fn run(arguments: &Reproduce) -> Result<()> {
    if matches!(arguments.target, Experiment::All) {
        let (record, missing) = all::run(arguments)?;
        if let Some(record) = record {
            conclude(arguments, Ok(record))?;
        }
        return missing.map_or(Ok(()), |missing| Err(missing.into()));
    }
    carry_out(arguments).map(|_| ())
}

/// Makes the report of one experiment. Returns whether there is one: a plan or a share has none.
fn carry_out(arguments: &Reproduce) -> Result<bool> {
    if matches!(arguments.target, Experiment::SplineOrder | Experiment::Quickstart) {
        refuse_training_options(arguments)?;
    }
    if !arguments.target.has_seeds() {
        refuse(arguments, [("--seeds", arguments.seeds.is_some_and(|seeds| seeds > 1))])?;
    }
    match arguments.target {
        Experiment::SplineOrder => conclude(arguments, spline_order::run(arguments)),
        Experiment::Quickstart => conclude(arguments, quickstart::run(arguments)),
        Experiment::SplineChoice => conclude(arguments, spline_choice::run(arguments)),
        Experiment::Table1 => conclude(arguments, table1::run(arguments)),
        Experiment::All => Ok(false),
        Experiment::Figures => conclude(arguments, figures::run(arguments)),
        Experiment::Noise => conclude(arguments, noise::run(arguments)),
        Experiment::Ks => conclude(arguments, ks::run(arguments)),
        Experiment::Nfe => conclude(arguments, nfe::run(arguments)),
        Experiment::Reverse => conclude(arguments, reverse::run(arguments)),
        Experiment::Extrapolation => conclude(arguments, extrapolation::run(arguments)),
        Experiment::Backbones => conclude(arguments, backbones::run(arguments)),
        Experiment::Runtime => conclude(arguments, runtime::run(arguments)),
        Experiment::Baselines => conclude(arguments, baselines::run(arguments)),
        Experiment::Latent => conclude(arguments, latent::run(arguments)),
        Experiment::Sparse => conclude(arguments, sparse::run(arguments)),
    }
}

/// Refuses options that these experiments do not use.
fn refuse_training_options(arguments: &Reproduce) -> Result<()> {
    refuse(
        arguments,
        [
            ("--system", !arguments.system.is_empty()),
            ("--recipe", arguments.recipe.is_some()),
            ("--dry-run", arguments.dry_run),
            ("--set", !arguments.set.is_empty()),
            ("--share", arguments.share.is_some()),
        ],
    )
}

fn refuse<const N: usize>(arguments: &Reproduce, given: [(&str, bool); N]) -> Result<()> {
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(CfoError::invalid(
            option,
            format!("not available for the experiment `{}`", arguments.target.name()),
        )
        .into()),
    }
}

fn folder(arguments: &Reproduce) -> PathBuf {
    arguments.out.clone().unwrap_or_else(|| Path::new("runs").join(arguments.target.name()))
}

/// Prints the results of a target and writes its report, unless only a share was trained. Fails if a part is missing.
fn conclude<R: Serialize>(arguments: &Reproduce, record: Made<R>) -> Result<bool> {
    let record = match record {
        Err(error) if error.is::<NoReport>() => {
            if !arguments.dry_run {
                arguments.console.say(
                    "this share is done; once all shares are, the same command without `--share` writes the report",
                );
            }
            return Ok(false);
        }
        record => record?,
    };
    let missing = (!record.failures.is_empty()).then(|| incomplete(&record.failures));
    if ranks::is_first() {
        publish(arguments, &record)?;
    }
    missing.map_or(Ok(true), |missing| Err(missing.into()))
}

fn publish<R: Serialize>(arguments: &Reproduce, record: &Record<R>) -> Result<()> {
    let folder = folder(arguments);
    let written =
        record.write(&folder).with_context(|| format!("writing the report into `{}`", folder.display()))?;
    match (arguments.part_of_all, arguments.json) {
        (true, _) => {}
        (false, true) => arguments.console.print_json(&json(&record.document)?)?,
        (false, false) => arguments.console.print(&record.text)?,
    }
    let names: Vec<String> = written.iter().map(|path| format!("`{}`", path.display())).collect();
    arguments.console.say(&format!("written: {}", names.join(", ")));
    Ok(())
}

/// The record of an experiment with rows `R`; the error is [`NoReport`] if only a plan or a share was asked for.
type Made<R> = Result<Record<R>>;

/// The results of a target, ready for the terminal and for the report's folder.
struct Record<R> {
    document: ReportDocument<R>,
    text: String,
    /// The report; it may show the figures in its folder by their names.
    markdown: String,
    figures: Vec<(String, Figure)>,
    /// Images, likewise.
    pictures: Vec<(String, Panels)>,
    /// Other files by name.
    files: Vec<(&'static str, String)>,
    /// Missing parts, with the reasons.
    failures: Vec<String>,
}

impl<R: Serialize> Record<R> {
    /// Writes `report.json`, `report.md` and the figures, each whole or not at all, and replaces existing ones.
    fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        fs_err::create_dir_all(folder)?;
        let mut written = vec![folder.join("report.json"), folder.join("report.md")];
        write_atomically(&written[0], json(&self.document)?.as_bytes())?;
        write_atomically(&written[1], self.markdown.as_bytes())?;
        for (stem, figure) in &self.figures {
            written.extend(plot::write(figure, folder, stem)?);
        }
        for (stem, picture) in &self.pictures {
            written.extend(plot::write(picture, folder, stem)?);
        }
        for (name, text) in &self.files {
            written.push(folder.join(name));
            write_atomically(&folder.join(name), text.as_bytes())?;
        }
        Ok(written)
    }
}

#[derive(Debug, Serialize)]
struct ReportDocument<R> {
    target: Experiment,
    scale: Scale,
    notes: Vec<String>,
    rows: Vec<R>,
}

impl<R> ReportDocument<R> {
    fn new(arguments: &Reproduce, rows: Vec<R>) -> Self {
        Self { target: arguments.target, scale: arguments.scale, notes: Vec::new(), rows }
    }
}
