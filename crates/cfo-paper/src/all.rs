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
use crate::options::{Choice, Options, Target};
use crate::page::{self, Section};
use crate::{Document, Record, carry_out, folder, refuse};
use cfo_view::text::{Alignment, Table, duration};

/// A table or figure of the paper in the JSON document.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// Its number in the paper.
    exhibit: &'static str,
    title: &'static str,
    target: Target,
    #[serde(flatten)]
    ending: Ending,
    /// The experiment's report, relative to the page.
    report: Option<String>,
    /// Its figures, relative to the page.
    figures: Vec<String>,
}

/// How an experiment ended.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(crate) enum Ending {
    /// Its report exists.
    Done {
        /// The time that it took, without earlier training runs.
        seconds: f64,
    },
    /// The experiment has no system that was requested.
    NotAsked,
    /// Its report exists, but lacks what failed.
    Incomplete { seconds: f64, problem: String },
    /// It failed, and why.
    Failed { problem: String },
}

impl Ending {
    /// The time that its report took, if there is one.
    pub fn seconds(&self) -> Option<f64> {
        match self {
            Self::Done { seconds } | Self::Incomplete { seconds, .. } => Some(*seconds),
            Self::NotAsked | Self::Failed { .. } => None,
        }
    }
}

/// What is stored beside a finished report.
#[derive(Debug, Serialize, Deserialize)]
struct Finished {
    /// The command that made it.
    command: String,
    version: String,
    seconds: f64,
}

/// The page, and what is missing in it.
type Made = (Option<Record<Document<Row>>>, Option<Incomplete>);

pub(crate) fn run(arguments: &Options) -> Result<Made> {
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
        .filter(|(_, ending)| matches!(ending, Ending::Failed { .. } | Ending::Incomplete { .. }))
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
        let ending = ending.cloned().unwrap_or(Ending::NotAsked);
        sections.push(Section::new(exhibit, ending, &out)?);
    }
    Ok((Some(record(arguments, &sections, &endings, &out)?), missing))
}

/// Refuses at once a system that no experiment has and a key that no recipe has.
fn check(arguments: &Options) -> Result<()> {
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
fn of_target(arguments: &Options, target: Target, out: &Path) -> Options {
    let mut own = Options {
        target,
        out: Some(out.join(target.name())),
        part_of_all: true,
        json: false,
        ..arguments.clone()
    };
    if matches!(target, Target::SplineOrder | Target::Reverse | Target::Runtime | Target::Figures) {
        own.seeds = None;
    }
    own
}

/// The arguments of the experiment that trains nothing: without the options of those that train.
fn without_training(own: &Options) -> Options {
    Options { recipe: None, dry_run: false, system: vec![], set: vec![], ..own.clone() }
}

/// Makes an experiment's report, unless this command made it before.
fn once(own: &Options) -> Result<Ending> {
    if own.dry_run {
        return if own.target == Target::SplineOrder { Ok(Ending::NotAsked) } else { attempt(own) };
    }
    if own.target == Target::SplineOrder {
        let asked = own.system.is_empty() || own.system.iter().any(|name| name == "lorenz");
        return if asked { unless_finished(&without_training(own)) } else { Ok(Ending::NotAsked) };
    }
    unless_finished(own)
}

fn unless_finished(own: &Options) -> Result<Ending> {
    let (name, place) = (own.target.name(), folder(own).join("finished.json"));
    if let Some(finished) = ranks::by_first(|| Ok::<_, anyhow::Error>(finished(&place, own)))? {
        own.console.say(&format!("{name}: finished before"));
        return Ok(Ending::Done { seconds: finished.seconds });
    }
    own.console.say(&format!("experiment: {name}"));
    let ending = attempt(own)?;
    if let (Ending::Done { seconds }, true) = (&ending, ranks::is_first()) {
        let seconds = *seconds;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let finished = Finished { command: command(own), version, seconds };
        write_atomically(&place, cfo_view::text::json(&finished)?.as_bytes())?;
    }
    Ok(ending)
}

/// Makes the report. A failure is noted on the page, but Ctrl-C ends the whole command.
fn attempt(own: &Options) -> Result<Ending> {
    let started = Instant::now();
    match carry_out(own) {
        Ok(false) => Ok(Ending::NotAsked),
        Ok(true) => Ok(Ending::Done { seconds: started.elapsed().as_secs_f64() }),
        Err(error) if error.is::<NotAsked>() => Ok(Ending::NotAsked),
        Err(error) if own.console.interrupt()?.load(Ordering::Relaxed) => Err(error),
        Err(error) if error.is::<Incomplete>() => {
            Ok(Ending::Incomplete { seconds: started.elapsed().as_secs_f64(), problem: error.to_string() })
        }
        Err(error) => {
            own.console.say(&format!("{} failed: {error:#}", own.target.name()));
            Ok(Ending::Failed { problem: format!("{error:#}") })
        }
    }
}

/// The record of a report, if this command and this version made it.
fn finished(place: &Path, own: &Options) -> Option<Finished> {
    let text = fs_err::read_to_string(place).ok()?;
    let finished: Finished = serde_json::from_str(&text).ok()?;
    let same = finished.command == command(own) && finished.version == env!("CARGO_PKG_VERSION");
    (same && place.with_file_name("report.md").exists()).then_some(finished)
}

fn record(
    arguments: &Options,
    sections: &[Section],
    endings: &[(Target, Ending)],
    out: &Path,
) -> Result<Record<Document<Row>>> {
    let rows = sections.iter().map(|section| Row {
        exhibit: section.exhibit.label,
        title: section.exhibit.title,
        target: section.exhibit.target,
        ending: section.ending.clone(),
        report: section.ending.seconds().map(|_| format!("{}/report.json", section.exhibit.target.name())),
        figures: section.figures.iter().map(|(_, path)| path.display().to_string()).collect(),
    });
    let document = Document::new(arguments, rows.collect());
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

/// The contents of the page, for the terminal.
fn text(sections: &[Section], out: &Path) -> String {
    use Alignment::{Left, Right};
    let mut table =
        Table::new([("exhibit", Left), ("what", Left), ("target", Left), ("figures", Right), ("", Left)]);
    for Section { exhibit, ending, figures, .. } in sections {
        let ending = match ending {
            Ending::Done { seconds } => format!("made in {}", duration(*seconds)),
            Ending::Incomplete { problem, .. } => format!("incomplete: {problem}"),
            Ending::NotAsked => "not asked for".into(),
            Ending::Failed { problem } => format!("failed: {problem}"),
        };
        let [label, title, target] = [exhibit.label.into(), exhibit.title.into(), exhibit.target.name()];
        table.push([label, title, target, figures.len().to_string(), ending]);
    }
    let page: PathBuf = out.join("report.html");
    format!("{}\nThe page: {}\n", table.text(), page.display())
}
