//! `nfe`: the error at the final time against the number of network evaluations, for Euler, Heun and RK4.

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
const SOLVERS: [&str; 3] = ["euler", "heun", "rk4"];
/// Evaluations in units of the baseline's.
const SHARES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// The paper's errors at the final time: for each system, the solvers in order, the shares in order.
const PAPER: [[[f64; 4]; 3]; 4] = [
    [[0.3032, 0.2821, 0.2337, 0.2076], [0.1878, 0.1052, 0.0705, 0.0651], [0.0919, 0.0655, 0.0674, 0.0645]],
    [[0.0142, 0.0111, 0.0099, 0.0094], [0.0090, 0.0090, 0.0090, 0.0090], [0.0090, 0.0089, 0.0090, 0.0089]],
    [[0.0611, 0.0603, 0.0588, 0.0603], [0.0694, 0.0601, 0.0600, 0.0594], [0.0876, 0.0718, 0.0608, 0.0593]],
    [[0.1345, 0.0978, 0.0651, 0.0389], [0.0874, 0.0249, 0.0076, 0.0061], [0.0698, 0.0154, 0.0060, 0.0061]],
];
/// The paper's baseline at the final time.
const PAPER_BASELINE: [f64; 4] = [0.1481, 0.0647, 0.3850, 0.1048];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    method: &'static str,
    solver: Option<&'static str>,
    /// The budget in units of the baseline's evaluations.
    share: f64,
    /// Evaluations really made for a trajectory; absent if a rollout diverged.
    evaluations: Option<usize>,
    relative_l2: Option<f64>,
    /// What the paper tabulates.
    final_time: Option<f64>,
    paper: f64,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let systems = laboratory.systems(&NAMES)?;
    let mut trainings = Vec::new();
    for &system in &systems {
        trainings.push(Training::baseline(system, system.baseline(), false, arguments.scale));
        trainings.push(Training::flow(system, Path::default(), 1.0));
    }
    let mut rows = Vec::new();
    let complete = laboratory.each(&trainings, |position, mut outcome| {
        let system = trainings[position].system;
        if position % 2 == 0 {
            rows.push(baseline(system, &mut outcome)?);
        } else {
            rows.extend(budgets(system, &mut outcome)?);
        }
        Ok(())
    })?;
    if !complete {
        return Ok(None);
    }
    let findings = Findings {
        title: "Error against network evaluations",
        about: "Relative L2 error of quintic CFO trained on all times, by solver and by evaluations in units of the autoregressive baseline's (one a snapshot); the \
                paper tabulates the error at the final time. Where steps are fewer than snapshots, those in between are read off the steps' cubic polynomials."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: systems.iter().map(|system| figure(system, &rows)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &systems)))
}

fn position(system: &System) -> usize {
    NAMES.iter().position(|&name| name == system.name).expect("a system of the table")
}

fn baseline(system: &System, outcome: &mut Outcome<'_>) -> Result<Row> {
    let report = outcome.evaluate()?;
    Ok(Row {
        system: system.name,
        method: "autoregressive",
        solver: None,
        share: 1.0,
        evaluations: report.as_ref().map(|report| report.evaluations),
        relative_l2: report.as_ref().map(|report| report.relative_l2.mean),
        final_time: report.as_ref().map(|report| report.relative_l2.final_time),
        paper: PAPER_BASELINE[position(system)],
    })
}

fn budgets(system: &System, outcome: &mut Outcome<'_>) -> Result<Vec<Row>> {
    let steps = outcome.intervals();
    let mut rows = Vec::new();
    for (solver, paper) in SOLVERS.into_iter().zip(PAPER[position(system)]) {
        for (share, paper) in SHARES.into_iter().zip(paper) {
            let nfe = (share * steps as f64).round() as usize;
            let config = EvaluateConfig { solver: solver.into(), nfe, ..EvaluateConfig::default() };
            let report = outcome.evaluate_with(&config)?;
            rows.push(Row {
                system: system.name,
                method: "cfo",
                solver: Some(solver),
                share,
                evaluations: report.as_ref().map(|report| report.evaluations),
                relative_l2: report.as_ref().map(|report| report.relative_l2.mean),
                final_time: report.as_ref().map(|report| report.relative_l2.final_time),
                paper,
            });
        }
    }
    Ok(rows)
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("method", Left),
        ("budget", Right),
        ("evaluations", Right),
        ("relative L2", Right),
        ("at the end", Right),
        ("paper", Right),
    ]);
    let number = |value: Option<f64>| value.map_or_else(|| "diverged".to_owned(), scientific);
    for row in rows {
        table.push([
            row.system.to_owned(),
            row.solver.map_or_else(|| "autoregressive".to_owned(), |solver| format!("CFO, {solver}")),
            format!("{:.0} %", 100.0 * row.share),
            row.evaluations.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            number(row.relative_l2),
            number(row.final_time),
            scientific(row.paper),
        ]);
    }
    table
}

fn figure(system: &System, rows: &[Row]) -> (String, Figure) {
    let of_system = || rows.iter().filter(|row| row.system == system.name);
    let point = |row: &Row| Some((row.evaluations? as f64, row.final_time?));
    let mut series: Vec<Series> = SOLVERS
        .into_iter()
        .enumerate()
        .map(|(color, solver)| Series {
            label: format!("CFO, {solver}"),
            points: of_system().filter(|row| row.solver == Some(solver)).filter_map(point).collect(),
            color,
            line: Line::Solid,
        })
        .collect();
    if let Some((_, error)) = of_system().find(|row| row.solver.is_none()).and_then(point) {
        let ends = series.iter().flat_map(|series| &series.points).map(|point| point.0);
        let (first, last) = ends.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        series.push(Series {
            label: "autoregressive".into(),
            points: vec![(first, error), (last, error)],
            color: 3,
            line: Line::Dashed,
        });
    }
    let figure = Figure {
        title: format!("Error against evaluations: {}", system.label),
        x: Axis { label: "network evaluations".into(), scale: AxisScale::Logarithmic },
        y: Axis { label: "relative L2 error at the final time".into(), scale: AxisScale::Logarithmic },
        series,
        size: (720, 400),
    };
    (format!("error-over-evaluations-{}", system.name), figure)
}
