//! The page of all experiments, from their reports: Markdown with separate figures, and HTML with embedded ones.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::all::ExperimentEnding;
use crate::exhibits::Exhibit;
use crate::findings::MARK;
use crate::options::{ChoiceName, Experiment};
use cfo_view::page::escaped;
use cfo_view::text::duration;

#[derive(Debug, Default)]
struct Report {
    /// Text without the title, the table and the figures.
    prose: String,
    /// The lines of its table; the first two are the heading.
    table: Vec<String>,
    rows: Vec<Value>,
    /// Caption and file of each figure.
    figures: Vec<(String, PathBuf)>,
}

impl Report {
    fn read(folder: &Path) -> Result<Self> {
        let text = fs_err::read_to_string(folder.join("report.md"))?;
        let document = fs_err::read_to_string(folder.join("report.json"))?;
        let document: Value = serde_json::from_str(&document)?;
        let rows = document["rows"].as_array().cloned().unwrap_or_default();
        let mut report = Self { rows, ..Self::default() };
        for line in text.lines() {
            match figure(line) {
                Some((caption, file)) => report.figures.push((caption.to_owned(), PathBuf::from(file))),
                None if line.starts_with('|') => report.table.push(line.to_owned()),
                None if line.starts_with("# ") => {}
                None => report.prose += &format!("{line}\n"),
            }
        }
        while report.prose.contains("\n\n\n") {
            report.prose = report.prose.replace("\n\n\n", "\n\n");
        }
        Ok(report)
    }
}

/// Caption and file of a line that is a figure.
fn figure(line: &str) -> Option<(&str, &str)> {
    line.strip_prefix("![")?.strip_suffix(')')?.split_once("](")
}

/// A table or figure of the paper, repeated.
#[derive(Debug)]
pub(crate) struct PageSection {
    pub exhibit: &'static Exhibit,
    pub ending: ExperimentEnding,
    table: Vec<String>,
    /// Notes on rows of its table.
    notes: Vec<String>,
    /// Caption and place of each figure, relative to the page.
    pub figures: Vec<(String, PathBuf)>,
}

impl PageSection {
    /// The part of an experiment's report that repeats it.
    pub fn new(exhibit: &'static Exhibit, ending: ExperimentEnding, out: &Path) -> Result<Self> {
        let mut section = Self { exhibit, ending, table: vec![], notes: vec![], figures: vec![] };
        if section.ending.seconds().is_none() {
            return Ok(section);
        }
        let name = exhibit.target.name();
        let report =
            Report::read(&out.join(&name)).with_context(|| format!("reading the report of `{name}`"))?;
        let (heading, lines) = report.table.split_at(report.table.len().min(2));
        let chosen = lines.iter().zip(&report.rows).filter(|(_, row)| (exhibit.has_row)(row));
        section.table = heading.iter().chain(chosen.map(|(line, _)| line)).cloned().collect();
        let marked = |note: &str| {
            let system = note.strip_prefix(MARK).and_then(|rest| rest.trim_start().split(':').next());
            system.is_some_and(|system| {
                report.rows.iter().any(|row| row["system"] == system && (exhibit.has_row)(row))
            })
        };
        section.notes = report.prose.lines().filter(|line| marked(line)).map(str::to_owned).collect();
        let begins = |file: &Path| {
            let stem = file.to_string_lossy();
            exhibit.figures.iter().any(|start| stem.starts_with(start))
        };
        let own = report.figures.into_iter().filter(|(_, file)| begins(file));
        section.figures = own.map(|(caption, file)| (caption, Path::new(&name).join(file))).collect();
        Ok(section)
    }

    fn markdown(&self) -> String {
        let Exhibit { label, title, target, .. } = self.exhibit;
        let mut text = format!("## {label}: {title}\n\n");
        match &self.ending {
            ExperimentEnding::Done { .. } => {}
            ExperimentEnding::Incomplete { problem, .. } => text += &format!("Incomplete: {problem}\n\n"),
            ExperimentEnding::NotAsked => return text + "Not asked for.\n\n",
            ExperimentEnding::Failed { problem } => return text + &format!("Failed: {problem}\n\n"),
        }
        if self.table.len() > 2 {
            text += &format!("{}\n\n", self.table.join("\n"));
        }
        text.extend(self.notes.iter().map(|note| format!("{note}\n\n")));
        for (caption, file) in &self.figures {
            text += &format!("![{caption}]({})\n\n", file.display());
        }
        if self.table.len() <= 2 && self.figures.is_empty() {
            text += "The report has no part of it.\n\n";
        }
        text + &format!("`cfo reproduce {}`\n\n", target.name())
    }
}

pub(crate) fn markdown(
    command: &str,
    sections: &[PageSection],
    endings: &[(Experiment, ExperimentEnding)],
    out: &Path,
) -> Result<String> {
    let mut text = format!(
        "# The paper's tables and figures, repeated\n\n\
         The tables and figures are in the paper's order. Columns `paper` and numbers in brackets are the paper's. The settings of the experiments are at the end. Made with cfo {} and the command\n\n    {command}\n\n",
        env!("CARGO_PKG_VERSION")
    );
    text.extend(sections.iter().map(PageSection::markdown));
    let mut said = HashSet::new();
    for (target, ending) in endings {
        if let Some(seconds) = ending.seconds() {
            let prose = Report::read(&out.join(target.name()))?.prose;
            let (name, time) = (target.name(), duration(seconds));
            text += &format!("## Settings: {name}\n\nMade in {time}.\n\n{}\n\n", unsaid(&prose, &mut said));
        }
    }
    Ok(text)
}

