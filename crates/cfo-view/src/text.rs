//! Text: aligned tables, Markdown, JSON, numbers and durations, and names that are safe to print.

use serde::Serialize;

/// Rows under headings; numbers line up on the right, words on the left.
#[derive(Clone, Debug)]
pub struct TextTable {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug)]
struct Column {
    heading: String,
    alignment: CellAlignment,
}

/// The common edge of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellAlignment {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl TextTable {
    /// A table without rows.
    pub fn new<'a>(columns: impl IntoIterator<Item = (&'a str, CellAlignment)>) -> Self {
        let columns = columns
            .into_iter()
            .map(|(heading, alignment)| Column { heading: heading.to_owned(), alignment })
            .collect();
        Self { columns, rows: Vec::new() }
    }

    /// Appends a row with a cell for each column.
    pub fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        let row: Vec<String> = cells.into_iter().map(|cell| one_line(&cell)).collect();
        assert_eq!(row.len(), self.columns.len(), "a row has a cell for each column");
        self.rows.push(row);
    }

    /// Columns two spaces apart, for a terminal.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut lines = vec![self.line(&self.headings(), &widths, "  ")];
        lines.extend(self.rows.iter().map(|row| self.line(row, &widths, "  ")));
        lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// A Markdown table, aligned in its source too.
    pub fn markdown(&self) -> String {
        let widths: Vec<usize> = self.widths().iter().map(|&width| width.max(3)).collect();
        let rule: Vec<String> = self
            .columns
            .iter()
            .zip(&widths)
            .map(|(column, &width)| match column.alignment {
                CellAlignment::Left => "-".repeat(width),
                CellAlignment::Right => format!("{}:", "-".repeat(width - 1)),
            })
            .collect();
        let rows = [self.headings(), rule].into_iter().chain(self.rows.iter().cloned());
        rows.map(|row| format!("| {} |\n", self.line(&row, &widths, " | "))).collect()
    }

    fn headings(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.heading.clone()).collect()
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.columns.len())
            .map(|i| {
                let cells = self.rows.iter().map(|row| &row[i]);
                cells.chain([&self.columns[i].heading]).map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect()
    }

    fn line(&self, row: &[String], widths: &[usize], separator: &str) -> String {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .zip(&self.columns)
            .map(|((cell, &width), column)| match column.alignment {
                CellAlignment::Left => format!("{cell:<width$}"),
                CellAlignment::Right => format!("{cell:>width$}"),
            })
            .collect();
        cells.join(separator)
    }
}

/// Whether a terminal acts on a character instead of showing it: control characters, and those that change the text
/// direction. Names in files may contain any of them.
pub fn commands_terminal(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Text that is safe to print: a character that a terminal would act on is shown as its code.
pub fn harmless(text: &str) -> String {
    let show = |c: char| if commands_terminal(c) { c.escape_unicode().to_string() } else { c.to_string() };
    text.chars().map(show).collect()
}

/// [`harmless`] text on a single line.
fn one_line(text: &str) -> String {
    harmless(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// `document` as indented JSON with a newline at the end.
pub fn json(document: &impl Serialize) -> serde_json::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

/// A number with three significant digits as the paper prints them: `5.33e-4`.
pub fn scientific(value: f64) -> String {
    format!("{value:.2e}")
}

/// A readable duration: `12.3 s`, `4 min 05 s`, `40 h 53 min`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round().max(0.0) as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// A number with its noun, singular or plural.
pub fn count(number: usize, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{number} {many}") }
}

/// A number of bytes in a readable unit.
pub fn bytes(count: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new([("spline", CellAlignment::Left), ("error", CellAlignment::Right)]);
        table.push(["linear".into(), "2.5e-2".into()]);
        table.push(["quintic".into(), "12".into()]);
        table
    }

    #[test]
    fn text_columns_line_up() {
        assert_eq!(table().text(), "spline    error\nlinear   2.5e-2\nquintic      12\n");
    }

    #[test]
    fn markdown_says_how_columns_align() {
        let expected =
            "| spline  |  error |\n| ------- | -----: |\n| linear  | 2.5e-2 |\n| quintic |     12 |\n";
        assert_eq!(table().markdown(), expected);
    }

    #[test]
    fn what_terminals_obey_is_shown() {
        assert_eq!(harmless("a\tb\nü"), "a\tb\nü");
        assert_eq!(harmless("\u{1b}[31mred\u{9b}0m\r\u{202e}"), "\\u{1b}[31mred\\u{9b}0m\\u{d}\\u{202e}");
        let mut table = TextTable::new([("channel", CellAlignment::Left)]);
        table.push(["a\nb\u{7}".into()]);
        assert_eq!(table.text(), "channel\na\\nb\\u{7}\n");
    }

    #[test]
    fn times_choose_their_units() {
        let said = [0.04, 59.4, 59.7, 245.0, 3900.0, 147_180.0].map(duration);
        assert_eq!(said, ["0.0 s", "59.4 s", "1 min 00 s", "4 min 05 s", "1 h 05 min", "40 h 53 min"]);
    }

    #[test]
    fn bytes_choose_their_unit() {
        assert_eq!(bytes(17), "17 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
    }
}
