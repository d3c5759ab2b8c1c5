//! `quickstart`: the paper's main claim in minutes on a laptop.
//!
//! On the Lorenz system, CFO is trained on a random quarter of every trajectory's times, the autoregressive and the residual
//! autoregressive model on all of them. All have the same network, normalised values, steps, batch and learning rate.

use anyhow::Result;
use cfo::objective::ObjectiveConfig;
use cfo::paper::{self, Edition};
use cfo::recipe::LearningRateSchedule;
use cfo::{CfoError, Device, Recipe, Report, Training, Trajectories, Watch};
use serde::Serialize;

use crate::Console;
use crate::columns::{TableColumn, number, optional, table, words};
use crate::options::{Reproduce, Scale};
use crate::published::percent;
use crate::spread::ErrorSpread;
use crate::{Made, Record, ReportDocument, published};
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::scientific;

const SYSTEM: &str = "lorenz";

/// Returns the common recipe: ours with a laptop's budget, and without time as an input, on which nothing depends.
fn recipe(budget: &Budget) -> Result<Recipe> {
    let mut recipe = paper::System::find(SYSTEM)?.recipe(Edition::Ours);
    recipe.operator.set_time(false);
    let train = &mut recipe.train;
    train.schedule = LearningRateSchedule::Cosine;
    (train.learning_rate, train.warmup, train.batch, train.steps) = (2e-3, 0, 512, budget.steps);
    (train.ema, train.clip) = (0.99, 0.0);
    (train.report_every, train.validate_every, train.checkpoint_every) = (200, 0, 1_000_000);
    Ok(recipe)
}

struct Method {
    name: &'static str,
    label: &'static str,
    spline: Option<&'static str>,
    keep_rate: f64,
    objective: ObjectiveConfig,
}

impl Method {
    fn paper(&self) -> Option<f64> {
        match (self.spline, self.objective) {
            (Some(spline), _) => published::figure("Table 1", SYSTEM, spline, &percent(self.keep_rate)),
            (None, ObjectiveConfig::Autoregressive { residual: true }) => None,
            (None, _) => published::next_state(SYSTEM, "mlp")[0],
        }
    }
}

const METHODS: [Method; 3] = [
    Method {
        name: "cfo",
        label: "CFO, quintic, 25 % of the times",
        spline: Some("quintic"),
        keep_rate: 0.25,
        objective: ObjectiveConfig::FlowMatching,
    },
    Method {
        name: "autoregressive",
        label: "autoregressive, all times",
        spline: None,
        keep_rate: 1.0,
        objective: ObjectiveConfig::Autoregressive { residual: false },
    },
    Method {
        name: "residual-autoregressive",
        label: "residual autoregressive, all times",
        spline: None,
        keep_rate: 1.0,
        objective: ObjectiveConfig::Autoregressive { residual: true },
    },
];

#[derive(Debug, Serialize)]
pub(crate) struct MethodRow {
    system: &'static str,
    method: &'static str,
    spline: Option<&'static str>,
    keep_rate: f64,
    #[serde(flatten)]
    error: ErrorSpread,
    paper: Option<f64>,
    steps: u32,
    seconds: f64,
    #[serde(skip)]
    label: &'static str,
}

struct Budget {
    split: [usize; 3],
    steps: u32,
}

struct Run {
    report: Report,
    losses: Vec<(f64, f64)>,
    seconds: f64,
}

