//! The columns of a table: a heading, and how each cell follows from its row.

use cfo_view::text::{CellAlignment, TextTable, scientific};

pub(crate) struct TableColumn<R> {
    heading: &'static str,
    alignment: CellAlignment,
    cell: fn(&R) -> String,
}

pub(crate) fn words<R>(heading: &'static str, cell: fn(&R) -> String) -> TableColumn<R> {
    TableColumn { heading, alignment: CellAlignment::Left, cell }
}

/// A column of numbers, aligned on the right.
pub(crate) fn number<R>(heading: &'static str, cell: fn(&R) -> String) -> TableColumn<R> {
    TableColumn { heading, alignment: CellAlignment::Right, cell }
}

pub(crate) fn table<R>(columns: &[TableColumn<R>], rows: &[R]) -> TextTable {
    let mut table = TextTable::new(columns.iter().map(|column| (column.heading, column.alignment)));
    for row in rows {
        table.push(columns.iter().map(|column| (column.cell)(row)));
    }
    table
}

/// A number, or a dash where there is none.
pub(crate) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), scientific)
}

/// A number as `shown`, or `diverged` where there is none.
pub(crate) fn diverged_or(value: Option<f64>, shown: fn(f64) -> String) -> String {
    value.map_or_else(|| "diverged".into(), shown)
}

pub(crate) fn counted(value: Option<usize>) -> String {
    value.map_or_else(|| "-".into(), |count| count.to_string())
}
