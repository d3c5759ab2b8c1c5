//! `cfo reproduce`: the paper's tables and figures, ours beside the paper's.
//!
//! One file per target. Each computes its rows, and `Record` prints and files them in the same way.

mod quickstart;
mod spline_order;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use crate::args::{self, Scale, Target};
use crate::diagnostics::say;
use crate::plot::{self, Figure};
use crate::report;

pub fn run(arguments: &args::Reproduce) -> Result<()> {
    match arguments.target {
        Target::SplineOrder => conclude(arguments, &spline_order::run(arguments)?),
        Target::Quickstart => conclude(arguments, &quickstart::run(arguments)?),
    }
}

/// Prints and files what a target found.
fn conclude<D: Serialize>(arguments: &args::Reproduce, record: &Record<D>) -> Result<()> {
    let folder = arguments.out.clone().unwrap_or_else(|| Path::new("runs").join(arguments.target.name()));
    let written =
        record.write(&folder).with_context(|| format!("writing the report into `{}`", folder.display()))?;
    if arguments.json {
        report::print_json(&record.document)?;
    } else {
        report::print(&record.text)?;
    }
    let names: Vec<String> = written.iter().map(|path| format!("`{}`", path.display())).collect();
    say(&format!("written: {}", names.join(", ")));
    Ok(())
}

/// What a target found, ready for the terminal and for the report's folder.
struct Record<D> {
    document: D,
    /// For the terminal.
    text: String,
    /// The report; figures stand beside it and may be shown by their names.
    markdown: String,
    /// Figures by the stem of their file names.
    figures: Vec<(&'static str, Figure)>,
}

impl<D: Serialize> Record<D> {
    /// Writes `report.json`, `report.md` and the figures; reports that are there already are replaced.
    fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        fs_err::create_dir_all(folder)?;
        let mut written = vec![folder.join("report.json"), folder.join("report.md")];
        fs_err::write(&written[0], report::json(&self.document)?)?;
        fs_err::write(&written[1], &self.markdown)?;
        for (stem, figure) in &self.figures {
            written.extend(plot::write(figure, folder, stem)?);
        }
        Ok(written)
    }
}

/// What every target's JSON document has.
#[derive(Debug, Serialize)]
struct Document<R> {
    target: &'static str,
    scale: Scale,
    rows: Vec<R>,
}
