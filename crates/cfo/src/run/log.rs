//! The log of a run: `metrics.jsonl` with one line per report, and TensorBoard events.

use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fs_err as fs;

use super::StepReport;
use crate::error::{CfoError, Result};
use crate::run::checkpoint::write_atomically;

const LINES: &str = "metrics.jsonl";

/// The two files of the log; none if nothing is written.
pub(crate) struct Log {
    files: Option<(fs::File, fs::File)>,
}

impl Log {
    /// Opens the files of a run that continues from `step`. Later lines of an earlier attempt are dropped.
    pub(crate) fn open(folder: Option<&Path>, step: u32) -> Result<Self> {
        let Some(folder) = folder else { return Ok(Self { files: None }) };
        fs::create_dir_all(folder)?;
        let path = folder.join(LINES);
        if path.exists() {
            write_atomically(&path, kept_lines(&fs::read_to_string(&path)?, step).as_bytes())?;
        }
        let lines = fs::OpenOptions::new().create(true).append(true).open(&path)?;
        let seconds = now() as u64;
        let mut events = fs::File::create(folder.join(format!("events.out.tfevents.{seconds}.cfo.{step}")))?;
        events.write_all(&record(&event(now(), 0, &field_bytes(3, b"brain.Event:2"))))?;
        Ok(Self { files: Some((lines, events)) })
    }

    /// Removes the reports of a failed attempt from the log, and adds a notice. Lines before the first step are kept.
    pub(crate) fn restart(folder: Option<&Path>, notice: &str, learning_rate: f64) -> Result<()> {
        let Some(folder) = folder else { return Ok(()) };
        for entry in fs::read_dir(folder)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with("events.out.tfevents.") {
                fs::remove_file(entry.path())?;
            }
        }
        let path = folder.join(LINES);
        let before = if path.exists() { kept_lines(&fs::read_to_string(&path)?, 0) } else { String::new() };
        let line = serde_json::json!({ "step": 0, "notice": notice, "learning_rate": learning_rate });
        write_atomically(&path, format!("{before}{line}\n").as_bytes())
    }

    pub(crate) fn write(&mut self, report: &StepReport) -> Result<()> {
        let Some((lines, events)) = &mut self.files else { return Ok(()) };
        lines.write_all(line(report)?.as_bytes())?;
        let mut values = vec![
            ("loss", report.loss),
            ("learning_rate", report.learning_rate),
            ("steps_per_second", report.steps_per_second),
        ];
        values.extend(report.validation.map(|error| ("validation/relative_l2", error)));
        values.extend(report.miss.map(|miss| ("refine/miss", miss)));
        let summary: Vec<u8> =
            values.iter().flat_map(|(tag, value)| summary_value(tag, *value as f32)).collect();
        events.write_all(&record(&event(now(), u64::from(report.step), &field_bytes(5, &summary))))?;
        Ok(events.flush()?)
    }
}

/// Returns the reports in the log of a folder; none if there is no log. Notices and incomplete lines are skipped.
pub(super) fn read(folder: &Path) -> Result<Vec<StepReport>> {
    let path = folder.join(LINES);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(path)?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

pub(super) fn write(folder: &Path, history: &[StepReport]) -> Result<()> {
    let lines = history.iter().map(line).collect::<Result<String>>()?;
    write_atomically(&folder.join(LINES), lines.as_bytes())
}

fn line(report: &StepReport) -> Result<String> {
    let line = serde_json::to_string(report).map_err(|error| CfoError::Io(error.into()))?;
    Ok(line + "\n")
}

/// Returns the lines up to a step. An incomplete last line is dropped.
fn kept_lines(text: &str, step: u32) -> String {
    let keep = |line: &&str| {
        let value: Option<serde_json::Value> = serde_json::from_str(line).ok();
        value.and_then(|value| value.get("step")?.as_u64()).is_some_and(|at| at <= u64::from(step))
    };
    text.lines().filter(keep).flat_map(|line| [line, "\n"]).collect()
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// Encodes an `Event`: wall time, step, and one more encoded field.
fn event(time: f64, step: u64, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x09];
    bytes.extend(time.to_le_bytes());
    bytes.push(0x10);
    bytes.extend(varint(step));
    bytes.extend(rest);
    bytes
}

/// Encodes a `Summary.Value` with a tag and a single number, as a field of `Summary`.
fn summary_value(tag: &str, value: f32) -> Vec<u8> {
    let mut bytes = field_bytes(1, tag.as_bytes());
    bytes.push(0x15);
    bytes.extend(value.to_le_bytes());
    field_bytes(1, &bytes)
}

/// Encodes a length-delimited field.
fn field_bytes(number: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    bytes.extend(varint(content.len() as u64));
    bytes.extend(content);
    bytes
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// Encodes a record of the event file: length, its checksum, content, its checksum.
fn record(content: &[u8]) -> Vec<u8> {
    let length = (content.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(content);
    bytes.extend(masked(content).to_le_bytes());
    bytes
}

fn masked(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Returns the CRC-32C (Castagnoli) of short records, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut remainder = u32::MAX;
    for &byte in bytes {
        remainder ^= u32::from(byte);
        for _ in 0..8 {
            remainder = remainder >> 1 ^ if remainder & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !remainder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_gives_the_standard_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn lines_after_the_step_and_torn_lines_are_dropped() {
        let text = "{\"step\":1,\"loss\":2}\n{\"step\":2,\"loss\":1}\n{\"step\":3,\"lo";
        assert_eq!(kept_lines(text, 1), "{\"step\":1,\"loss\":2}\n");
        assert_eq!(kept_lines(text, 9).lines().count(), 2);
    }
}
