//! `table1`: rollout errors on the four systems, for CFO on 100, 50 and 25 % of the times and next-step prediction on all, each
//! with the paper's recipe and with ours.
//!
//! The baseline is trained with every network that the paper compares, in the paper's form (the network predicts the next
//! state) and in a stronger one (it predicts the change); the best is marked. What our recipe changes, it changes for the baseline too.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use serde::Serialize;

use super::experiment::{Laboratory, Outcome};
use super::findings::{Findings, error_over_time, marked};
use super::spread::Spread;
use super::system::{Setup, System};
use super::training::Training;
use super::{Document, Record};
use crate::args::{self, Scale};
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

const KEEP_RATES: [f64; 3] = [1.0, 0.5, 0.25];
const SPLINES: [Spline; 2] = [Spline::Linear, Spline::Quintic];

/// The paper's Table 1: for each system, linear then quintic, at the keep rates in order.
const PAPER: [[[f64; 3]; 2]; 4] = [
    [[6.42e-2, 7.85e-2, 9.39e-2], [4.53e-2, 4.75e-2, 6.82e-2]],
    [[5.75e-3, 8.91e-3, 1.04e-2], [5.89e-3, 6.97e-3, 7.09e-3]],
    [[4.35e-2, 6.88e-2, 7.25e-2], [4.37e-2, 6.19e-2, 5.32e-2]],
    [[5.93e-3, 7.64e-3, 1.69e-2], [4.56e-3, 6.57e-3, 1.55e-2]],
];

/// The paper's autoregressive networks (next state), by system and kind.
const PAPER_BASELINE: [(&str, &str, f64); 8] = [
    ("lorenz", "mlp", 9.04e-2),
    ("burgers", "mlp", 3.34e-2),
    ("burgers", "unet", 2.56),
    ("burgers", "fno", 1.16),
    ("diffusion-reaction", "unet", 4.23e-1),
    ("diffusion-reaction", "dit", 9.21e-1),
    ("shallow-water", "unet", 3.16e-1),
    ("shallow-water", "dit", 9.04e-2),
];

/// The paper's error of CFO on a system, with a spline, at a keep rate.
pub(super) fn paper(system: &System, spline: Spline, keep_rate: f64) -> Option<f64> {
    let of_system = PAPER[system.position()?];
    let spline = SPLINES.iter().position(|&name| name == spline)?;
    let rate = KEEP_RATES.iter().position(|&rate| rate == keep_rate)?;
    Some(of_system[spline][rate])
}

/// The paper's error of next-state prediction on a system with a network.
pub(super) fn paper_baseline(system: &System, backbone: &str) -> Option<f64> {
    let found = PAPER_BASELINE.iter().find(|(name, kind, _)| *name == system.name() && *kind == backbone);
    found.map(|(_, _, error)| *error)
}

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    method: &'static str,
    operator: &'static str,
    spline: Option<String>,
    /// `next-state` or `change`, for the baseline.
    prediction: Option<&'static str>,
    keep_rate: f64,
    #[serde(flatten)]
    error: Spread,
    /// The earlier name of `std_trajectories`.
    std: Option<f64>,
    /// The best of the baseline's rows of this system and recipe.
    best: Option<bool>,
    paper: Option<f64>,
    parameters: usize,
    /// Those of fine-tuning included.
    steps: u32,
    finetune_steps: u32,
    /// Of one training run, mean over the runs.
    seconds: f64,
    #[serde(skip)]
    setup: Setup,
}

fn trainings(setup: Setup) -> Vec<Training> {
    let baselines = baselines(setup.system, setup.scale).into_iter();
    let mut trainings: Vec<Training> = baselines
        .flat_map(|backbone| [false, true].map(|residual| Training::baseline(setup, backbone, residual)))
        .collect();
    for spline in SPLINES {
        trainings.extend(KEEP_RATES.map(|keep_rate| Training::flow(setup, spline, keep_rate)));
    }
    trainings
}

