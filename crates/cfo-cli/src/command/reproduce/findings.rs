//! A report about trained networks: table, verdict and figures, with how they came about and the command that repeats it.

use serde::Serialize;

use super::system::System;
use super::{Document, Record};
use crate::args::{self, Scale};
use crate::plot::Figure;
use crate::report::Table;

/// What an experiment found, before it is laid out.
pub(super) struct Findings<R> {
    pub title: &'static str,
    /// What the columns mean.
    pub about: String,
    pub rows: Vec<R>,
    pub table: Table,
    /// What follows from the table, in lines.
    pub verdict: String,
    /// Figures by the stem of their file names.
    pub figures: Vec<(String, Figure)>,
}

impl<R: Serialize> Findings<R> {
    /// The report for the terminal and for the folder.
    pub fn record(self, arguments: &args::Reproduce, systems: &[&System]) -> Record<Document<R>> {
        let setting = setting(arguments, systems);
        let shown: String = self
            .figures
            .iter()
            .map(|(stem, figure)| format!("![{}]({stem}.png)\n\n", figure.title))
            .collect();
        let verdict = if self.verdict.is_empty() { String::new() } else { format!("{}\n", self.verdict) };
        let markdown = format!(
            "# {}\n\n{}\n\n{setting}\n{}\n{}{shown}    {}\n",
            self.title,
            self.about,
            self.table.markdown(),
            verdict.replace('\n', "\n\n"),
            command(arguments)
        );
        let text = format!("{}\n\n{setting}\n{}\n{}", self.about, self.table.text(), self.verdict);
        let document = Document { target: arguments.target.name(), scale: arguments.scale, rows: self.rows };
        Record { document, text, markdown, figures: self.figures }
    }
}

/// What a reader must know of how the figures came about: reductions of `smoke`, overrides, the seed.
fn setting(arguments: &args::Reproduce, systems: &[&System]) -> String {
    let mut text = match arguments.scale {
        Scale::Smoke => {
            let reductions: Vec<String> =
                systems.iter().map(|system| format!("- {}: {}.", system.label, system.reduction)).collect();
            format!(
                "`smoke` is a reduced version, made to run in minutes; its figures do not repeat the paper's. Reduced are:\n\n{}\n",
                reductions.join("\n")
            )
        }
        Scale::Paper => "The paper's data, networks and budget (`recipes/`), values normalised.\n".into(),
    };
    if !arguments.set.is_empty() {
        text += &format!("\nChanged by hand in every recipe: `{}`.\n", arguments.set.join("`, `"));
    }
    text + &format!("\nOne seed ({}); weights of the lowest validation error.\n", arguments.seed)
}

/// The command that repeats a report.
fn command(arguments: &args::Reproduce) -> String {
    let mut words =
        vec![format!("cfo reproduce {} --scale {}", arguments.target.name(), arguments.scale.name())];
    words.extend(arguments.system.iter().map(|system| format!("--system {system}")));
    words.extend(arguments.set.iter().map(|set| format!("--set '{set}'")));
    words.push(format!("--device {} --seed {}", arguments.device, arguments.seed));
    words.join(" ")
}
