//! The curves of a training run, from its log.

use anyhow::Result;
use cfo::Run;

use crate::plot::{Axis, Curve, Figure, Limits, LineStyle, Stack};

/// The loss of a run and, below it, the validation error where it was measured; `None` without a log or with nothing in it.
pub fn loss_curves(run: &Run) -> Result<Option<Stack>> {
    let reports = run.reports()?;
    let losses: Vec<(f64, f64)> = reports.iter().map(|at| (f64::from(at.step), at.loss)).collect();
    let validations: Vec<(f64, f64)> =
        reports.iter().filter_map(|at| Some((f64::from(at.step), at.validation?))).collect();
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
