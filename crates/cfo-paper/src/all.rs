//! `all`: every table and figure of the paper on one page.
//!
//! Each experiment writes its own report into a folder of its name; the page is assembled from these. A finished experiment
//! is not repeated, and training runs are shared and continue where they stopped, so that the same command after a kill
//! does only what is missing.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Result;
use cfo::checkpoint::write_atomically;
use cfo::paper::{Edition, SYSTEMS, System};
use cfo::ranks;
use serde::{Deserialize, Serialize};

use crate::Incomplete;
use crate::exhibits::{self, EXHIBITS};
use crate::experiment::NotAsked;
use crate::findings::command;
use crate::options::{ChoiceName, Experiment, Reproduce};
use crate::page::{self, PageSection};
use crate::{Record, ReportDocument, carry_out, folder, refuse};
use cfo_view::text::{CellAlignment, TextTable, duration};

/// A table or figure of the paper in the JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct ExhibitRow {
    exhibit: &'static str,
    title: &'static str,
    target: Experiment,
    #[serde(flatten)]
    ending: ExperimentEnding,
    report: Option<String>,
    /// Its figures, relative to the page.
    figures: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum ExperimentEnding {
    /// Its report exists.
    Done {
        /// The time that it took, without earlier training runs.
        seconds: f64,
    },
    /// The experiment has no system that was requested.
    NotAsked,
    /// Its report exists, but lacks what failed.
    Incomplete { seconds: f64, problem: String },
    /// It failed, with the reason.
    Failed { problem: String },
}