/// All networks that the paper compares; for `smoke` only CFO's own and, where it differs, the paper's best.
fn baselines(system: &'static System, scale: Scale) -> Vec<&'static str> {
    let matters = |backbone: &str| backbone == system.best_baseline || backbone == system.backbones[0];
    system.backbones.iter().copied().filter(|backbone| scale == Scale::Paper || matters(backbone)).collect()
}

/// What is kept of a run.
struct Measured {
    report: Option<Report>,
    losses: Vec<(f64, f64)>,
    parameters: usize,
    steps: u32,
    finetune_steps: u32,
    seconds: f64,
}

fn measure(outcome: Outcome<'_>) -> Result<Measured> {
    Ok(Measured {
        report: outcome.evaluate()?,
        parameters: outcome.trained.model().parameters()?,
        steps: outcome.recipe().total_steps(),
        finetune_steps: outcome.recipe().finetune.steps,
        seconds: outcome.seconds,
        losses: outcome.losses,
    })
}

fn row(training: &Training, runs: &[Measured]) -> Row {
    let error = Spread::of(runs.iter().map(|run| run.report.as_ref()));
    let prediction = training.prediction();
    Row {
        system: training.system().name(),
        recipe: training.setup.edition,
        method: training.method(),
        operator: training.recipe.operator.name(),
        spline: prediction.is_none().then(|| training.recipe.path.spline.to_string()),
        prediction,
        keep_rate: training.recipe.data.keep_rate,
        std: error.std_trajectories,
        error,
        best: None,
        paper: training.paper,
        parameters: runs.first().map_or(0, |run| run.parameters),
        steps: runs.first().map_or(0, |run| run.steps),
        finetune_steps: runs.first().map_or(0, |run| run.finetune_steps),
        seconds: runs.iter().map(|run| run.seconds).sum::<f64>() / runs.len().max(1) as f64,
        setup: training.setup,
    }
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| system.is_of_table1())?;
    let trainings: Vec<Training> = setups.iter().flat_map(|&setup| trainings(setup)).collect();
    let Some(runs) = laboratory.each(&trainings, |_, outcome| measure(outcome))? else { return Ok(None) };
    let mut rows: Vec<Row> =
        trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    mark_best(&mut rows);
    let figures = setups.iter().flat_map(|setup| figures(setup, &rows, &runs)).collect();
    let findings = Findings {
        title: "Table 1: rollout errors",
        about: "Relative L2 error of rollouts over all snapshots from the first, mean over the test trajectories and over runs. `± runs` is the deviation over runs, as in the \
                paper, `± trajectories` that over trajectories. The autoregressive network sees every snapshot and predicts the next state, as in the paper, or the \
                change; * marks its best. Recipe `paper` is the paper's; `ours` has the same data and network and at most as many steps and samples a step. `fine-tuned`: the last steps train \
                through the solver."
            .into(),
        table: table(&rows),
        verdict: setups.iter().map(|setup| verdict(setup, &rows)).collect(),
        figures,
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

impl Row {
    fn is_of(&self, setup: &Setup) -> bool {
        self.system == setup.system.name() && self.recipe == setup.edition
    }
}

/// Marks the baseline's best row of each system and recipe.
fn mark_best(rows: &mut [Row]) {
    let error = |row: &Row| row.error.relative_l2.unwrap_or(f64::INFINITY);
    for i in 0..rows.len() {
        if rows[i].prediction.is_some() {
            let rivals = rows.iter().filter(|row| row.is_of(&rows[i].setup) && row.prediction.is_some());
            let least = rivals.map(error).fold(f64::INFINITY, f64::min);
            rows[i].best = Some(error(&rows[i]) <= least && least.is_finite());
        }
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("method", Left),
        ("times", Right),
        ("relative L2", Right),
        ("± runs", Right),
        ("± trajectories", Right),
        ("at the end", Right),
        ("paper", Right),
        ("training", Right),
    ]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), scientific);
    for row in rows {
        let star = if row.best == Some(true) { " *" } else { "" };
        let [error, runs, trajectories] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            format!("{}{star}", label(row)),
            percent(row.keep_rate),
            error,
            runs,
            trajectories,
            number(row.error.final_time),
            number(row.paper),
            format!("{:.0} s", row.seconds),
        ]);
    }
    table
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn label(row: &Row) -> String {
    match (&row.spline, row.prediction) {
        (Some(spline), _) if row.finetune_steps > 0 => format!("CFO, {spline}, fine-tuned"),
        (Some(spline), _) => format!("CFO, {spline}"),
        (None, Some("change")) => format!("autoregressive {}, change", row.operator),
        (None, _) => format!("autoregressive {}, next state", row.operator),
    }
}

