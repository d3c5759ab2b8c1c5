//! `extrapolation`: networks trained on the first half of every trajectory and rolled out over all of it.
//!
//! With time as an input, as in the paper, times beyond the training horizon are new to the network. Without it they are
//! not, which suits systems whose equations do not change with time.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::operator::OperatorConfig;
use cfo::paper::Edition;
use serde::Serialize;

use super::experiment::Laboratory;
use super::findings::{Findings, error_over_time, marked};
use super::spread::{Spread, mean};
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Figure, Line, Series};
use crate::report::{Alignment, Table, scientific};

/// The paper's errors after training on the first half; those after training on the whole horizon are in table 1.
const PAPER_HALF: [f64; 4] = [3.67e-2, 7.94e-3, 4.78e-2, 2.28e-2];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    /// Share of the horizon that was trained on.
    trained_on: f64,
    /// Whether the network sees the time.
    time_embedding: bool,
    /// Over the whole horizon.
    #[serde(flatten)]
    error: Spread,
    /// Mean over the snapshots of the second half; absent if a rollout diverged.
    second_half: Option<f64>,
    paper: Option<f64>,
    #[serde(skip)]
    setup: Setup,
}

/// Networks with and without time as an input, each trained on the whole horizon and on its first half. The network of the
/// recipe on the whole horizon is that of table 1.
fn trainings(setup: Setup) -> Vec<Training> {
    let mut trainings = Vec::new();
    for time_embedding in [true, false] {
        for trained_on in [1.0, 0.5] {
            let mut training = Training::flow(setup, Spline::Quintic, 1.0);
            let seen = time_embedding_of(&mut training.recipe.operator);
            if *seen != time_embedding {
                *seen = time_embedding;
                training.name += if time_embedding { "-timed" } else { "-timeless" };
            }
            if trained_on < 1.0 {
                training.horizon = trained_on;
                training.name += "-half";
                training.paper = setup.system.position().map(|at| PAPER_HALF[at]);
            }
            training.paper = training.paper.filter(|_| time_embedding);
            trainings.push(training);
        }
    }
    trainings
}

fn time_embedding_of(operator: &mut OperatorConfig) -> &mut bool {
    match operator {
        OperatorConfig::Mlp(config) => &mut config.time_embedding,
        OperatorConfig::Fno(config) => &mut config.time_embedding,
        OperatorConfig::Unet(config) => &mut config.time_embedding,
        OperatorConfig::Dit(config) => &mut config.time_embedding,
    }
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.position().is_some())?;
    let trainings: Vec<Training> = setups.iter().flat_map(|&setup| trainings(setup)).collect();
    let Some(runs) = laboratory.each(&trainings, |_, outcome| outcome.evaluate())? else {
        return Ok(None);
    };
    let rows: Vec<Row> = trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    let findings = Findings {
        title: "Extrapolation past the training horizon",
        about: "Relative L2 error of rollouts over the whole horizon. Quintic CFO is trained on all times of the whole horizon or of its first half, with \
                time as an input of the network, as in the paper, and without."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: setups.iter().map(|setup| figure(setup, &rows, &runs)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

fn row(training: &Training, runs: &[Option<Report>]) -> Row {
    let second_half = |report: &Report| {
        let late = &report.per_time[report.per_time.len() / 2..];
        late.iter().map(|at| at.relative_l2).sum::<f64>() / late.len() as f64
    };
    Row {
        system: training.system().name(),
        recipe: training.setup.edition,
        trained_on: training.horizon,
        time_embedding: training.recipe.operator.time_embedding(),
        error: Spread::of(runs.iter().map(Option::as_ref)),
        second_half: mean(runs.iter().map(|run| run.as_ref().map(second_half))),
        paper: training.paper,
        setup: training.setup,
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("trained on", Left),
        ("time as input", Left),
        ("relative L2", Right),
        ("± runs", Right),
        ("± trajectories", Right),
        ("second half", Right),
        ("at the end", Right),
        ("paper", Right),
    ]);
    let number = |value: Option<f64>, missing: &str| value.map_or_else(|| missing.to_owned(), scientific);
    for row in rows {
        let [error, runs, trajectories] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            if row.trained_on < 1.0 { "first half".to_owned() } else { "whole".to_owned() },
            if row.time_embedding { "yes".to_owned() } else { "no".to_owned() },
            error,
            runs,
            trajectories,
            number(row.second_half, "-"),
            number(row.error.final_time, "-"),
            number(row.paper, "-"),
        ]);
    }
    table
}

/// The first run of each row over time.
fn figure(setup: &Setup, rows: &[Row], runs: &[Vec<Option<Report>>]) -> (String, Figure) {
    let first = rows.iter().zip(runs).filter_map(|(row, runs)| Some((row, runs.first()?.as_ref()?)));
    let of_setup = first.filter(|(row, _)| row.system == setup.system.name() && row.recipe == setup.edition);
    let series = of_setup.map(|(row, report)| {
        let part = if row.trained_on < 1.0 { "first half" } else { "whole" };
        let time = if row.time_embedding { "with time" } else { "without time" };
        Series {
            label: format!("{part}, {time}"),
            points: report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect(),
            color: usize::from(row.trained_on < 1.0),
            line: if row.time_embedding { Line::Solid } else { Line::Dashed },
        }
    });
    error_over_time(setup, "Rollout error past the training horizon", series.collect())
}