pub(crate) fn run(arguments: &Reproduce) -> Made<MethodRow> {
    let system = paper::System::find(SYSTEM)?;
    let budget = match arguments.scale {
        Scale::Smoke => Budget { split: [1000, 50, 100], steps: 5000 },
        Scale::Paper => Budget { split: system.counts(), steps: system.recipe(Edition::Paper).train.steps },
    };
    let console = arguments.console;
    let interrupt = console.interrupt()?;
    let device = console.device(&arguments.device)?;
    let samples = budget.split.iter().sum();
    console.say(&format!("simulating {samples} Lorenz trajectories"));
    let set = Trajectories::simulate(&*system.equation(), samples, arguments.seed, interrupt)?
        .with_split(budget.split)?;
    let (mut rows, mut curves, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for (color, method) in METHODS.iter().enumerate() {
        let mut runs = Vec::new();
        for seed in arguments.training_seeds() {
            let mut recipe = recipe(&budget)?;
            (recipe.data.keep_rate, recipe.objective) = (method.keep_rate, method.objective);
            recipe.train.seed = seed;
            console.say(&format!("training: {}, seed {seed}", method.label));
            runs.push(once(&recipe, &set, device, console)?);
        }
        let series = |points| Curve::new(method.label, points, color, LineStyle::Solid);
        if let Some(first) = runs.first() {
            curves.push(series(first.report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect()));
            losses.push(series(first.losses.clone()));
        }
        rows.push(MethodRow {
            system: SYSTEM,
            method: method.name,
            spline: method.spline,
            keep_rate: method.keep_rate,
            error: ErrorSpread::of(runs.iter().map(|run| Some(&run.report))),
            paper: method.paper(),
            steps: budget.steps,
            seconds: runs.iter().map(|run| run.seconds).sum(),
            label: method.label,
        });
    }
    Ok(record(arguments, rows, curves, losses, &budget))
}

/// Trains once and rolls out the test trajectories.
fn once(recipe: &Recipe, set: &Trajectories, device: Device, console: &dyn Console) -> Result<Run> {
    let interrupt = console.interrupt()?;
    let mut progress = console.training(recipe.train.steps);
    let trained = Training::from_recipe(recipe)
        .device(device)
        .interrupt(interrupt)
        .observe(|report| progress.report(report))
        .fit(set)?;
    drop(progress);
    let report = trained.evaluate_each(&set.test(), false, Watch::default().with_interrupt(interrupt))?;
    if let Some(&divergence) = report.diverged.first() {
        return Err(CfoError::from(divergence).into());
    }
    console.say(&format!(
        "relative L2 error {:.4e} on {} test trajectories",
        report.relative_l2.mean,
        set.test().len()
    ));
    let losses = trained.history().iter().map(|report| (f64::from(report.step), report.loss)).collect();
    Ok(Run { report, losses, seconds: trained.seconds() })
}

fn record(
    arguments: &Reproduce,
    rows: Vec<MethodRow>,
    curves: Vec<Curve>,
    losses: Vec<Curve>,
    budget: &Budget,
) -> Record<MethodRow> {
    let (table, verdict) = (table(&columns(), &rows), verdict(&rows));
    let seeds = arguments.training_seeds().len();
    let setting = format!(
        "Lorenz, {} training trajectories, {} steps of 512 samples, {seeds} seeds, rollouts of 1000 steps from the first snapshot.",
        budget.split[0], budget.steps,
    );
    let text = format!("{setting}\n\n{}\n{verdict}\n", table.text());
    let markdown = format!(
        "# Quickstart\n\n{setting} The autoregressive model predicts the next state, as in the paper. The residual autoregressive \
         model predicts the change to the next state; the paper does not have it.\n\n{}\n{verdict}\n\n\
         ![error over time](error-over-time.png)\n\n![training loss](training-loss.png)\n\n    cfo reproduce quickstart --seed {} --seeds {seeds}\n",
        table.markdown(),
        arguments.seed,
    );
    let document = ReportDocument::new(arguments, rows);
    let figures = figures(curves, losses);
    Record { document, text, markdown, figures, pictures: vec![], files: vec![], failures: vec![] }
}

fn columns() -> Vec<TableColumn<MethodRow>> {
    vec![
        words("method", |row: &MethodRow| row.label.to_owned()),
        number("relative L2", |row: &MethodRow| optional(row.error.relative_l2)),
        number("± runs", |row: &MethodRow| optional(row.error.std_runs)),
        number("± trajectories", |row: &MethodRow| optional(row.error.std_trajectories)),
        words("each seed", |row: &MethodRow| {
            let each = row.error.per_seed.iter().flatten().map(|&error| scientific(error));
            each.collect::<Vec<_>>().join(", ")
        }),
        number("paper", |row: &MethodRow| optional(row.paper)),
    ]
}

fn verdict(rows: &[MethodRow]) -> String {
    let error =
        |at: usize| rows.get(at).and_then(|row: &MethodRow| row.error.relative_l2).unwrap_or(f64::NAN);
    let beside = |at: usize| {
        let reduction = 100.0 * (1.0 - error(0) / error(at));
        format!("{:.0} % {} error", reduction.abs(), if reduction >= 0.0 { "less" } else { "more" })
    };
    format!(
        "CFO on a quarter of the times has {} than the autoregressive model on all (the paper: 25 % less) and {} than the \
         residual autoregressive model on all.",
        beside(1),
        beside(2)
    )
}

fn figures(curves: Vec<Curve>, losses: Vec<Curve>) -> Vec<(String, Figure)> {
    let figure = |title: &str, x: &str, y: &str, series| {
        let (x, y) = (Axis::linear(x), Axis::logarithmic(y));
        Figure { title: title.into(), x, y, series, size: (640, 400) }
    };
    let over_time = figure("Rollout error on the Lorenz system", "time", "relative L2 error", curves);
    let loss = figure("Training loss (each method's own)", "step", "mean squared error", losses);
    vec![("error-over-time".into(), over_time), ("training-loss".into(), loss)]
}
