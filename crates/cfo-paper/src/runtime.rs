//! `runtime`: the times of a training step and of a rollout, beside the paper's.

use std::time::Instant;

use anyhow::Result;
use cfo::Solver;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use serde::Serialize;

use crate::columns::{TableColumn, counted, diverged_or, number, words};
use crate::experiment::Laboratory;
use crate::findings::{Findings, marked, setup_figure};
use crate::network::label;
use crate::options::Reproduce;
use crate::published::percent;
use crate::system::Setup;
use crate::trained_run::TrainedRun;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::scientific;

/// Budgets of the sweep, relative to the baseline's evaluations; the table has the first.
const SHARES: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

const REPETITIONS: usize = 3;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RuntimeRow {
    system: &'static str,
    recipe: Edition,
    method: &'static str,
    operator: &'static str,
    parameters: usize,
    batch: usize,
    seconds_per_step: f64,
    paper_seconds_per_step: Option<f64>,
    evaluations: Option<usize>,
    trajectories: usize,
    /// Milliseconds of a rollout, all test trajectories together, over their number.
    milliseconds_per_trajectory: Option<f64>,
    paper_milliseconds_per_trajectory: Option<f64>,
    final_time: Option<f64>,
    paper_final_time: Option<f64>,
    /// CFO with other budgets; none for the baseline.
    budgets: Vec<Timed>,
    #[serde(skip)]
    setup: Setup,
}

/// A timed rollout that did not diverge.
#[derive(Clone, Copy, Debug, Serialize)]
struct Timed {
    /// The budget relative to the baseline's evaluations.
    share: f64,
    evaluations: usize,
    milliseconds_per_trajectory: f64,
    final_time: f64,
}

/// The paper times both methods on CFO's own network.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    vec![
        NetworkTraining::baseline(setup, setup.system.backbones[0], false),
        NetworkTraining::flow(setup, Spline::Quintic, 1.0),
    ]
}

