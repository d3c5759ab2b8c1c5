//! `runtime`: time of a training step and of a rollout, beside the paper's.

use anyhow::Result;
use cfo::EvaluateConfig;
use cfo::numerics::Path;
use serde::Serialize;

use super::experiment::{Laboratory, Outcome, Training};
use super::findings::Findings;
use super::system::System;
use super::{Document, Record};
use crate::args;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

const NAMES: [&str; 4] = ["lorenz", "burgers", "diffusion-reaction", "shallow-water"];

/// Milliseconds of a rollout and its error at the final time, next-step prediction then CFO with half its evaluations, on an
/// A6000; then the seconds of CFO's training step.
const PAPER: [([(f64, f64); 2], f64); 4] = [
    ([(0.16, 1.48e-1), (0.12, 9.19e-2)], 0.0035),
    ([(0.68, 1.03e1), (0.31, 9.00e-3)], 0.0092),
    ([(117.18, 3.74e-1), (49.36, 8.76e-2)], 0.40),
    ([(111.83, 3.84e-1), (49.63, 6.98e-2)], 0.40),
];

/// Rollouts that are timed; the median counts.
const REPETITIONS: usize = 3;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    method: &'static str,
    operator: &'static str,
    parameters: usize,
    batch: usize,
    /// Seconds of a training step.
    seconds_per_step: f64,
    paper_seconds_per_step: Option<f64>,
    /// Network evaluations of a rollout.
    evaluations: Option<usize>,
    /// Trajectories rolled out together.
    trajectories: usize,
    /// Milliseconds of a rollout, all test trajectories together, over their number.
    milliseconds_per_trajectory: Option<f64>,
    paper_milliseconds_per_trajectory: f64,
    final_time: Option<f64>,
    paper_final_time: f64,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let systems = laboratory.systems(&NAMES)?;
    let mut trainings = Vec::new();
    for &system in &systems {
        // The paper times both methods on CFO's own network.
        trainings.push(Training::baseline(system, &system.backbones[0], false, arguments.scale));
        trainings.push(Training::flow(system, Path::default(), 1.0));
    }
    let (mut rows, mut sweeps) = (Vec::new(), Vec::new());
    let complete = laboratory.each(&trainings, |position, mut outcome| {
        let system = trainings[position].system;
        rows.push(row(system, position % 2, &mut outcome)?);
        if position % 2 == 1 {
            sweeps.push((system.name, sweep(&mut outcome)?));
        }
        Ok(())
    })?;
    if !complete {
        return Ok(None);
    }
    let findings = Findings {
        title: "Time of training and of rollouts",
        about: format!(
            "Milliseconds of a rollout: all test trajectories together, divided by their number, median of {REPETITIONS}; CFO with RK4 and half the baseline's evaluations. The \
             paper's rollouts ran on an NVIDIA A6000 (JAX, fp32); it does not say how many trajectories ran together. Training steps draw the batch, \
             differentiate and update. Device: {}.",
            arguments.device
        ),
        table: table(&rows),
        verdict: String::new(),
        figures: systems.iter().map(|system| figure(system, &rows, &sweeps)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &systems)))
}

/// A rollout within a budget, timed: milliseconds a trajectory, evaluations, error at the final time.
fn timed(outcome: &mut Outcome<'_>, nfe: usize) -> Result<Option<(f64, usize, f64)>> {
    let config = EvaluateConfig { nfe, ..EvaluateConfig::default() };
    let mut times = Vec::new();
    let mut found = None;
    for _ in 0..REPETITIONS {
        let Some(report) = outcome.evaluate_with(&config)? else { return Ok(None) };
        times.push(1e3 * report.seconds_per_trajectory);
        found = Some((report.evaluations, report.relative_l2.final_time));
    }
    times.sort_by(f64::total_cmp);
    Ok(found.map(|(evaluations, error)| (times[times.len() / 2], evaluations, error)))
}

