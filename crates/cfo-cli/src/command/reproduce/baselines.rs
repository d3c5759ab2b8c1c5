//! `baselines`: other methods beside CFO, with the seconds that a batch of their training takes.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::objective::{ObjectiveConfig, ThroughSolver};
use cfo::paper::Edition;
use serde::Serialize;

use super::experiment::{Laboratory, Outcome};
use super::findings::{Findings, error_over_time, marked};
use super::side_by_side::SideBySide;
use super::spread::Spread;
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Figure, Line, Panels, Series};
use crate::report::{Alignment, Table, scientific};

/// The paper's methods beside CFO and the neural ODE, each on the systems that it tries it on.
const METHODS: [&str; 2] = ["pde-refiner", "conditional-flow-matching"];

/// The paper's errors and seconds a batch, by system and method.
const PAPER: [(&str, &str, f64, f64); 8] = [
    ("lorenz", "cfo", 0.0453, 0.0035),
    ("lorenz", "neural-ode", 0.101, 0.133),
    ("burgers", "cfo", 0.00589, 0.0092),
    ("burgers", "neural-ode", 0.0275, 3.38),
    ("diffusion-reaction", "cfo", 0.044, 0.40),
    ("diffusion-reaction", "pde-refiner", 0.125, 1.38),
    ("shallow-water", "cfo", 0.005, 0.40),
    ("shallow-water", "pde-refiner", 0.093, 1.40),
];

/// What the paper says of a method on a system: error and seconds a batch.
fn paper(system: &str, method: &str) -> Option<(f64, f64)> {
    let found = PAPER.iter().find(|(name, kind, ..)| *name == system && *kind == method);
    found.map(|(_, _, error, seconds)| (*error, *seconds))
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    method: &'static str,
    operator: &'static str,
    parameters: usize,
    #[serde(flatten)]
    error: Spread,
    paper: Option<f64>,
    /// Of training, mean over the runs.
    seconds_per_batch: f64,
    paper_seconds_per_batch: Option<f64>,
    /// Network evaluations of a rollout.
    evaluations: Option<usize>,
    /// Of a rollout, many in one batch.
    seconds_per_trajectory: Option<f64>,
    #[serde(skip)]
    setup: Setup,
}

/// CFO on the states and every other method that the paper has on the system.
fn trainings(setup: Setup) -> Vec<Training> {
    let system = setup.system.name();
    let neural = ObjectiveConfig::NeuralOde(ThroughSolver::default());
    let neural = paper(system, neural.name())
        .map(|(error, _)| Training { paper: Some(error), ..Training::other(setup, neural) });
    let cfo = Training {
        paper: paper(system, "cfo").map(|(error, _)| error),
        ..Training::flow(setup, Spline::Quintic, 1.0)
    };
    let others = METHODS
        .iter()
        .filter_map(|method| Training::by(setup, method, paper(system, method).map(|(error, _)| error)));
    std::iter::once(cfo).chain(neural).chain(others).collect()
}

/// What is kept of a run.
struct Measured {
    report: Option<Report>,
    parameters: usize,
    seconds_per_batch: f64,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.position().is_some())?;
    let trainings: Vec<Training> = setups.iter().flat_map(|&setup| trainings(setup)).collect();
    let mut pictures = Pictures::default();
    let measured = laboratory.each(&trainings, |training, outcome| {
        let report = outcome.evaluate()?;
        pictures.add(training, &outcome)?;
        let steps = f64::from(outcome.recipe().total_steps());
        let seconds_per_batch = outcome.seconds / steps;
        Ok(Measured { report, parameters: outcome.trained.model().parameters()?, seconds_per_batch })
    })?;
    let Some(runs) = measured else { return Ok(None) };
    let rows: Vec<Row> = trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    let findings = Findings {
        title: "Other methods beside CFO",
        about: "Relative L2 error of rollouts, network evaluations of a rollout, and seconds that a batch of training takes; the paper's beside ours. All methods of a \
                system train on the same data; the paper has a figure of conditional flow matching, no numbers. `smoke` gives the neural ODE an eighth \
                of CFO's steps and conditional flow matching a half, which take many times as long."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: setups.iter().map(|setup| figure(setup, &rows, &runs)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups).with_pictures(pictures.finished())))
}

/// Side by side, system by system: of the first run of each method.
#[derive(Default)]
struct Pictures {
    under_way: Option<(Setup, Vec<&'static str>, Option<SideBySide>)>,
    finished: Vec<(String, Panels)>,
}

impl Pictures {
    /// Adds a method. Systems without space are not shown.
    fn add(&mut self, training: &Training, outcome: &Outcome<'_>) -> Result<()> {
        let (setup, method) = (training.setup, training.method());
        if self.under_way.as_ref().is_some_and(|(other, ..)| other.stem() != setup.stem()) {
            self.close();
        }
        let (_, methods, shown) = self.under_way.get_or_insert_with(|| (setup, Vec::new(), None));
        // Other seeds are not shown.
        if outcome.trained.model().shape().axes > 0 && !methods.contains(&method) {
            methods.push(method);
            SideBySide::add(shown, method, outcome)?;
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some((setup, _, Some(shown))) = self.under_way.take()
            && shown.is_complete()
        {
            let stem = format!("side-by-side-{}", setup.stem());
            self.finished.extend(shown.pictures(&stem, &setup.title()));
        }
    }

    fn finished(mut self) -> Vec<(String, Panels)> {
        self.close();
        self.finished
    }
}

fn row(training: &Training, runs: &[Measured]) -> Row {
    let error = Spread::of(runs.iter().map(|run| run.report.as_ref()));
    let first = runs.first().and_then(|run| run.report.as_ref());
    let (system, method) = (training.system().name(), training.method());
    Row {
        system,
        recipe: training.setup.edition,
        method,
        operator: training.recipe.operator.name(),
        parameters: runs.first().map_or(0, |run| run.parameters),
        error,
        paper: training.paper,
        seconds_per_batch: runs.iter().map(|run| run.seconds_per_batch).sum::<f64>()
            / runs.len().max(1) as f64,
        paper_seconds_per_batch: paper(system, method).map(|(_, seconds)| seconds),
        evaluations: first.map(|report| report.evaluations),
        seconds_per_trajectory: first.map(|report| report.seconds_per_trajectory),
        setup: training.setup,
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("method", Left),
        ("parameters", Right),
        ("relative L2", Right),
        ("± runs", Right),
        ("paper", Right),
        ("s a batch", Right),
        ("paper's", Right),
        ("evaluations", Right),
    ]);
    for row in rows {
        let [error, runs, _] = row.error.cells();
        let optional = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), scientific);
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            row.method.to_owned(),
            row.parameters.to_string(),
            error,
            runs,
            optional(row.paper),
            scientific(row.seconds_per_batch),
            optional(row.paper_seconds_per_batch),
            row.evaluations.map_or_else(|| "-".to_owned(), |count| count.to_string()),
        ]);
    }
    table
}

/// The first run of each method over time.
fn figure(setup: &Setup, rows: &[Row], runs: &[Vec<Measured>]) -> (String, Figure) {
    let first = rows.iter().zip(runs).filter_map(|(row, runs)| Some((row, runs.first()?.report.as_ref()?)));
    let of_setup = first.filter(|(row, _)| row.system == setup.system.name() && row.recipe == setup.edition);
    let series = of_setup.enumerate().map(|(color, (row, report))| Series {
        label: row.method.into(),
        points: report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect(),
        color,
        line: Line::Solid,
    });
    error_over_time(setup, "Rollout error by method", series.collect())
}