pub(crate) fn run(arguments: &Reproduce) -> Made<RuntimeRow> {
    let measured = Laboratory::measure(arguments, |system| system.position().is_some(), trainings, row)?;
    let rows: Vec<RuntimeRow> = measured.networks.iter().flat_map(|network| network.runs.clone()).collect();
    let findings = Findings {
        title: "Time of training and of rollouts",
        about: format!(
            "Milliseconds per rollout: the time for all test trajectories together, divided by their number; median of {REPETITIONS} repetitions after a warm-up. CFO uses RK4 and half the evaluations of \
             the autoregressive model. The paper's rollouts ran on an NVIDIA A6000 (JAX, fp32); the number of trajectories in a batch is unknown. A training step consists of sampling, backward \
             pass and update. Device: {}.",
            arguments.device
        ),
        columns: columns(),
        verdict: String::new(),
        figures: measured.setups.iter().map(|setup| figure(setup, &rows)).collect(),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

/// Times a rollout within a budget, 0 for the method's own; `None` if it diverges.
fn timed(outcome: &TrainedRun<'_>, share: f64) -> Result<Option<Timed>> {
    let nfe = (share * outcome.intervals() as f64) as usize;
    let solver = if nfe == 0 { Solver::rk4() } else { Solver::rk4().evaluations(nfe) };
    let Some(report) = outcome.evaluate_with(solver)? else { return Ok(None) };
    let request = outcome.request();
    let count = request.start.len();
    let trained = outcome.trained.with_solver(solver);
    // The first one compiles, and on a GPU captures the graph that the others replay.
    trained.predict_each(&request, &outcome.watch())?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        trained.predict_each(&request, &outcome.watch())?;
        times.push(1e3 * started.elapsed().as_secs_f64() / count as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(Some(Timed {
        share,
        evaluations: report.evaluations,
        milliseconds_per_trajectory: times[times.len() / 2],
        final_time: report.relative_l2.final_time,
    }))
}

/// A method on a system of the paper's table.
fn row(training: &NetworkTraining, outcome: &TrainedRun<'_>) -> Result<RuntimeRow> {
    let (system, method) = (training.system(), training.method());
    let is_flow = training.prediction().is_none();
    let mut budgets = Vec::new();
    for share in SHARES.into_iter().filter(|_| is_flow) {
        budgets.extend(timed(outcome, share)?);
    }
    let found = match is_flow {
        true => budgets.first().copied().filter(|first| first.share == SHARES[0]),
        false => timed(outcome, 0.0)?,
    };
    let train = &outcome.recipe().train;
    let paper = |column: &str| published::figure("Table 10", system.name(), method, column);
    Ok(RuntimeRow {
        system: system.name(),
        recipe: training.setup.edition,
        method,
        operator: system.backbones[0],
        parameters: outcome.trained.model().parameters()?,
        batch: train.batch,
        seconds_per_step: outcome.seconds / f64::from(outcome.recipe().total_steps()),
        paper_seconds_per_step: published::figure("Table 3", system.name(), method, "seconds per batch"),
        evaluations: found.map(|found| found.evaluations),
        trajectories: outcome.test().len(),
        milliseconds_per_trajectory: found.map(|found| found.milliseconds_per_trajectory),
        paper_milliseconds_per_trajectory: paper("milliseconds"),
        final_time: found.map(|found| found.final_time),
        paper_final_time: paper("at the end"),
        budgets,
        setup: training.setup,
    })
}

fn columns() -> Vec<TableColumn<RuntimeRow>> {
    fn milliseconds(value: f64) -> String {
        format!("{value:.3} ms")
    }
    fn brackets(text: Option<String>) -> String {
        text.map_or_else(|| "-".into(), |text| format!("({text})"))
    }
    vec![
        words("system", |row: &RuntimeRow| marked(row.setup)),
        words("recipe", |row: &RuntimeRow| row.recipe.name().to_owned()),
        words("method", |row: &RuntimeRow| label(row.method).to_owned()),
        words("network", |row: &RuntimeRow| format!("{}, {} parameters", row.operator, row.parameters)),
        number("step", |row: &RuntimeRow| milliseconds(1e3 * row.seconds_per_step)),
        number("(paper)", |row: &RuntimeRow| {
            brackets(row.paper_seconds_per_step.map(|s| milliseconds(1e3 * s)))
        }),
        number("evaluations", |row: &RuntimeRow| counted(row.evaluations)),
        number("rollout", |row: &RuntimeRow| diverged_or(row.milliseconds_per_trajectory, milliseconds)),
        number("(paper)", |row: &RuntimeRow| {
            brackets(row.paper_milliseconds_per_trajectory.map(milliseconds))
        }),
        number("at the end", |row: &RuntimeRow| diverged_or(row.final_time, scientific)),
        number("(paper)", |row: &RuntimeRow| brackets(row.paper_final_time.map(scientific))),
    ]
}

/// The errors of CFO over the time that each budget takes, and the baseline, which has one.
fn figure(setup: &Setup, rows: &[RuntimeRow]) -> (String, Figure) {
    let of_setup = |row: &&RuntimeRow| row.system == setup.system.name() && row.recipe == setup.edition;
    let mut series = Vec::new();
    for row in rows.iter().filter(of_setup) {
        if row.method == "autoregressive" {
            let point = row.milliseconds_per_trajectory.zip(row.final_time);
            let marks = point.map(|_| "100 %".to_owned()).into_iter().collect();
            let baseline = Curve::new("autoregressive", point.into_iter().collect(), 1, LineStyle::Solid);
            series.push(baseline.with_marks(marks));
        } else {
            let points = row.budgets.iter().map(|one| (one.milliseconds_per_trajectory, one.final_time));
            let marks = row.budgets.iter().map(|one| percent(one.share)).collect();
            series.insert(0, Curve::new("CFO, RK4", points.collect(), 0, LineStyle::Solid).with_marks(marks));
        }
    }
    let axes = [
        Axis::logarithmic("milliseconds per trajectory"),
        Axis::logarithmic("relative L2 error at the final time"),
    ];
    setup_figure(setup, "error-over-milliseconds", "Error against time, by budget", axes, series)
}