fn row(system: &System, method: usize, outcome: &mut Outcome<'_>) -> Result<Row> {
    let position = NAMES.iter().position(|&name| name == system.name).expect("a system of the table");
    let (rollouts, seconds_per_step) = PAPER[position];
    let (milliseconds, error) = rollouts[method];
    let nfe = if method == 0 { 0 } else { outcome.intervals() / 2 };
    let found = timed(outcome, nfe)?;
    let train = &outcome.recipe().train;
    Ok(Row {
        system: system.name,
        method: ["autoregressive", "cfo"][method],
        operator: system.backbones[0].kind,
        parameters: outcome.trained.model.parameters()?,
        batch: train.batch,
        seconds_per_step: outcome.seconds / f64::from(train.steps),
        paper_seconds_per_step: (method == 1).then_some(seconds_per_step),
        evaluations: found.map(|(_, evaluations, _)| evaluations),
        trajectories: outcome.test().len(),
        milliseconds_per_trajectory: found.map(|(milliseconds, _, _)| milliseconds),
        paper_milliseconds_per_trajectory: milliseconds,
        final_time: found.map(|(_, _, error)| error),
        paper_final_time: error,
    })
}

/// Milliseconds and error of CFO over budgets of 50 to 400 %.
fn sweep(outcome: &mut Outcome<'_>) -> Result<Vec<(f64, f64)>> {
    let mut points = Vec::new();
    for share in [0.5, 1.0, 2.0, 4.0] {
        let nfe = (share * outcome.intervals() as f64) as usize;
        points.extend(timed(outcome, nfe)?.map(|(milliseconds, _, error)| (milliseconds, error)));
    }
    Ok(points)
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("method", Left),
        ("network", Left),
        ("step", Right),
        ("(paper)", Right),
        ("evaluations", Right),
        ("rollout", Right),
        ("(paper)", Right),
        ("at the end", Right),
        ("(paper)", Right),
    ]);
    let milliseconds = |value: f64| format!("{value:.3} ms");
    for row in rows {
        table.push([
            row.system.to_owned(),
            row.method.to_owned(),
            format!("{}, {} parameters", row.operator, row.parameters),
            milliseconds(1e3 * row.seconds_per_step),
            row.paper_seconds_per_step
                .map_or_else(|| "-".to_owned(), |s| format!("({})", milliseconds(1e3 * s))),
            row.evaluations.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            row.milliseconds_per_trajectory.map_or_else(|| "diverged".to_owned(), milliseconds),
            format!("({})", milliseconds(row.paper_milliseconds_per_trajectory)),
            row.final_time.map_or_else(|| "diverged".to_owned(), scientific),
            format!("({})", scientific(row.paper_final_time)),
        ]);
    }
    table
}

fn figure(system: &System, rows: &[Row], sweeps: &[(&str, Vec<(f64, f64)>)]) -> (String, Figure) {
    let points: Vec<(f64, f64)> = sweeps
        .iter()
        .filter(|(name, _)| *name == system.name)
        .flat_map(|(_, points)| points.clone())
        .collect();
    let baseline = rows
        .iter()
        .find(|row| row.system == system.name && row.method == "autoregressive")
        .and_then(|row| Some((row.milliseconds_per_trajectory?, row.final_time?)));
    let mut series = vec![Series { label: "CFO, RK4".into(), points, color: 0, line: Line::Solid }];
    if let Some((time, error)) = baseline {
        // A short stroke marks the one point.
        let points = vec![(0.97 * time, error), (1.03 * time, error)];
        series.push(Series { label: "autoregressive".into(), points, color: 1, line: Line::Solid });
    }
    let figure = Figure {
        title: format!("Error against time: {}", system.label),
        x: Axis { label: "milliseconds a trajectory".into(), scale: AxisScale::Logarithmic },
        y: Axis { label: "relative L2 error at the final time".into(), scale: AxisScale::Logarithmic },
        series,
        size: (720, 400),
    };
    (format!("error-over-milliseconds-{}", system.name), figure)
}
