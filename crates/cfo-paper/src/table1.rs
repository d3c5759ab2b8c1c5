//! `table1`: rollout errors of CFO on 100, 50 and 25 % of the times and of next-step prediction, with both recipes.
//!
//! The baseline is trained with every network that the paper compares, in the paper's form (the network predicts the next
//! state) and in a stronger one (it predicts the change); the best is marked. What our recipe changes, it changes for the baseline too.

use cfo::Report;
use cfo::numerics::Spline;
use serde::Serialize;

use crate::Made;
use crate::columns::{TableColumn, number, words};
use crate::experiment::{Laboratory, MeasuredNetworks};
use crate::findings::{Findings, setup_figure};
use crate::network::{NetworkRow, errors_over_time};
use crate::options::{Reproduce, Scale};
use crate::published::percent;
use crate::system::{KURAMOTO_SIVASHINSKY, Setup};
use crate::training::NetworkTraining;
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::scientific;

const KEEP_RATES: [f64; 3] = [1.0, 0.5, 0.25];
const SPLINES: [Spline; 2] = [Spline::Linear, Spline::Quintic];

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BaselineRank {
    /// Whether it is the best of the baseline's rows of this system and recipe; none for CFO.
    best: Option<bool>,
}

fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let mut trainings: Vec<NetworkTraining> = setup
        .system
        .backbones
        .iter()
        .flat_map(|backbone| {
            [false, true].map(|residual| NetworkTraining::baseline(setup, backbone, residual))
        })
        .collect();
    for spline in SPLINES {
        trainings.extend(KEEP_RATES.map(|keep_rate| NetworkTraining::flow(setup, spline, keep_rate)));
    }
    trainings
}

