//! `ks`: errors and training times on the Kuramoto-Sivashinsky equation, which is chaotic, every method on the same network.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::objective::{ObjectiveConfig, ThroughSolver};
use cfo::paper::{self, Edition};
use serde::Serialize;

use super::experiment::Laboratory;
use super::findings::{Findings, error_over_time, marked};
use super::spread::Spread;
use super::system::{KURAMOTO_SIVASHINSKY, Setup};
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Figure, Line, Series};
use crate::report::{Alignment, Table, duration, scientific};

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    method: &'static str,
    /// `next-state` or `change`, for the autoregressive baseline.
    prediction: Option<&'static str>,
    operator: &'static str,
    parameters: usize,
    #[serde(flatten)]
    error: Spread,
    paper: Option<f64>,
    steps: u32,
    /// Of one training run, mean over the runs.
    seconds: f64,
    paper_seconds: Option<f64>,
    #[serde(skip)]
    setup: Setup,
}

/// Next-step prediction in the paper's form and in the stronger one, the neural ODE, then CFO.
fn trainings(setup: Setup) -> Vec<Training> {
    let network = setup.system.backbones[0];
    vec![
        Training::baseline(setup, network, false),
        Training::baseline(setup, network, true),
        Training::other(setup, ObjectiveConfig::NeuralOde(ThroughSolver::default())),
        Training::flow(setup, Spline::Quintic, 1.0),
    ]
}

/// The paper's error and seconds of a method; it has no baseline that predicts the change.
fn papers(training: &Training) -> Option<(f64, f64)> {
    let of_method = |(method, _, _): &&(&str, f64, f64)| *method == training.method();
    let found = paper::KURAMOTO_SIVASHINSKY.iter().find(of_method);
    found.filter(|_| training.prediction() != Some("change")).map(|&(_, error, seconds)| (error, seconds))
}

/// What is kept of a run: its errors, the network's size, the seconds of training.
type Measured = (Option<Report>, usize, f64);

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.name() == KURAMOTO_SIVASHINSKY)?;
    let trainings: Vec<Training> = setups.iter().flat_map(|&setup| trainings(setup)).collect();
    let measured = laboratory.each(&trainings, |_, outcome| {
        Ok((outcome.evaluate()?, outcome.trained.model().parameters()?, outcome.seconds))
    })?;
    let Some(runs) = measured else { return Ok(None) };
    let rows: Vec<Row> = trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    let findings = Findings {
        title: "The Kuramoto-Sivashinsky equation",
        about: "Relative L2 error of rollouts over all snapshots from the first, and the time of one training run without validation. Every method has the same network, steps and batch. In the \
                paper, next-step prediction predicts the next state; the baseline that predicts the change is ours."
            .into(),
        table: table(&rows),
        verdict: setups.iter().map(|setup| verdict(setup, &rows)).collect(),
        figures: setups.iter().map(|setup| figure(setup, &rows, &runs)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

fn row(training: &Training, runs: &[Measured]) -> Row {
    let papers = papers(training);
    Row {
        system: training.system().name(),
        recipe: training.setup.edition,
        method: training.method(),
        prediction: training.prediction(),
        operator: training.recipe.operator.name(),
        parameters: runs.first().map_or(0, |(_, parameters, _)| *parameters),
        error: Spread::of(runs.iter().map(|(report, _, _)| report.as_ref())),
        paper: papers.map(|(error, _)| error),
        steps: training.recipe.total_steps(),
        seconds: runs.iter().map(|(_, _, seconds)| seconds).sum::<f64>() / runs.len().max(1) as f64,
        paper_seconds: papers.map(|(_, seconds)| seconds),
        setup: training.setup,
    }
}

impl Row {
    fn is_of(&self, setup: &Setup) -> bool {
        self.system == setup.system.name() && self.recipe == setup.edition
    }

    /// Its name in tables and figures.
    fn label(&self) -> String {
        match (self.method, self.prediction) {
            ("cfo", _) => "CFO, quintic".into(),
            ("autoregressive", Some("change")) => "autoregressive, change".into(),
            ("autoregressive", _) => "autoregressive, next state".into(),
            ("neural-ode", _) => "neural ODE".into(),
            (other, _) => other.into(),
        }
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("method", Left),
        ("relative L2", Right),
        ("± runs", Right),
        ("± trajectories", Right),
        ("paper", Right),
        ("training", Right),
        ("paper", Right),
    ]);
    for row in rows {
        let [error, runs, trajectories] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            row.label(),
            error,
            runs,
            trajectories,
            row.paper.map_or_else(|| "-".to_owned(), scientific),
            duration(row.seconds),
            row.paper_seconds.map_or_else(|| "-".to_owned(), duration),
        ]);
    }
    table
}

/// CFO against each other method: its error and its training time.
fn verdict(setup: &Setup, rows: &[Row]) -> String {
    let of_setup = || rows.iter().filter(|row| row.is_of(setup));
    let Some(flow) = of_setup().find(|row| row.method == "cfo") else { return String::new() };
    let against = |other: &Row| match (flow.error.relative_l2, other.error.relative_l2) {
        (Some(error), Some(others)) => {
            let time = flow.seconds / other.seconds;
            format!(
                "{:.2} times the error of {} in {time:.2} times its training time",
                error / others,
                other.label()
            )
        }
        (_, None) => format!("{} diverged", other.label()),
        (None, _) => "it diverged".into(),
    };
    let sentences: Vec<String> = of_setup().filter(|row| row.method != "cfo").map(against).collect();
    format!("{}: CFO has {}.\n", setup.title(), sentences.join("; "))
}

/// The first run of each method over time.
fn figure(setup: &Setup, rows: &[Row], runs: &[Vec<Measured>]) -> (String, Figure) {
    let first = rows.iter().zip(runs).filter_map(|(row, runs)| Some((row, runs.first()?.0.as_ref()?)));
    let series = first.filter(|(row, _)| row.is_of(setup)).map(|(row, report)| {
        let (color, line) = match (row.method, row.prediction) {
            ("cfo", _) => (0, Line::Solid),
            ("autoregressive", Some("change")) => (1, Line::Dashed),
            ("autoregressive", _) => (1, Line::Solid),
            _ => (2, Line::Solid),
        };
        let points = report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
        Series { label: row.label(), points, color, line }
    });
    error_over_time(setup, "Rollout error", series.collect())
}
