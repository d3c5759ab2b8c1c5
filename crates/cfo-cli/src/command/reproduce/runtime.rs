//! `runtime`: the times of a training step and of a rollout, beside the paper's.

use std::time::Instant;

use anyhow::Result;
use cfo::Solver;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use cfo::recipe::EvaluateConfig;
use serde::Serialize;

use super::experiment::{Laboratory, Outcome};
use super::findings::{Findings, marked};
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

/// For each system: milliseconds of a rollout on an A6000 and its error at the final time, first for next-step prediction,
/// then for CFO with half the evaluations; then the seconds of CFO's training step.
const PAPER: [([(f64, f64); 2], f64); 4] = [
    ([(0.16, 1.48e-1), (0.12, 9.19e-2)], 0.0035),
    ([(0.68, 1.03e1), (0.31, 9.00e-3)], 0.0092),
    ([(117.18, 3.74e-1), (49.36, 8.76e-2)], 0.40),
    ([(111.83, 3.84e-1), (49.63, 6.98e-2)], 0.40),
];

/// Timed rollouts, of which the median is reported.
const REPETITIONS: usize = 3;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
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
    #[serde(skip)]
    setup: Setup,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.position().is_some())?;
    // The paper times both methods on CFO's own network.
    let pair = |&setup: &Setup| {
        [
            Training::baseline(setup, setup.system.backbones[0], false),
            Training::flow(setup, Spline::Quintic, 1.0),
        ]
    };
    let trainings: Vec<Training> = setups.iter().flat_map(pair).collect();
    let (mut rows, mut sweeps) = (Vec::new(), Vec::new());
    let measured = laboratory.each(&trainings, |training, outcome| {
        rows.extend(row(training, &outcome)?);
        if training.prediction().is_none() {
            sweeps.push(sweep(&outcome)?);
        }
        Ok(())
    })?;
    if measured.is_none() {
        return Ok(None);
    }
    let findings = Findings {
        title: "Time of training and of rollouts",
        about: format!(
            "Milliseconds of a rollout: all test trajectories together, divided by their number, median of {REPETITIONS} after one that is not counted; CFO with RK4 and half the baseline's evaluations. The \
             paper's rollouts ran on an NVIDIA A6000 (JAX, fp32); it does not say how many trajectories ran together. Training steps draw the batch, \
             differentiate and update. Device: {}.",
            arguments.device
        ),
        table: table(&rows),
        verdict: String::new(),
        figures: setups.iter().zip(sweeps).map(|(setup, points)| figure(setup, &rows, points)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

/// Times a rollout within a budget: milliseconds per trajectory, evaluations, error at the final time; `None` if it diverges.
fn timed(outcome: &Outcome<'_>, nfe: usize) -> Result<Option<(f64, usize, f64)>> {
    let config = EvaluateConfig { nfe, ..EvaluateConfig::default() };
    let Some(report) = outcome.evaluate_with(&config)? else { return Ok(None) };
    let request = outcome.request();
    let count = request.start.len();
    let trained = outcome.trained.with_solver(Solver::from_config(&config)?);
    // The first one compiles, and on a GPU captures the graph that the others replay.
    trained.predict_each(&request, &outcome.watch())?;
    let mut times = Vec::new();
    for _ in 0..REPETITIONS {
        let started = Instant::now();
        trained.predict_each(&request, &outcome.watch())?;
        times.push(1e3 * started.elapsed().as_secs_f64() / count as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(Some((times[times.len() / 2], report.evaluations, report.relative_l2.final_time)))
}

/// The row of a system of the paper's table.
fn row(training: &Training, outcome: &Outcome<'_>) -> Result<Option<Row>> {
    let system = training.system();
    let Some((rollouts, seconds_per_step)) = system.position().map(|at| PAPER[at]) else { return Ok(None) };
    let method = usize::from(training.prediction().is_none());
    let (milliseconds, error) = rollouts[method];
    let nfe = if method == 0 { 0 } else { outcome.intervals() / 2 };
    let found = timed(outcome, nfe)?;
    let train = &outcome.recipe().train;
    Ok(Some(Row {
        system: system.name(),
        recipe: training.setup.edition,
        method: training.method(),
        operator: system.backbones[0],
        parameters: outcome.trained.model().parameters()?,
        batch: train.batch,
        seconds_per_step: outcome.seconds / f64::from(outcome.recipe().total_steps()),
        paper_seconds_per_step: (method == 1).then_some(seconds_per_step),
        evaluations: found.map(|(_, evaluations, _)| evaluations),
        trajectories: outcome.test().len(),
        milliseconds_per_trajectory: found.map(|(milliseconds, _, _)| milliseconds),
        paper_milliseconds_per_trajectory: milliseconds,
        final_time: found.map(|(_, _, error)| error),
        paper_final_time: error,
        setup: training.setup,
    }))
}

/// Milliseconds and error of CFO over budgets of 50 to 400 %.
fn sweep(outcome: &Outcome<'_>) -> Result<Vec<(f64, f64)>> {
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
        ("recipe", Left),
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
            marked(row.setup),
            row.recipe.name().to_owned(),
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

fn figure(setup: &Setup, rows: &[Row], points: Vec<(f64, f64)>) -> (String, Figure) {
    let of_setup = |row: &&Row| row.system == setup.system.name() && row.recipe == setup.edition;
    let baseline = rows
        .iter()
        .filter(of_setup)
        .find(|row| row.method == "autoregressive")
        .and_then(|row| Some((row.milliseconds_per_trajectory?, row.final_time?)));
    let mut series = vec![Series { label: "CFO, RK4".into(), points, color: 0, line: Line::Solid }];
    if let Some((time, error)) = baseline {
        // A short line marks the single point.
        let points = vec![(0.97 * time, error), (1.03 * time, error)];
        series.push(Series { label: "autoregressive".into(), points, color: 1, line: Line::Solid });
    }
    let figure = Figure {
        title: format!("Error against time: {}", setup.title()),
        x: Axis { label: "milliseconds per trajectory".into(), scale: AxisScale::Logarithmic },
        y: Axis { label: "relative L2 error at the final time".into(), scale: AxisScale::Logarithmic },
        series,
        size: (720, 400),
    };
    (format!("error-over-milliseconds-{}", setup.stem()), figure)
}