/// The lines that no earlier report has: many experiments share the settings of their systems.
fn unsaid(prose: &str, said: &mut HashSet<String>) -> String {
    let new = |line: &&str| line.is_empty() || said.insert((*line).to_owned());
    let lines: Vec<&str> = prose.lines().filter(new).collect();
    let mut text = lines.join("\n");
    while text.contains("\n\n\n") {
        text = text.replace("\n\n\n", "\n\n");
    }
    text.trim_matches('\n').to_owned()
}

const STYLE: &str = include_str!("page.css");

/// Markdown of our reports as one self-contained HTML file with embedded figures.
pub(crate) fn html(markdown: &str, folder: &Path) -> Result<String> {
    let mut body = String::new();
    let mut contents = String::new();
    for block in blocks(markdown) {
        let first = block[0];
        if let Some(heading) = first.strip_prefix("# ") {
            body += &format!("<h1>{}</h1>\n", inline(heading));
        } else if let Some(heading) = first.strip_prefix("## ") {
            let id = identifier(heading);
            contents += &format!("<a href=\"#{id}\">{}</a>\n", inline(heading));
            body += &format!("<h2 id=\"{id}\">{}</h2>\n", inline(heading));
        } else if first.starts_with('|') {
            body += &table(&block);
        } else if let Some((caption, file)) = figure(first) {
            let bytes = fs_err::read(folder.join(file))?;
            let (caption, data) = (inline(caption), STANDARD.encode(bytes));
            body +=
                &format!("<figure><img alt=\"{caption}\" src=\"data:image/png;base64,{data}\"></figure>\n");
        } else if first.starts_with("    ") {
            let lines: Vec<String> = block.iter().map(|line| escaped(line.trim_start())).collect();
            body += &format!("<pre>{}</pre>\n", lines.join("\n"));
        } else if first.starts_with("- ") {
            let items =
                block.iter().map(|line| format!("<li>{}</li>", inline(line.trim_start_matches("- "))));
            body += &format!("<ul>{}</ul>\n", items.collect::<String>());
        } else {
            body += &format!("<p>{}</p>\n", inline(&block.join(" ")));
        }
    }
    let after_title = body.find("</h1>").map_or(0, |at| at + "</h1>".len());
    body.insert_str(after_title, &format!("\n<nav>\n{contents}</nav>\n"));
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>The paper's tables and figures, repeated</title>\n<style>{STYLE}</style>\n<body>\n{body}</body>\n</html>\n"
    ))
}

/// Lines between empty lines; a heading ends its block.
fn blocks(markdown: &str) -> Vec<Vec<&str>> {
    let mut blocks = vec![Vec::new()];
    for line in markdown.lines() {
        let ends = line.is_empty() || line.starts_with('#');
        if ends {
            blocks.push(Vec::new());
        }
        if let (Some(block), false) = (blocks.last_mut(), line.is_empty()) {
            block.push(line);
        }
    }
    blocks.retain(|block: &Vec<&str>| !block.is_empty());
    blocks
}

fn table(lines: &[&str]) -> String {
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    let right: Vec<bool> = lines
        .get(1)
        .map(|rule| cells(rule).iter().map(|cell| cell.ends_with(':')).collect())
        .unwrap_or_default();
    let row = |line: &str, tag: &str| {
        let of_row = cells(line);
        let each = of_row.iter().enumerate().map(|(i, cell)| {
            let class = if right.get(i) == Some(&true) { " class=\"right\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", inline(cell))
        });
        format!("<tr>{}</tr>\n", each.collect::<String>())
    };
    let head = lines.first().map(|line| row(line, "th")).unwrap_or_default();
    let rest: String = lines.iter().skip(2).map(|line| row(line, "td")).collect();
    format!("<div class=\"wide\"><table>\n<thead>{head}</thead>\n<tbody>\n{rest}</tbody></table></div>\n")
}

/// Text with code between backticks.
fn inline(text: &str) -> String {
    let parts = escaped(text);
    let parts = parts.split('`').enumerate();
    parts.map(|(i, part)| if i % 2 == 1 { format!("<code>{part}</code>") } else { part.to_owned() }).collect()
}

/// The anchor of a heading, for links.
fn identifier(heading: &str) -> String {
    let words = heading.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_reports_share_is_said_once() {
        let mut said = HashSet::new();
        assert_eq!(unsaid("one\n\n- a\n- b\n\ntwo", &mut said), "one\n\n- a\n- b\n\ntwo");
        assert_eq!(unsaid("other\n\n- b\n- c\n\ntwo", &mut said), "other\n\n- c");
    }

    #[test]
    fn our_markdown_becomes_a_page_without_references() {
        let folder = std::env::temp_dir().join(format!("cfo-page-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("a.png"), b"\x89PNG").unwrap();
        let markdown = "# T\n\nOne `a<b`\ntwo.\n## Next: 1\n\n| x | y |\n| - | -: |\n| a & b | 2 |\n\n![C](a.png)\n\n- one\n- two\n\n    cfo x\n";
        let page = html(markdown, &folder).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        for part in [
            "<h1>T</h1>\n<nav>\n<a href=\"#next-1\">Next: 1</a>",
            "<p>One <code>a&lt;b</code> two.</p>",
            "<th class=\"right\">y</th>",
            "<tr><td>a &amp; b</td><td class=\"right\">2</td></tr>",
            "src=\"data:image/png;base64,iVBORw==\"",
            "<ul><li>one</li><li>two</li></ul>",
            "<pre>cfo x</pre>",
        ] {
            assert!(page.contains(part), "`{part}` is missing in\n{page}");
        }
        assert!(!page.contains("http") && !page.contains("a.png"));
    }
}
