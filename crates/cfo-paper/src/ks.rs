//! `ks`: errors and training times on the Kuramoto-Sivashinsky equation, which is chaotic, every method on the same network.

use cfo::numerics::Spline;
use serde::Serialize;

use crate::columns::{TableColumn, number};
use crate::experiment::Laboratory;
use crate::findings::Findings;
use crate::network::{NetworkRow, errors_over_time};
use crate::options::Reproduce;
use crate::system::{KURAMOTO_SIVASHINSKY, Setup};
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::LineStyle;
use cfo_view::text::duration;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PaperTime {
    paper_seconds: Option<f64>,
}

/// Next-step prediction in the paper's form and in the stronger one, the neural ODE, then CFO.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let network = setup.system.backbones[0];
    let baselines = [false, true].map(|residual| NetworkTraining::baseline(setup, network, residual));
    let flow = NetworkTraining::flow(setup, Spline::Quintic, 1.0);
    let all = baselines.into_iter().chain(NetworkTraining::by(setup, "neural-ode")).chain([flow]);
    let beside = |training: NetworkTraining| {
        let error = paper(&training, "relative L2");
        training.beside(error)
    };
    all.map(beside).collect()
}

/// The paper's number about a method; it has no baseline that predicts the change.
fn paper(training: &NetworkTraining, column: &str) -> Option<f64> {
    let found = published::figure("Table 13", KURAMOTO_SIVASHINSKY, training.method(), column);
    found.filter(|_| training.prediction() != Some("change"))
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<PaperTime>> {
    let measured = Laboratory::measure(
        arguments,
        |system| system.name() == KURAMOTO_SIVASHINSKY,
        trainings,
        |_, outcome| outcome.evaluate(),
    )?;
    let networks = measured.networks.iter();
    let rows: Vec<NetworkRow<PaperTime>> = networks
        .map(|network| {
            let own = PaperTime { paper_seconds: paper(&network.training, "seconds") };
            network.row(Option::as_ref, own)
        })
        .collect();
    let findings = Findings {
        title: "The Kuramoto-Sivashinsky equation",
        about: "Relative L2 error of rollouts from the first snapshot over all snapshots, and the time of one training run without validation. All methods have the same network, steps and batch. The \
                residual autoregressive model, which predicts the change, is not in the paper. Our neural ODE is trained through one RK4 step per snapshot, the paper's through Tsit5 with tolerances."
            .into(),
        columns: columns(),
        verdict: measured.setups.iter().map(|setup| verdict(setup, &rows)).collect(),
        figures: errors_over_time("Rollout error", &measured, &rows, Option::as_ref, |_, row| {
            let (color, line) = match (row.method, row.prediction) {
                ("cfo", _) => (0, LineStyle::Solid),
                ("autoregressive", Some("change")) => (1, LineStyle::Dashed),
                ("autoregressive", _) => (1, LineStyle::Solid),
                _ => (2, LineStyle::Solid),
            };
            (row.label(), color, line)
        }),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn columns() -> Vec<TableColumn<NetworkRow<PaperTime>>> {
    let papers = number("paper's", |row: &NetworkRow<PaperTime>| {
        row.own.paper_seconds.map_or_else(|| "-".into(), duration)
    });
    NetworkRow::columns(
        [NetworkRow::of_method()],
        [NetworkRow::of_paper(), NetworkRow::of_training(), papers],
    )
}

/// CFO against each other method: its error and its training time.
fn verdict(setup: &Setup, rows: &[NetworkRow<PaperTime>]) -> String {
    let of_setup = || rows.iter().filter(|row| row.is_of(setup));
    let Some(flow) = of_setup().find(|row| row.method == "cfo") else { return String::new() };
    let against = |other: &NetworkRow<PaperTime>| match (flow.error.relative_l2, other.error.relative_l2) {
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
