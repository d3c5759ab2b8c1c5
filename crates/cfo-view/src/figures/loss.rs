//! The curves of a training run, from its `metrics.jsonl`.

use std::path::Path;

use anyhow::Result;
use serde::Deserialize;

use crate::plot::{Axis, Curve, Figure, Limits, LineStyle, Stack};

/// The keys of a log line that are used.
#[derive(Debug, Deserialize)]
struct Entry {
    step: u32,
    loss: f64,
    #[serde(default)]
    validation: Option<f64>,
}

/// The loss of a run and, below it, the validation error where it was measured; `None` without a log or with nothing in it.
pub fn loss_curves(run: &Path) -> Result<Option<Stack>> {
    let path = run.join("metrics.jsonl");
    if !path.exists() {
        return Ok(None);
    }
    let text = fs_err::read_to_string(&path)?;
    // The last line of a run that was killed may be incomplete.
    let entries: Vec<Entry> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let losses: Vec<(f64, f64)> = entries.iter().map(|at| (f64::from(at.step), at.loss)).collect();
    let validations: Vec<(f64, f64)> =
        entries.iter().filter_map(|at| Some((f64::from(at.step), at.validation?))).collect();
    let (Some(first), Some(last)) = (losses.first(), losses.last()) else { return Ok(None) };
    let limits = Limits { x: Some([first.0.min(0.0), last.0]), y: None };
    let figure = |title: &str, label: &str, points: Vec<(f64, f64)>, color: usize| Figure {
        title: title.into(),
        x: Axis::linear("step"),
        y: Axis::logarithmic(label),
        series: vec![Curve::new(label, points, color, LineStyle::Solid)],
        size: (640, 280),
    };
    let mut figures = vec![(figure("Training", "mean squared error", losses, 0), limits)];
    if validations.len() > 1 {
        figures.push((figure("", "validation error, relative L2", validations, 1), limits));
    }
    Ok(Some(Stack(figures)))
}
