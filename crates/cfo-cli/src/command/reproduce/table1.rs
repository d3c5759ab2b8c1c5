//! `table1`: rollout errors on the four systems, CFO on 100, 50 and 25 % of the times beside next-step prediction on all.
//!
//! The baseline is tried with every network that the paper tried, in the paper's form (the network gives the next state)
//! and in a stronger one (it gives the change), and its best is marked.

use anyhow::Result;
use cfo::numerics::{Path, Spline};
use serde::Serialize;

use super::experiment::{Laboratory, Training};
use super::findings::Findings;
use super::system::{Backbone, System};
use super::{Document, Record};
use crate::args::{self, Scale};
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

const NAMES: [&str; 4] = ["lorenz", "burgers", "diffusion-reaction", "shallow-water"];
const KEEP_RATES: [f64; 3] = [1.0, 0.5, 0.25];
const SPLINES: [&str; 2] = ["linear", "quintic"];

/// The paper's Table 1: for each system, linear then quintic, at the keep rates in order.
const PAPER: [[[f64; 3]; 2]; 4] = [
    [[6.42e-2, 7.85e-2, 9.39e-2], [4.53e-2, 4.75e-2, 6.82e-2]],
    [[5.75e-3, 8.91e-3, 1.04e-2], [5.89e-3, 6.97e-3, 7.09e-3]],
    [[4.35e-2, 6.88e-2, 7.25e-2], [4.37e-2, 6.19e-2, 5.32e-2]],
    [[5.93e-3, 7.64e-3, 1.69e-2], [4.56e-3, 6.57e-3, 1.55e-2]],
];

/// The paper's autoregressive networks (next state), by system and kind.
const PAPER_BASELINE: [(&str, &str, f64); 8] = [
    ("lorenz", "mlp", 9.04e-2),
    ("burgers", "mlp", 3.34e-2),
    ("burgers", "unet", 2.56),
    ("burgers", "fno", 1.16),
    ("diffusion-reaction", "unet", 4.23e-1),
    ("diffusion-reaction", "dit", 9.21e-1),
    ("shallow-water", "unet", 3.16e-1),
    ("shallow-water", "dit", 9.04e-2),
];

/// What the paper's table says of CFO on a system, with a spline, at a keep rate.
pub(super) fn paper(system: &str, spline: &str, keep_rate: f64) -> Option<f64> {
    let at = NAMES.iter().position(|&name| name == system)?;
    let spline = SPLINES.iter().position(|&name| name == spline)?;
    let rate = KEEP_RATES.iter().position(|&rate| rate == keep_rate)?;
    Some(PAPER[at][spline][rate])
}

/// One figure of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    method: &'static str,
    operator: &'static str,
    spline: Option<&'static str>,
    /// `next-state` or `change`, for the baseline.
    prediction: Option<&'static str>,
    keep_rate: f64,
    /// Mean over the test trajectories; absent if a rollout diverged.
    relative_l2: Option<f64>,
    std: Option<f64>,
    final_time: Option<f64>,
    /// The best of the baseline's rows of this system.
    best: Option<bool>,
    paper: Option<f64>,
    parameters: usize,
    steps: u32,
    seconds: f64,
}

/// The paper's path: three-point stencils.
fn path(spline: &str) -> Path {
    Path { spline: if spline == "linear" { Spline::Linear } else { Spline::Quintic }, stencil: 3 }
}

/// A cell before it is measured.
struct Case {
    row: Row,
    training: Training,
}

