//! `sparse`: the error against the share of the times that training sees, with and without refined paths.

use cfo::numerics::Spline;
use serde::Serialize;

use crate::Made;
use crate::columns::{TableColumn, number, words};
use crate::experiment::Laboratory;
use crate::findings::{Findings, setup_figure};
use crate::network::NetworkRow;
use crate::options::Reproduce;
use crate::system::Setup;
use crate::training::NetworkTraining;
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};

/// Shares of the times.
const RATES: [f64; 4] = [1.0, 0.5, 0.25, 0.12];
/// Rounds of refined paths.
const ROUNDS: u32 = 20;

/// Additional columns of this experiment.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SparsePath {
    /// Rounds of refined paths; 0 for splines through the snapshots alone.
    rounds: u32,
    /// The error relative to that of splines on all times.
    ratio: Option<f64>,
}

/// Splines on each share of the times, refined paths on all but the whole, and both autoregressive models on all times.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let spline = |rate| NetworkTraining::flow(setup, Spline::Quintic, rate).beside(None);
    let refined = |rate| spline(rate).refined(ROUNDS);
    let baseline =
        |residual| NetworkTraining::baseline(setup, setup.system.backbones[0], residual).beside(None);
    let flows = RATES.into_iter().map(spline).chain(RATES[1..].iter().copied().map(refined));
    flows.chain([false, true].map(baseline)).collect()
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<SparsePath>> {
    let measured = Laboratory::measure(arguments, |_| true, trainings, |_, outcome| outcome.evaluate())?;
    let row = |network: &crate::network::TrainedNetwork<_>| {
        network.row(Option::as_ref, SparsePath { rounds: network.training.recipe.refine.rounds, ratio: None })
    };
    let mut rows: Vec<NetworkRow<SparsePath>> = measured.networks.iter().map(row).collect();
    for setup in &measured.setups {
        let mut own = rows.iter_mut().filter(|row| row.is_of(setup));
        let Some(whole) = own.next() else { continue };
        let whole = whole.error.relative_l2;
        own.for_each(|row| {
            row.own.ratio = row.error.relative_l2.zip(whole).map(|(error, whole)| error / whole)
        });
    }
    let findings = Findings {
        title: "Error on sparse times, with and without refined paths",
        about: format!(
            "Relative L2 error of rollouts of quintic CFO trained on a random part of the times: with splines through the snapshots alone, and with {ROUNDS} rounds of `[refine]`, which fill \
             the gaps with the network's own solution. The autoregressive model predicts the next state, the residual one the change; both need all times. `ratio` is relative to CFO on all times."
        ),
        columns: columns(),
        verdict: String::new(),
        figures: measured.setups.iter().map(|setup| figure(setup, &rows)).collect(),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn columns() -> Vec<TableColumn<NetworkRow<SparsePath>>> {
    NetworkRow::columns(
        [
            words("method", name),
            number("times", |row: &NetworkRow<SparsePath>| format!("{:.0} %", 100.0 * row.keep_rate)),
        ],
        [
            number("ratio", |row| {
                row.own.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            }),
            NetworkRow::of_training(),
        ],
    )
}

/// Returns the name of a method in tables and plots.
fn name(row: &NetworkRow<SparsePath>) -> String {
    match (row.prediction, row.own.rounds) {
        (Some("change"), _) => "residual AR".into(),
        (Some(_), _) => "AR".into(),
        (None, 0) if row.finetune_steps > 0 => "CFO, spline, fine-tuned".into(),
        (None, 0) => "CFO, spline".into(),
        (None, _) => "CFO, refined".into(),
    }
}

/// Draws the error over the share of the times; horizontal lines are the autoregressive models on all times.
fn figure(setup: &Setup, rows: &[NetworkRow<SparsePath>]) -> (String, Figure) {
    let of_setup = || rows.iter().filter(|row| row.is_of(setup));
    let flow = |refined: bool| -> Vec<(f64, f64)> {
        let chosen = of_setup().filter(|row| row.prediction.is_none());
        let chosen = chosen.filter(|row| row.keep_rate == 1.0 || (row.own.rounds > 0) == refined);
        chosen.filter_map(|row| Some((100.0 * row.keep_rate, row.error.relative_l2?))).collect()
    };
    let mut series = vec![
        Curve::new("CFO, refined", flow(true), 0, LineStyle::Solid),
        Curve::new("CFO, spline", flow(false), 1, LineStyle::Solid),
    ];
    for (color, row) in (2..).zip(of_setup().filter(|row| row.prediction.is_some())) {
        let line = row.error.relative_l2.map(|error| vec![(100.0 * RATES[3], error), (100.0, error)]);
        series.push(Curve::new(
            format!("{}, 100 %", name(row)),
            line.unwrap_or_default(),
            color,
            LineStyle::Dashed,
        ));
    }
    let axes = [Axis::logarithmic("times kept, %"), Axis::logarithmic("relative L2 error")];
    setup_figure(setup, "error-over-times", "Error on sparse times", axes, series)
}
