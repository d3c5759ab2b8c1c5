//! Output of commands on stdout: text or one JSON document.

use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Serialize, Serializer};

use cfo_view::text::commands_terminal;
pub use cfo_view::text::{CellAlignment, TextTable, bytes, count, harmless, json, scientific};

use crate::job;

/// Prints `text` on stdout.
pub fn print(text: &str) -> io::Result<()> {
    write(&harmless(text))
}

/// Prints text with escape codes: our own pictures, never names from files.
pub fn print_picture(text: &str) -> io::Result<()> {
    write(text)
}

/// Serializes a path. Bytes that are not UTF-8 become `\u{fffd}`.
pub fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// Prints a result: with `--json` the document, else the text.
pub fn print_result(
    json: bool,
    document: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    if json { print_json(document) } else { Ok(print(&text())?) }
}

/// Prints `document` as the only thing on stdout.
pub fn print_json(document: &impl Serialize) -> anyhow::Result<()> {
    print_document(&json(document)?)
}

/// Prints a JSON document as the only thing on stdout.
pub fn print_document(json: &str) -> anyhow::Result<()> {
    PRINTED.store(true, Ordering::Relaxed);
    // JSON itself escapes everything below U+0020, and is ASCII outside of strings.
    let escape = |c: char| if commands_terminal(c) { format!("\\u{:04x}", c as u32) } else { c.to_string() };
    Ok(write(&json.chars().map(escape).collect::<String>())?)
}

fn write(text: &str) -> io::Result<()> {
    if job::is_quiet() {
        return Ok(());
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Whether a JSON document has been printed; there is at most one.
static PRINTED: AtomicBool = AtomicBool::new(false);

/// Whether [`print_json`] was called.
pub fn has_printed_json() -> bool {
    PRINTED.load(Ordering::Relaxed)
}