/// The conclusions for a system and a recipe: quintic CFO on a quarter of the times against the baseline on all, CFO on all times
/// against the stronger baseline, and which figures are worse than the paper's.
fn verdict(setup: &Setup, rows: &[Row]) -> String {
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
        .map(|row| format!("{} on {}", label(row), percent(row.keep_rate)))
        .collect();
    if setup.scale == Scale::Paper && !worse.is_empty() {
        sentences.push(format!("Worse than the paper's figure: {}", worse.join("; ")));
    }
    format!("{}: {}.\n", setup.title(), sentences.join(". "))
}

fn against(error: f64, form: &str, baseline: Option<f64>) -> String {
    let Some(baseline) = baseline else {
        return format!("The baseline that predicts the {form} diverged");
    };
    let reduction = 100.0 * (1.0 - error / baseline);
    let word = if reduction >= 0.0 { "less" } else { "more" };
    format!(
        "Quintic CFO on 25 % of the times has {:.0} % {word} error than the baseline that predicts the {form} on all",
        reduction.abs()
    )
}

/// Whether predicting the change on all times is better than CFO on all times.
fn stronger_baseline(flow: Option<f64>, change: Option<f64>) -> Option<String> {
    let (flow, change) = (flow?, change?);
    let verdict = if change < flow { "is better than" } else { "is no better than" };
    Some(format!(
        "On all times, where both see every snapshot of a uniform grid, the baseline that predicts the change ({}) {verdict} quintic CFO ({})",
        scientific(change),
        scientific(flow)
    ))
}

/// Curves of the first run of each row, over time and over training steps.
fn figures(setup: &Setup, rows: &[Row], runs: &[Vec<Measured>]) -> [(String, Figure); 2] {
    let (mut errors, mut losses) = (Vec::new(), Vec::new());
    for (at, runs) in runs.iter().enumerate() {
        let Some(first) = runs.first() else { continue };
        if let Some(report) = &first.report {
            errors.push((at, report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect()));
        }
        losses.push((at, first.losses.clone()));
    }
    [error_figure(setup, rows, &errors), loss_figure(setup, rows, &losses)]
}

/// Position of a row and its curve.
type Curve = (usize, Vec<(f64, f64)>);

/// The error over time of the system's rows.
fn error_figure(setup: &Setup, rows: &[Row], curves: &[Curve]) -> (String, Figure) {
    let (stem, figure) = error_over_time(setup, "Rollout error", series(setup, rows, curves, |_| true));
    (stem, Figure { size: (820, 420), ..figure })
}

/// The training loss of CFO, linear and quintic: losses of other methods are not comparable.
fn loss_figure(setup: &Setup, rows: &[Row], losses: &[Curve]) -> (String, Figure) {
    let figure = Figure {
        title: format!("Training loss of CFO: {}", setup.title()),
        x: Axis { label: "step".into(), scale: AxisScale::Linear },
        y: Axis { label: "mean squared error".into(), scale: AxisScale::Logarithmic },
        series: series(setup, rows, losses, |row| row.method == "cfo"),
        size: (820, 420),
    };
    (format!("training-loss-{}", setup.stem()), figure)
}

/// Curves of a system's rows: one colour per method, one line style per keep rate.
fn series(setup: &Setup, rows: &[Row], curves: &[Curve], chosen: impl Fn(&Row) -> bool) -> Vec<Series> {
    let mut series = Vec::new();
    for (row, points) in curves.iter().map(|(at, points)| (&rows[*at], points)) {
        if !row.is_of(setup) || !chosen(row) {
            continue;
        }
        let line = match row.keep_rate {
            rate if rate >= 1.0 && row.prediction != Some("change") => Line::Solid,
            rate if rate >= 0.5 => Line::Dashed,
            _ => Line::Dotted,
        };
        let backbone = || setup.system.backbones.iter().position(|&kind| kind == row.operator);
        let color = match row.spline.as_deref() {
            Some("quintic") => 0,
            Some(_) => 2,
            None => [1, 3, 4][backbone().unwrap_or(0) % 3],
        };
        let label = format!("{}, {:.0} %", label(row), 100.0 * row.keep_rate);
        series.push(Series { label, points: points.clone(), color, line });
    }
    series
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