fn cases(system: &'static System, scale: Scale) -> Vec<Case> {
    let empty = Row {
        system: system.name,
        method: "cfo",
        operator: system.backbones[0].kind,
        spline: None,
        prediction: None,
        keep_rate: 1.0,
        relative_l2: None,
        std: None,
        final_time: None,
        best: None,
        paper: None,
        parameters: 0,
        steps: 0,
        seconds: 0.0,
    };
    let mut cases = Vec::new();
    for backbone in baselines(system, scale) {
        for (prediction, residual) in [("next-state", false), ("change", true)] {
            let paper = PAPER_BASELINE
                .iter()
                .find(|(name, kind, _)| !residual && *name == system.name && *kind == backbone.kind)
                .map(|(_, _, error)| *error);
            let training = Training::baseline(system, backbone, residual, scale);
            let row = Row {
                method: "autoregressive",
                operator: backbone.kind,
                prediction: Some(prediction),
                paper,
                ..empty.clone()
            };
            cases.push(Case { row, training });
        }
    }
    for spline in SPLINES {
        for keep_rate in KEEP_RATES {
            let training = Training::flow(system, path(spline), keep_rate);
            let row = Row {
                spline: Some(spline),
                keep_rate,
                paper: paper(system.name, spline, keep_rate),
                ..empty.clone()
            };
            cases.push(Case { row, training });
        }
    }
    cases
}

