//! `backbones`: the same systems with each network that the paper compares, everything else fixed.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use serde::Serialize;

use super::experiment::Laboratory;
use super::findings::{Findings, error_over_time, marked};
use super::spread::Spread;
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Figure, Line, Series};
use crate::report::{Alignment, Table, scientific};

/// The paper's errors of quintic CFO on all times with networks other than table 1's, by system and network.
const PAPER: [(&str, &str, f64); 3] =
    [("burgers", "fno", 6.8e-3), ("diffusion-reaction", "dit", 8.21e-2), ("shallow-water", "dit", 8.3e-3)];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    operator: &'static str,
    parameters: usize,
    #[serde(flatten)]
    error: Spread,
    /// The earlier name of `std_trajectories`.
    std: Option<f64>,
    paper: Option<f64>,
    /// Of one training run, mean over the runs.
    seconds: f64,
    #[serde(skip)]
    setup: Setup,
}

fn trainings(setup: Setup) -> Vec<Training> {
    let on = |backbone: &&'static str| {
        let mut training = Training::flow(setup, Spline::Quintic, 1.0).on(backbone);
        let other = PAPER.iter().find(|(name, kind, _)| *name == setup.system.name() && kind == backbone);
        training.paper = training.paper.or(other.map(|(_, _, error)| *error));
        training
    };
    setup.system.backbones.iter().map(on).collect()
}

/// What is kept of a run: its errors, the network's size, the seconds of training.
type Measured = (Option<Report>, usize, f64);

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.position().is_some() && system.backbones.len() > 1)?;
    let trainings: Vec<Training> = setups.iter().flat_map(|&setup| trainings(setup)).collect();
    let measured = laboratory.each(&trainings, |_, outcome| {
        Ok((outcome.evaluate()?, outcome.trained.model().parameters()?, outcome.seconds))
    })?;
    let Some(runs) = measured else { return Ok(None) };
    let rows: Vec<Row> = trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    let findings = Findings {
        title: "CFO with different networks",
        about: "Relative L2 error of rollouts of quintic CFO trained on all times, by network; the recipes differ in the network alone. The \
                paper has no figure for CFO with the MLP on Burgers."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: setups.iter().map(|setup| figure(setup, &rows, &runs)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

fn row(training: &Training, runs: &[Measured]) -> Row {
    let error = Spread::of(runs.iter().map(|(report, _, _)| report.as_ref()));
    Row {
        system: training.system().name(),
        recipe: training.setup.edition,
        operator: training.recipe.operator.name(),
        parameters: runs.first().map_or(0, |(_, parameters, _)| *parameters),
        std: error.std_trajectories,
        error,
        paper: training.paper,
        seconds: runs.iter().map(|(_, _, seconds)| seconds).sum::<f64>() / runs.len().max(1) as f64,
        setup: training.setup,
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("network", Left),
        ("parameters", Right),
        ("relative L2", Right),
        ("± runs", Right),
        ("± trajectories", Right),
        ("paper", Right),
        ("training", Right),
    ]);
    for row in rows {
        let [error, runs, trajectories] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            row.operator.to_owned(),
            row.parameters.to_string(),
            error,
            runs,
            trajectories,
            row.paper.map_or_else(|| "-".to_owned(), scientific),
            format!("{:.0} s", row.seconds),
        ]);
    }
    table
}

/// The first run of each network over time.
fn figure(setup: &Setup, rows: &[Row], runs: &[Vec<Measured>]) -> (String, Figure) {
    let first = rows.iter().zip(runs).filter_map(|(row, runs)| Some((row, runs.first()?.0.as_ref()?)));
    let of_setup = first.filter(|(row, _)| row.system == setup.system.name() && row.recipe == setup.edition);
    let series = of_setup.enumerate().map(|(color, (row, report))| Series {
        label: row.operator.into(),
        points: report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect(),
        color,
        line: Line::Solid,
    });
    error_over_time(setup, "Rollout error by network", series.collect())
}