type Course = (Option<Report>, Vec<(f64, f64)>);

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<BaselineRank>> {
    let measured = Laboratory::measure(
        arguments,
        // The paper's four systems and the varied dam break.
        |system| system.name() != KURAMOTO_SIVASHINSKY,
        trainings,
        |_, outcome| Ok((outcome.evaluate()?, outcome.losses.clone())),
    )?;
    let networks = measured.networks.iter();
    let mut rows: Vec<NetworkRow<BaselineRank>> =
        networks.map(|network| network.row(|run| run.0.as_ref(), BaselineRank { best: None })).collect();
    mark_best(&mut rows);
    let findings = Findings {
        title: "Table 1: rollout errors",
        about: "Relative L2 error of rollouts from the first snapshot over all snapshots, mean over the test trajectories and over runs. `± runs` is the standard deviation over runs, as in the \
                paper, `± trajectories` that over trajectories. The autoregressive model is trained on every snapshot. It predicts the next state, as in the paper, or the change (residual \
                autoregressive model, which the paper does not have); * marks the better one. Recipe `paper` has the paper's hyperparameters; `ours` has the same data and network and at most as \
                many steps and samples per step. `fine-tuned`: the last steps train through the solver."
            .into(),
        columns: columns(),
        verdict: measured.setups.iter().map(|setup| verdict(setup, &rows)).collect(),
        figures: figures(&measured, &rows),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn mark_best(rows: &mut [NetworkRow<BaselineRank>]) {
    let error = |row: &NetworkRow<BaselineRank>| row.error.relative_l2.unwrap_or(f64::INFINITY);
    for i in 0..rows.len() {
        if rows[i].prediction.is_some() {
            let rivals = rows.iter().filter(|row| row.is_of(&rows[i].setup) && row.prediction.is_some());
            let least = rivals.map(error).fold(f64::INFINITY, f64::min);
            rows[i].own.best = Some(error(&rows[i]) <= least && least.is_finite());
        }
    }
}

fn columns() -> Vec<TableColumn<NetworkRow<BaselineRank>>> {
    NetworkRow::columns(
        [
            words("method", |row| row.label() + if row.own.best == Some(true) { " *" } else { "" }),
            number("times", |row| percent(row.keep_rate)),
        ],
        [NetworkRow::of_end(), NetworkRow::of_paper(), NetworkRow::of_training()],
    )
}

/// The conclusions for a system and a recipe: quintic CFO on a quarter of the times against the baseline on all, CFO on all times
/// against the stronger baseline, and which figures are worse than the paper's.
fn verdict(setup: &Setup, rows: &[NetworkRow<BaselineRank>]) -> String {
    let of_setup = || rows.iter().filter(|row| row.is_of(setup));
    let flow = |keep_rate: f64| {
        let quintic =
            of_setup().find(|row| row.spline.as_deref() == Some("quintic") && row.keep_rate == keep_rate);
        quintic.and_then(|row| row.error.relative_l2)
    };
    let least = |prediction: &str| {
        let forms = of_setup().filter(|row| row.prediction == Some(prediction));
        forms.filter_map(|row| row.error.relative_l2).min_by(f64::total_cmp)
    };
    let mut sentences = Vec::new();
    match flow(0.25) {
        None => sentences.push("Quintic CFO on 25 % of the times diverged".to_owned()),
        Some(error) => {
            for (form, baseline) in [("next state", least("next-state")), ("change", least("change"))] {
                sentences.push(against(error, form, baseline));
            }
        }
    }
    sentences.extend(stronger_baseline(flow(1.0), least("change")));
    let worse: Vec<String> = of_setup()
        .filter(|row| row.paper.is_some_and(|paper| row.error.relative_l2.is_none_or(|error| error > paper)))
        .map(|row| format!("{} on {}", row.label(), percent(row.keep_rate)))
        .collect();
    if setup.scale == Scale::Paper && !worse.is_empty() {
        sentences.push(format!("Worse than the paper's number: {}", worse.join("; ")));
    }
    format!("{}: {}.\n", setup.title(), sentences.join(". "))
}

fn against(error: f64, form: &str, baseline: Option<f64>) -> String {
    let Some(baseline) = baseline else {
        return format!("The autoregressive model that predicts the {form} diverged");
    };
    let reduction = 100.0 * (1.0 - error / baseline);
    let word = if reduction >= 0.0 { "less" } else { "more" };
    format!(
        "Quintic CFO on 25 % of the times has {:.0} % {word} error than the autoregressive model that predicts the {form}, on all times",
        reduction.abs()
    )
}

/// Whether predicting the change on all times is better than CFO on all times.
fn stronger_baseline(flow: Option<f64>, change: Option<f64>) -> Option<String> {
    let (flow, change) = (flow?, change?);
    let verdict = if change < flow { "is better than" } else { "is no better than" };
    Some(format!(
        "On all times, the residual autoregressive model ({}) {verdict} quintic CFO ({})",
        scientific(change),
        scientific(flow)
    ))
}

/// Curves of the first run of each row, over time and over training steps, setup by setup.
fn figures(measured: &MeasuredNetworks<Course>, rows: &[NetworkRow<BaselineRank>]) -> Vec<(String, Figure)> {
    let errors = errors_over_time("Rollout error", measured, rows, |run| run.0.as_ref(), |_, row| look(row));
    let losses = measured.setups.iter().map(|setup| loss_figure(setup, measured, rows));
    let wide = |(stem, figure)| (stem, Figure { size: (820, 420), ..figure });
    errors.into_iter().zip(losses).flat_map(|(error, loss)| [error, loss]).map(wide).collect()
}

/// The training loss of CFO, linear and quintic: losses of other methods are not comparable.
fn loss_figure(
    setup: &Setup,
    measured: &MeasuredNetworks<Course>,
    rows: &[NetworkRow<BaselineRank>],
) -> (String, Figure) {
    let networks = rows.iter().zip(&measured.networks);
    let series =
        networks.filter(|(row, _)| row.is_of(setup) && row.method == "cfo").filter_map(|(row, one)| {
            let (label, color, line) = look(row);
            Some(Curve::new(label, one.runs.first()?.1.clone(), color, line))
        });
    let axes = [Axis::linear("step"), Axis::logarithmic("loss (1: nothing changes)")];
    setup_figure(setup, "training-loss", "Training loss of CFO", axes, series.collect())
}

/// The label, colour and line of a row's curves: one colour per method, one line style per keep rate.
fn look(row: &NetworkRow<BaselineRank>) -> (String, usize, LineStyle) {
    let line = match row.keep_rate {
        rate if rate >= 1.0 && row.prediction != Some("change") => LineStyle::Solid,
        rate if rate >= 0.5 => LineStyle::Dashed,
        _ => LineStyle::Dotted,
    };
    let backbone = || row.setup.system.backbones.iter().position(|&kind| kind == row.operator);
    let color = match row.spline.as_deref() {
        Some("quintic") => 0,
        Some(_) => 2,
        None => [1, 3, 4][backbone().unwrap_or(0) % 3],
    };
    (format!("{}, {}", row.label(), percent(row.keep_rate)), color, line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verdict_says_where_the_stronger_baseline_wins() {
        let said = |flow, change| stronger_baseline(Some(flow), Some(change)).unwrap();
        assert!(said(6.0e-3, 4.0e-3).contains("(4.00e-3) is better than quintic CFO (6.00e-3)"));
        assert!(said(4.0e-3, 6.0e-3).contains("is no better than"));
        assert_eq!(stronger_baseline(None, Some(1.0)), None);
    }
}