/// All networks that the paper tried; for `smoke` the two that matter: CFO's own and, where it differs, the paper's best.
fn baselines(system: &'static System, scale: Scale) -> Vec<&'static Backbone> {
    let chosen = |backbone: &&Backbone| {
        scale == Scale::Paper
            || backbone.kind == system.baseline().kind
            || backbone.kind == system.backbones[0].kind
    };
    system.backbones.iter().filter(chosen).collect()
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let systems = laboratory.systems(&NAMES)?;
    let cases: Vec<Case> = systems.iter().flat_map(|system| cases(system, arguments.scale)).collect();
    let trainings: Vec<Training> = cases.iter().map(|case| case.training.clone()).collect();
    let (mut rows, mut curves, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    let complete = laboratory.each(&trainings, |position, mut outcome| {
        let mut row = cases[position].row.clone();
        if let Some(report) = outcome.evaluate()? {
            row.relative_l2 = Some(report.relative_l2.mean);
            row.std = Some(report.relative_l2.std);
            row.final_time = Some(report.relative_l2.final_time);
            let points = report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
            curves.push((rows.len(), points));
        }
        row.parameters = outcome.trained.model.parameters()?;
        row.steps = outcome.recipe().train.steps;
        row.seconds = outcome.seconds;
        losses.push((rows.len(), outcome.losses));
        rows.push(row);
        Ok(())
    })?;
    if !complete {
        return Ok(None);
    }
    mark_best(&mut rows);
    let mut figures = Vec::new();
    for system in &systems {
        figures.push(error_figure(system, &rows, &curves));
        figures.push(loss_figure(system, &rows, &losses));
    }
    let findings = Findings {
        title: "Table 1: rollout errors",
        about: "Relative L2 error of rollouts over all snapshots from the first, mean and deviation over the test trajectories. The \
                autoregressive network sees every snapshot and predicts the next state, as the paper's does, or the change; * marks its best."
            .into(),
        table: table(&rows),
        verdict: systems.iter().map(|system| verdict(system, &rows) + "\n").collect(),
        figures,
        rows,
    };
    Ok(Some(findings.record(arguments, &systems)))
}

/// Marks the baseline's best row of each system.
fn mark_best(rows: &mut [Row]) {
    let error = |row: &Row| row.relative_l2.unwrap_or(f64::INFINITY);
    for i in 0..rows.len() {
        if rows[i].method == "autoregressive" {
            let rivals =
                rows.iter().filter(|row| row.system == rows[i].system && row.method == "autoregressive");
            let least = rivals.map(error).fold(f64::INFINITY, f64::min);
            rows[i].best = Some(error(&rows[i]) <= least && least.is_finite());
        }
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("method", Left),
        ("times", Right),
        ("relative L2", Right),
        ("±", Right),
        ("at the end", Right),
        ("paper", Right),
        ("training", Right),
    ]);
    let number = |value: Option<f64>, missing: &str| value.map_or_else(|| missing.to_owned(), scientific);
    for row in rows {
        let star = if row.best == Some(true) { " *" } else { "" };
        table.push([
            row.system.to_owned(),
            format!("{}{star}", label(row)),
            format!("{:.0} %", 100.0 * row.keep_rate),
            number(row.relative_l2, "diverged"),
            number(row.std, "-"),
            number(row.final_time, "-"),
            number(row.paper, "-"),
            format!("{:.0} s", row.seconds),
        ]);
    }
    table
}

fn label(row: &Row) -> String {
    match (row.spline, row.prediction) {
        (Some(spline), _) => format!("CFO, {spline}"),
        (None, Some("change")) => format!("autoregressive {}, change", row.operator),
        (None, _) => format!("autoregressive {}, next state", row.operator),
    }
}

/// Quintic CFO on a quarter of the times against the baseline on all.
fn verdict(system: &System, rows: &[Row]) -> String {
    let of_system = || rows.iter().filter(|row| row.system == system.name);
    let sparse = of_system().find(|row| row.spline == Some("quintic") && row.keep_rate == 0.25);
    let Some(error) = sparse.and_then(|row| row.relative_l2) else {
        return format!("{}: quintic CFO on 25 % of the times diverged.", system.label);
    };
    let least = |prediction: &str| {
        of_system()
            .filter(|row| row.prediction == Some(prediction))
            .filter_map(|row| row.relative_l2)
            .min_by(f64::total_cmp)
    };
    let against = |form: &str, baseline: Option<f64>| match baseline {
        None => format!("the baseline that predicts the {form} diverged"),
        Some(baseline) => {
            let reduction = 100.0 * (1.0 - error / baseline);
            let word = if reduction >= 0.0 { "less" } else { "more" };
            format!("{:.0} % {word} error than the baseline that predicts the {form} on all", reduction.abs())
        }
    };
    format!(
        "{}: quintic CFO on 25 % of the times has {}; {}.",
        system.label,
        against("next state", least("next-state")),
        against("change", least("change"))
    )
}

/// Position of a row and its curve.
type Curve = (usize, Vec<(f64, f64)>);

/// The error over time of the system's rows.
fn error_figure(system: &System, rows: &[Row], curves: &[Curve]) -> (String, Figure) {
    let figure = Figure {
        title: format!("Rollout error: {}", system.label),
        x: Axis { label: "time".into(), scale: AxisScale::Linear },
        y: Axis { label: "relative L2 error".into(), scale: AxisScale::Logarithmic },
        series: series(system, rows, curves, |_| true),
        size: (820, 420),
    };
    (format!("error-over-time-{}", system.name), figure)
}

/// The training loss of CFO, linear and quintic: losses of other methods are not comparable.
fn loss_figure(system: &System, rows: &[Row], losses: &[Curve]) -> (String, Figure) {
    let figure = Figure {
        title: format!("Training loss of CFO: {}", system.label),
        x: Axis { label: "step".into(), scale: AxisScale::Linear },
        y: Axis { label: "mean squared error".into(), scale: AxisScale::Logarithmic },
        series: series(system, rows, losses, |row| row.method == "cfo"),
        size: (820, 420),
    };
    (format!("training-loss-{}", system.name), figure)
}

/// Curves of a system's rows: one colour a method, one kind of line a keep rate.
fn series(system: &System, rows: &[Row], curves: &[Curve], chosen: impl Fn(&Row) -> bool) -> Vec<Series> {
    let mut series = Vec::new();
    for (row, points) in curves.iter().map(|(at, points)| (&rows[*at], points)) {
        if row.system != system.name || !chosen(row) {
            continue;
        }
        let line = match row.keep_rate {
            rate if rate >= 1.0 && row.prediction != Some("change") => Line::Solid,
            rate if rate >= 0.5 => Line::Dashed,
            _ => Line::Dotted,
        };
        let color = match row.spline {
            Some("quintic") => 0,
            Some(_) => 2,
            None => [1, 3, 4][system.backbones.iter().position(|b| b.kind == row.operator).unwrap_or(0) % 3],
        };
        let label = format!("{}, {:.0} %", label(row), 100.0 * row.keep_rate);
        series.push(Series { label, points: points.clone(), color, line });
    }
    series
}
