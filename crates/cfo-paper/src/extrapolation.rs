//! `extrapolation`: networks trained on the first half of every trajectory and rolled out over all of it.
//!
//! With time as an input, as in the paper, times beyond the training horizon are new to the network. Without it they are
//! not, which suits systems whose equations do not change with time.

use cfo::Report;
use cfo::numerics::Spline;
use serde::Serialize;

use crate::columns::{TableColumn, number, optional, words};
use crate::experiment::Laboratory;
use crate::findings::Findings;
use crate::network::{NetworkRow, TrainedNetwork, errors_over_time};
use crate::options::Reproduce;
use crate::spread::mean;
use crate::system::Setup;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::LineStyle;

/// Additional columns of this experiment; the errors are over the whole horizon.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrainedHorizon {
    trained_on: f64,
    time_embedding: bool,
    /// Mean over the snapshots of the second half; absent if a rollout diverged.
    second_half: Option<f64>,
}

impl TrainedHorizon {
    fn part(&self) -> &'static str {
        if self.trained_on < 1.0 { "first half" } else { "whole" }
    }
}

/// Networks with and without time as an input, trained on the whole horizon (one is table 1's) and on its first half.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let mut trainings = Vec::new();
    for time_embedding in [true, false] {
        for trained_on in [1.0, 0.5] {
            let mut training = NetworkTraining::flow(setup, Spline::Quintic, 1.0);
            let operator = &mut training.recipe.operator;
            if operator.operator().sees_time() != time_embedding {
                operator.set_time(time_embedding);
                training.name += if time_embedding { "-timed" } else { "-timeless" };
            }
            let mut part = "whole";
            if trained_on < 1.0 {
                training.horizon = trained_on;
                training.name += "-half";
                part = "first half";
            }
            let paper = published::figure("Table 11", setup.system.name(), "quintic", part);
            trainings.push(training.beside(paper.filter(|_| time_embedding)));
        }
    }
    trainings
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<TrainedHorizon>> {
    let measured = Laboratory::measure(
        arguments,
        |system| system.position().is_some(),
        trainings,
        |_, outcome| outcome.evaluate(),
    )?;
    let rows: Vec<NetworkRow<TrainedHorizon>> = measured.networks.iter().map(row).collect();
    let findings = Findings {
        title: "Extrapolation past the training horizon",
        about: "Relative L2 error of rollouts over the whole horizon. Quintic CFO is trained on all times of the whole horizon or of its first half. Time is \
                an input of the network, as in the paper, or is not."
            .into(),
        columns: columns(),
        verdict: String::new(),
        figures: errors_over_time(
            "Rollout error past the training horizon",
            &measured,
            &rows,
            Option::as_ref,
            |_, row| {
                let (time, line) = match row.own.time_embedding {
                    true => ("with time", LineStyle::Solid),
                    false => ("without time", LineStyle::Dashed),
                };
                (format!("{}, {time}", row.own.part()), usize::from(row.own.trained_on < 1.0), line)
            },
        ),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn row(network: &TrainedNetwork<Option<Report>>) -> NetworkRow<TrainedHorizon> {
    let second_half = |report: &Report| {
        let late = &report.per_time[report.per_time.len() / 2..];
        late.iter().map(|at| at.relative_l2).sum::<f64>() / late.len() as f64
    };
    let own = TrainedHorizon {
        trained_on: network.training.horizon,
        time_embedding: network.training.recipe.operator.operator().sees_time(),
        second_half: mean(network.runs.iter().map(|run| run.as_ref().map(second_half))),
    };
    network.row(Option::as_ref, own)
}

fn columns() -> Vec<TableColumn<NetworkRow<TrainedHorizon>>> {
    NetworkRow::columns(
        [
            words("trained on", |row| row.own.part().to_owned()),
            words("time as input", |row| if row.own.time_embedding { "yes".into() } else { "no".into() }),
        ],
        [
            number("second half", |row| optional(row.own.second_half)),
            NetworkRow::of_end(),
            NetworkRow::of_paper(),
        ],
    )
}
