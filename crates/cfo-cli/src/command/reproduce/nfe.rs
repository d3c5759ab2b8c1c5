//! `nfe`: the error at the final time against the number of network evaluations, for Euler, Heun and RK4.

use anyhow::Result;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use cfo::recipe::EvaluateConfig;
use cfo::{Report, Solver};
use serde::Serialize;

use super::experiment::{Laboratory, Outcome};
use super::findings::{Findings, marked};
use super::spread::Spread;
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

const SOLVERS: [&str; 3] = ["euler", "heun", "rk4"];
/// Budgets of evaluations, relative to the baseline's.
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
    recipe: Edition,
    method: &'static str,
    solver: Option<&'static str>,
    /// The budget in units of the baseline's evaluations.
    share: f64,
    /// Evaluations really made for a trajectory; absent if a rollout diverged.
    evaluations: Option<usize>,
    /// The paper tabulates the error at the final time.
    #[serde(flatten)]
    error: Spread,
    paper: Option<f64>,
    #[serde(skip)]
    setup: Setup,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.position().is_some())?;
    let pair = |&setup: &Setup| {
        [
            Training::baseline(setup, setup.system.best_baseline, false),
            Training::flow(setup, Spline::Quintic, 1.0),
        ]
    };
    let trainings: Vec<Training> = setups.iter().flat_map(pair).collect();
    let measured = laboratory.each(&trainings, |training, outcome| match training.prediction() {
        Some(_) => Ok(vec![outcome.evaluate()?]),
        None => budgets(&outcome),
    })?;
    let Some(measured) = measured else { return Ok(None) };
    let rows: Vec<Row> =
        trainings.iter().zip(&measured).flat_map(|(training, runs)| rows(training, runs)).collect();
    let findings = Findings {
        title: "Error against network evaluations",
        about: "Relative L2 error of quintic CFO trained on all times, by solver and by network evaluations relative to the autoregressive baseline's (one per snapshot). The \
                paper tabulates the error at the final time. Steps are equal; snapshots between them come from the solver's dense output."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: setups.iter().map(|setup| figure(setup, &rows)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

/// Every solver with every budget, solvers first.
fn combinations() -> impl Iterator<Item = (usize, usize)> {
    (0..SOLVERS.len()).flat_map(|solver| (0..SHARES.len()).map(move |share| (solver, share)))
}

/// Rollouts of a run with every solver and every budget.
fn budgets(outcome: &Outcome<'_>) -> Result<Vec<Option<Report>>> {
    let steps = outcome.intervals();
    let mut reports = Vec::new();
    for (solver, share) in combinations() {
        let nfe = (SHARES[share] * steps as f64).round() as usize;
        let config =
            EvaluateConfig { solver: Solver::method(SOLVERS[solver])?, nfe, ..EvaluateConfig::default() };
        reports.push(outcome.evaluate_with(&config)?);
    }
    Ok(reports)
}

/// One row for the baseline, and for CFO one per solver and budget; each over all runs.
fn rows(training: &Training, runs: &[Vec<Option<Report>>]) -> Vec<Row> {
    let position = training.system().position();
    let row = |at: usize, solver: Option<&'static str>, share: f64, paper: Option<f64>| {
        let reports = || runs.iter().filter_map(|reports| reports.get(at)).map(Option::as_ref);
        Row {
            system: training.system().name(),
            recipe: training.setup.edition,
            method: training.method(),
            solver,
            share,
            evaluations: reports().flatten().map(|report| report.evaluations).next(),
            error: Spread::of(reports()),
            paper,
            setup: training.setup,
        }
    };
    if training.prediction().is_some() {
        return vec![row(0, None, 1.0, position.map(|at| PAPER_BASELINE[at]))];
    }
    let each = combinations().enumerate().map(|(at, (solver, share))| {
        let paper = position.map(|system| PAPER[system][solver][share]);
        row(at, Some(SOLVERS[solver]), SHARES[share], paper)
    });
    each.collect()
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("method", Left),
        ("budget", Right),
        ("evaluations", Right),
        ("relative L2", Right),
        ("± runs", Right),
        ("± trajectories", Right),
        ("at the end", Right),
        ("paper", Right),
    ]);
    let number = |value: Option<f64>, missing: &str| value.map_or_else(|| missing.to_owned(), scientific);
    for row in rows {
        let [error, runs, trajectories] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            row.solver.map_or_else(|| "autoregressive".to_owned(), |solver| format!("CFO, {solver}")),
            format!("{:.0} %", 100.0 * row.share),
            row.evaluations.map_or_else(|| "-".to_owned(), |count| count.to_string()),
            error,
            runs,
            trajectories,
            number(row.error.final_time, "diverged"),
            number(row.paper, "-"),
        ]);
    }
    table
}

fn figure(setup: &Setup, rows: &[Row]) -> (String, Figure) {
    let of_system =
        || rows.iter().filter(|row| row.system == setup.system.name() && row.recipe == setup.edition);
    let point = |row: &Row| Some((row.evaluations? as f64, row.error.final_time?));
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
        title: format!("Error against evaluations: {}", setup.title()),
        x: Axis { label: "network evaluations".into(), scale: AxisScale::Logarithmic },
        y: Axis { label: "relative L2 error at the final time".into(), scale: AxisScale::Logarithmic },
        series,
        size: (720, 400),
    };
    (format!("error-over-evaluations-{}", setup.stem()), figure)
}
