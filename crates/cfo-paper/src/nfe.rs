//! `nfe`: the error at the final time against the number of network evaluations, for Euler, Heun and RK4.

use anyhow::Result;
use cfo::numerics::Spline;
use cfo::{Report, Solver};
use serde::Serialize;

use crate::columns::{TableColumn, counted, number, words};
use crate::experiment::Laboratory;
use crate::findings::{Findings, setup_figure};
use crate::network::{NetworkRow, TrainedNetwork};
use crate::options::Reproduce;
use crate::published::percent;
use crate::system::Setup;
use crate::trained_run::TrainedRun;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};

const SOLVERS: [&str; 3] = ["euler", "heun", "rk4"];
/// Budgets of evaluations, relative to the baseline's.
const SHARES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

const TABLES: [&str; 3] = ["Table 8", "Table 9", "Table 2"];

/// Additional columns of this experiment; the paper tabulates the error at the final time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SolverBudget {
    /// The solver; `None` for the baseline.
    solver: Option<&'static str>,
    /// The budget in units of the baseline's evaluations.
    share: f64,
    /// Evaluations really made for a trajectory; absent if a rollout diverged.
    evaluations: Option<usize>,
}

fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    vec![
        NetworkTraining::baseline(setup, setup.system.best_baseline, false),
        NetworkTraining::flow(setup, Spline::Quintic, 1.0),
    ]
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<SolverBudget>> {
    let measured = Laboratory::measure(
        arguments,
        |system| system.position().is_some(),
        trainings,
        |training, outcome| match training.prediction() {
            Some(_) => Ok(vec![outcome.evaluate()?]),
            None => budgets(outcome),
        },
    )?;
    let rows: Vec<NetworkRow<SolverBudget>> = measured.networks.iter().flat_map(rows).collect();
    let findings = Findings {
        title: "Error over network evaluations",
        about: "Relative L2 error of quintic CFO trained on all times, for each solver and number of network evaluations. The budget is relative to the autoregressive model, which \
                needs one evaluation per snapshot. The paper's numbers are errors at the final time. Steps are equal; snapshots between steps come from the solver's dense output."
            .into(),
        columns: columns(),
        verdict: String::new(),
        figures: measured.setups.iter().map(|setup| figure(setup, &rows)).collect(),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

/// Every solver with every budget, solvers first.
fn combinations() -> impl Iterator<Item = (usize, usize)> {
    (0..SOLVERS.len()).flat_map(|solver| (0..SHARES.len()).map(move |share| (solver, share)))
}

fn budgets(outcome: &TrainedRun<'_>) -> Result<Vec<Option<Report>>> {
    let steps = outcome.intervals();
    let mut reports = Vec::new();
    for (solver, share) in combinations() {
        let nfe = (SHARES[share] * steps as f64).round() as usize;
        let tableau = Solver::method(SOLVERS[solver])?;
        reports.push(outcome.evaluate_with(Solver { tableau, ..Solver::rk4().evaluations(nfe) })?);
    }
    Ok(reports)
}

/// One row for the baseline, and for CFO one per solver and budget; each over all runs.
fn rows(network: &TrainedNetwork<Vec<Option<Report>>>) -> Vec<NetworkRow<SolverBudget>> {
    let system = network.training.system().name();
    let row = |at: usize, solver: Option<&'static str>, share: f64, paper: Option<f64>| {
        let report = |reports: &Vec<Option<Report>>| reports.get(at).and_then(Option::as_ref).cloned();
        let evaluations = network.runs.iter().find_map(report).map(|report| report.evaluations);
        let own = SolverBudget { solver, share, evaluations };
        let row = network.row(|reports| reports.get(at).and_then(Option::as_ref), own);
        NetworkRow { paper, paper_std: None, ..row }
    };
    if network.training.prediction().is_some() {
        let paper = published::figure(TABLES[2], system, "autoregressive", "100 %");
        return vec![row(0, None, 1.0, paper)];
    }
    let each = combinations().enumerate().map(|(at, (solver, share))| {
        let (name, share) = (SOLVERS[solver], SHARES[share]);
        row(at, Some(name), share, published::figure(TABLES[solver], system, name, &percent(share)))
    });
    each.collect()
}

fn columns() -> Vec<TableColumn<NetworkRow<SolverBudget>>> {
    NetworkRow::columns(
        [
            words("method", |row| {
                row.own.solver.map_or_else(|| row.label(), |solver| format!("CFO, {solver}"))
            }),
            number("budget", |row| percent(row.own.share)),
            number("evaluations", |row| counted(row.own.evaluations)),
        ],
        [NetworkRow::of_end(), NetworkRow::of_paper()],
    )
}

fn figure(setup: &Setup, rows: &[NetworkRow<SolverBudget>]) -> (String, Figure) {
    let of_system = || rows.iter().filter(|row| row.is_of(setup));
    let point = |row: &NetworkRow<SolverBudget>| Some((row.own.evaluations? as f64, row.error.final_time?));
    let mut series: Vec<Curve> = SOLVERS
        .into_iter()
        .enumerate()
        .map(|(color, solver)| {
            let points = of_system().filter(|row| row.own.solver == Some(solver)).filter_map(point);
            Curve::new(format!("CFO, {solver}"), points.collect(), color, LineStyle::Solid)
        })
        .collect();
    if let Some((_, error)) = of_system().find(|row| row.own.solver.is_none()).and_then(point) {
        let ends = series.iter().flat_map(|series| &series.points).map(|point| point.0);
        let (first, last) = ends.fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        let points = vec![(first, error), (last, error)];
        series.push(Curve::new("autoregressive", points, 3, LineStyle::Dashed));
    }
    let axes =
        [Axis::logarithmic("network evaluations"), Axis::logarithmic("relative L2 error at the final time")];
    setup_figure(setup, "error-over-evaluations", "Error over evaluations", axes, series)
}
