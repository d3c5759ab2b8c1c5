//! `baselines`: errors and seconds per training batch of CFO and other methods.

use cfo::numerics::Spline;
use cfo::objective::{ObjectiveConfig, ThroughSolver};
use serde::Serialize;

use crate::columns::{TableColumn, counted, number, optional};
use crate::experiment::Laboratory;
use crate::findings::Findings;
use crate::network::{NetworkRow, errors_over_time, label};
use crate::options::Reproduce;
use crate::side_by_side::Gallery;
use crate::system::Setup;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::LineStyle;
use cfo_view::text::scientific;

/// The paper's methods beside CFO and the neural ODE, each on the systems that it tries it on.
const METHODS: [&str; 2] = ["pde-refiner", "conditional-flow-matching"];

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Costs {
    seconds_per_batch: f64,
    paper_seconds_per_batch: Option<f64>,
    evaluations: Option<usize>,
    /// Seconds per rollout, computed in batches.
    seconds_per_trajectory: Option<f64>,
}

/// The paper's number about a method on a system.
fn paper(training: &NetworkTraining, column: &str) -> Option<f64> {
    published::figure("Table 3", training.system().name(), training.method(), column)
}

/// CFO on the states and every other method that the paper has on the system.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let flow = NetworkTraining::flow(setup, Spline::Quintic, 1.0);
    let neural = NetworkTraining::other(setup, ObjectiveConfig::NeuralOde(ThroughSolver::default()));
    // The paper has a neural ODE of Kuramoto-Sivashinsky too, in a table of its own.
    let neural = Some(neural).filter(|neural| paper(neural, "relative L2").is_some());
    let others = METHODS.iter().filter_map(|method| NetworkTraining::by(setup, method));
    let all = std::iter::once(flow).chain(neural).chain(others);
    all.map(|training| {
        let error = paper(&training, "relative L2");
        training.beside(error)
    })
    .collect()
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<Costs>> {
    let mut gallery = Gallery::default();
    let measured = Laboratory::measure(
        arguments,
        |system| system.position().is_some(),
        trainings,
        |training, outcome| {
            let report = outcome.evaluate()?;
            // Systems without space are not shown.
            if outcome.trained.model().shape().axes() > 0 {
                gallery.add(training, outcome)?;
            }
            Ok(report)
        },
    )?;
    let row = |network: &super::network::TrainedNetwork<Option<cfo::Report>>| {
        let first = network.runs.first().and_then(Option::as_ref);
        let costs = Costs {
            seconds_per_batch: network.seconds / f64::from(network.steps.max(1)),
            paper_seconds_per_batch: paper(&network.training, "seconds per batch"),
            evaluations: first.map(|report| report.evaluations),
            seconds_per_trajectory: first.map(|report| report.seconds_per_trajectory),
        };
        network.row(Option::as_ref, costs)
    };
    let rows: Vec<NetworkRow<Costs>> = measured.networks.iter().map(row).collect();
    let findings = Findings {
        title: "Other methods beside CFO",
        about: "Relative L2 error of rollouts, network evaluations per rollout and seconds per training batch, with the paper's numbers. All methods are trained on the \
                same data. For conditional flow matching the paper has a plot but no numbers. With `smoke` it is trained for half of CFO's steps, since each step takes much \
                longer."
            .into(),
        columns: columns(),
        verdict: String::new(),
        figures: errors_over_time("Rollout error by method", &measured, &rows, Option::as_ref, |color, row| {
            (label(row.method).to_owned(), color, LineStyle::Solid)
        }),
        pictures: gallery.pictures(&measured.setups, "side-by-side-"),
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn columns() -> Vec<TableColumn<NetworkRow<Costs>>> {
    NetworkRow::columns(
        [NetworkRow::of_method(), NetworkRow::of_size()],
        [
            NetworkRow::of_paper(),
            number("s per batch", |row| scientific(row.own.seconds_per_batch)),
            number("paper's", |row| optional(row.own.paper_seconds_per_batch)),
            number("evaluations", |row| counted(row.own.evaluations)),
        ],
    )
}
