//! `extrapolation`: trained on the first half of every trajectory, rolled out over the whole of it.
//!
//! With the time as an input, as in the paper, times beyond the training horizon are new to the network; without it they
//! are not, which suits systems whose equations do not change with time.

use anyhow::Result;
use cfo::numerics::Path;
use serde::Serialize;

use super::experiment::{Laboratory, Training};
use super::findings::Findings;
use super::system::System;
use super::{Document, Record};
use crate::args;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

const NAMES: [&str; 4] = ["lorenz", "burgers", "diffusion-reaction", "shallow-water"];

/// The paper's errors after training on the whole horizon and on its first half.
const PAPER: [[f64; 2]; 4] = [[4.53e-2, 3.67e-2], [5.89e-3, 7.94e-3], [4.37e-2, 4.78e-2], [4.56e-3, 2.28e-2]];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    /// Share of the horizon that was trained on.
    trained_on: f64,
    /// Whether the network sees the time.
    time_embedding: bool,
    /// Over the whole horizon; absent if a rollout diverged.
    relative_l2: Option<f64>,
    /// Mean over the snapshots of the second half.
    second_half: Option<f64>,
    final_time: Option<f64>,
    paper: Option<f64>,
}

/// A training of the experiment.
struct Case {
    training: Training,
    trained_on: f64,
    time_embedding: bool,
    paper: Option<f64>,
}

fn cases(system: &'static System) -> Vec<Case> {
    let position = NAMES.iter().position(|&name| name == system.name).expect("a system of the table");
    let mut cases = Vec::new();
    for time_embedding in [true, false] {
        for (i, trained_on) in [1.0, 0.5].into_iter().enumerate() {
            let mut training = Training::flow(system, Path::default(), 1.0);
            training.changes.push(format!("operator.time_embedding={time_embedding}"));
            training.name += if time_embedding { "-timed" } else { "-timeless" };
            training.horizon = trained_on;
            if trained_on < 1.0 {
                training.name += "-half";
            }
            let paper = time_embedding.then_some(PAPER[position][i]);
            cases.push(Case { training, trained_on, time_embedding, paper });
        }
    }
    cases
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let systems = laboratory.systems(&NAMES)?;
    let cases: Vec<Case> = systems.iter().flat_map(|system| cases(system)).collect();
    let trainings: Vec<Training> = cases.iter().map(|case| case.training.clone()).collect();
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    let complete = laboratory.each(&trainings, |position, mut outcome| {
        let Case { training, trained_on, time_embedding, paper } = &cases[position];
        let report = outcome.evaluate()?;
        if let Some(report) = &report {
            let points: Vec<(f64, f64)> =
                report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
            curves.push((rows.len(), points));
        }
        let second_half = report.as_ref().map(|report| {
            let late = &report.per_time[report.per_time.len() / 2..];
            late.iter().map(|at| at.relative_l2).sum::<f64>() / late.len() as f64
        });
        rows.push(Row {
            system: training.system.name,
            trained_on: *trained_on,
            time_embedding: *time_embedding,
            relative_l2: report.as_ref().map(|report| report.relative_l2.mean),
            second_half,
            final_time: report.as_ref().map(|report| report.relative_l2.final_time),
            paper: *paper,
        });
        Ok(())
    })?;
    if !complete {
        return Ok(None);
    }
    let findings = Findings {
        title: "Extrapolation past the training horizon",
        about: "Relative L2 error of rollouts over the whole horizon of quintic CFO trained on all times of the whole horizon or of its first half, with \
                the time as an input of the network, as in the paper, and without."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: systems.iter().map(|system| figure(system, &rows, &curves)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &systems)))
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("trained on", Left),
        ("time as input", Left),
        ("relative L2", Right),
        ("second half", Right),
        ("at the end", Right),
        ("paper", Right),
    ]);
    let number = |value: Option<f64>, missing: &str| value.map_or_else(|| missing.to_owned(), scientific);
    for row in rows {
        table.push([
            row.system.to_owned(),
            if row.trained_on < 1.0 { "first half".to_owned() } else { "whole".to_owned() },
            if row.time_embedding { "yes".to_owned() } else { "no".to_owned() },
            number(row.relative_l2, "diverged"),
            number(row.second_half, "-"),
            number(row.final_time, "-"),
            number(row.paper, "-"),
        ]);
    }
    table
}

fn figure(system: &System, rows: &[Row], curves: &[(usize, Vec<(f64, f64)>)]) -> (String, Figure) {
    let of_system = curves.iter().map(|(at, points)| (&rows[*at], points));
    let series = of_system.filter(|(row, _)| row.system == system.name).map(|(row, points)| {
        let part = if row.trained_on < 1.0 { "first half" } else { "whole" };
        let time = if row.time_embedding { "with time" } else { "without time" };
        Series {
            label: format!("{part}, {time}"),
            points: points.clone(),
            color: usize::from(row.trained_on < 1.0),
            line: if row.time_embedding { Line::Solid } else { Line::Dashed },
        }
    });
    let figure = Figure {
        title: format!("Rollout error past the training horizon: {}", system.label),
        x: Axis { label: "time".into(), scale: AxisScale::Linear },
        y: Axis { label: "relative L2 error".into(), scale: AxisScale::Logarithmic },
        series: series.collect(),
        size: (720, 400),
    };
    (format!("error-over-time-{}", system.name), figure)
}