impl ExperimentEnding {
    /// The time that its report took, if there is one.
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Self::Done { seconds } | Self::Incomplete { seconds, .. } => Some(*seconds),
            Self::NotAsked | Self::Failed { .. } => None,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Finished {
    command: String,
    version: String,
    seconds: f64,
}

/// Returns the page, and what is missing in it.
pub(crate) fn run(arguments: &Reproduce) -> Result<(Option<Record<ExhibitRow>>, Option<Incomplete>)> {
    refuse(
        arguments,
        [
            ("--share", arguments.share.is_some()),
            ("--json with --dry-run", arguments.json && arguments.dry_run),
        ],
    )?;
    check(arguments)?;
    let out = folder(arguments);
    let mut endings = Vec::new();
    for target in exhibits::targets() {
        endings.push((target, once(&of_target(arguments, target, &out))?));
    }
    if arguments.dry_run {
        return Ok((None, None));
    }
    let failed: Vec<String> = endings
        .iter()
        .filter(|(_, ending)| {
            matches!(ending, ExperimentEnding::Failed { .. } | ExperimentEnding::Incomplete { .. })
        })
        .map(|(target, _)| target.name())
        .collect();
    let missing = (!failed.is_empty()).then(|| Incomplete {
        problem: format!("these experiments failed or are incomplete: `{}`", failed.join("`, `")),
        hint: "repeat the command: it does only what is missing".into(),
    });
    // The page is made of files that rank 0 has written.
    if !ranks::is_first() {
        return Ok((None, missing));
    }
    let mut sections = Vec::new();
    for exhibit in &EXHIBITS {
        let ending = endings.iter().find(|(target, _)| *target == exhibit.target).map(|(_, ending)| ending);
        let ending = ending.cloned().unwrap_or(ExperimentEnding::NotAsked);
        sections.push(PageSection::new(exhibit, ending, &out)?);
    }
    Ok((Some(record(arguments, &sections, &endings, &out)?), missing))
}

/// Refuses at once a system that no experiment has and a key that no recipe has.
fn check(arguments: &Reproduce) -> Result<()> {
    for name in &arguments.system {
        System::find(name)?;
    }
    let changed = SYSTEMS.iter().map(|system| system.recipe(Edition::Paper).with(&arguments.set));
    let refused: Vec<_> = changed.filter_map(Result::err).collect();
    match refused.into_iter().nth(SYSTEMS.len() - 1) {
        Some(error) => Err(error.into()),
        None => Ok(()),
    }
}

/// Returns the arguments for one experiment, in a folder of its name; options that it does not have are left out.
fn of_target(arguments: &Reproduce, target: Experiment, out: &Path) -> Reproduce {
    let mut own = Reproduce {
        target,
        out: Some(out.join(target.name())),
        part_of_all: true,
        json: false,
        ..arguments.clone()
    };
    own.seeds = own.seeds.filter(|_| target.has_seeds());
    own
}

/// The arguments of the experiment that trains nothing: without the options of those that train.
fn without_training(own: &Reproduce) -> Reproduce {
    Reproduce { recipe: None, dry_run: false, system: vec![], set: vec![], ..own.clone() }
}

/// Makes an experiment's report, unless this command made it before.
fn once(own: &Reproduce) -> Result<ExperimentEnding> {
    if own.dry_run {
        return if own.target == Experiment::SplineOrder {
            Ok(ExperimentEnding::NotAsked)
        } else {
            attempt(own)
        };
    }
    if own.target == Experiment::SplineOrder {
        let asked = own.system.is_empty() || own.system.iter().any(|name| name == "lorenz");
        return if asked { unless_finished(&without_training(own)) } else { Ok(ExperimentEnding::NotAsked) };
    }
    unless_finished(own)
}

fn unless_finished(own: &Reproduce) -> Result<ExperimentEnding> {
    let (name, place) = (own.target.name(), folder(own).join("finished.json"));
    if let Some(finished) = ranks::by_first(|| Ok::<_, anyhow::Error>(finished(&place, own)))? {
        own.console.say(&format!("{name}: finished before"));
        return Ok(ExperimentEnding::Done { seconds: finished.seconds });
    }
    own.console.say(&format!("experiment: {name}"));
    let ending = attempt(own)?;
    if let (ExperimentEnding::Done { seconds }, true) = (&ending, ranks::is_first()) {
        let seconds = *seconds;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let finished = Finished { command: command(own), version, seconds };
        write_atomically(&place, cfo_view::text::json(&finished)?.as_bytes())?;
    }
    Ok(ending)
}

/// Makes the report. A failure is noted on the page, but Ctrl-C ends the whole command.
fn attempt(own: &Reproduce) -> Result<ExperimentEnding> {
    let started = Instant::now();
    match carry_out(own) {
        Ok(false) => Ok(ExperimentEnding::NotAsked),
        Ok(true) => Ok(ExperimentEnding::Done { seconds: started.elapsed().as_secs_f64() }),
        Err(error) if error.is::<NotAsked>() => Ok(ExperimentEnding::NotAsked),
        Err(error) if own.console.interrupt()?.load(Ordering::Relaxed) => Err(error),
        Err(error) if error.is::<Incomplete>() => Ok(ExperimentEnding::Incomplete {
            seconds: started.elapsed().as_secs_f64(),
            problem: error.to_string(),
        }),
        Err(error) => {
            own.console.say(&format!("{} failed: {error:#}", own.target.name()));
            Ok(ExperimentEnding::Failed { problem: format!("{error:#}") })
        }
    }
}

/// The record of a report, if this command and this version made it.
fn finished(place: &Path, own: &Reproduce) -> Option<Finished> {
    let text = fs_err::read_to_string(place).ok()?;
    let finished: Finished = serde_json::from_str(&text).ok()?;
    let same = finished.command == command(own) && finished.version == env!("CARGO_PKG_VERSION");
    (same && place.with_file_name("report.md").exists()).then_some(finished)
}

fn record(
    arguments: &Reproduce,
    sections: &[PageSection],
    endings: &[(Experiment, ExperimentEnding)],
    out: &Path,
) -> Result<Record<ExhibitRow>> {
    let rows = sections.iter().map(|section| ExhibitRow {
        exhibit: section.exhibit.label,
        title: section.exhibit.title,
        target: section.exhibit.target,
        ending: section.ending.clone(),
        report: section.ending.seconds().map(|_| format!("{}/report.json", section.exhibit.target.name())),
        figures: section.figures.iter().map(|(_, path)| path.display().to_string()).collect(),
    });
    let document = ReportDocument::new(arguments, rows.collect());
    let markdown = page::markdown(&command(arguments), sections, endings, out)?;
    let html = page::html(&markdown, out)?;
    let (figures, pictures) = (Vec::new(), Vec::new());
    Ok(Record {
        document,
        text: text(sections, out),
        markdown,
        figures,
        pictures,
        files: vec![("report.html", html)],
        failures: vec![],
    })
}

fn text(sections: &[PageSection], out: &Path) -> String {
    use CellAlignment::{Left, Right};
    let mut table =
        TextTable::new([("exhibit", Left), ("what", Left), ("target", Left), ("figures", Right), ("", Left)]);
    for PageSection { exhibit, ending, figures, .. } in sections {
        let ending = match ending {
            ExperimentEnding::Done { seconds } => format!("made in {}", duration(*seconds)),
            ExperimentEnding::Incomplete { problem, .. } => format!("incomplete: {problem}"),
            ExperimentEnding::NotAsked => "not asked for".into(),
            ExperimentEnding::Failed { problem } => format!("failed: {problem}"),
        };
        let [label, title, target] = [exhibit.label.into(), exhibit.title.into(), exhibit.target.name()];
        table.push([label, title, target, figures.len().to_string(), ending]);
    }
    let page: PathBuf = out.join("report.html");
    format!("{}\nThe page: {}\n", table.text(), page.display())
}
