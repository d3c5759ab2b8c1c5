//! `quickstart`: the paper's claim in minutes on a laptop.
//!
//! On the Lorenz system, a continuous flow operator sees a random quarter of every trajectory's times, the autoregressive
//! baseline all of them; both have the same network, normalised values, the same steps, batch and learning rate.

use std::str::FromStr;

use anyhow::Result;
use cfo::data::Split;
use cfo::data::simulate::Lorenz;
use cfo::engine::Device;
use cfo::{CfoError, Recipe, Session, Solver, StepReport, TrajectorySet, evaluate, train};
use serde::Serialize;

use super::{Document, Record};
use crate::args::{self, Scale};
use crate::diagnostics::say;
use crate::interrupt;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::progress::Training;
use crate::report::{Alignment, Table, scientific};

/// What both methods share; the sizes are the paper's, the budget is a laptop's.
const RECIPE: &str = r#"
[operator]
kind = "mlp"
time_embedding = false

[path]
spline = "quintic"
stencil = 5

[train]
schedule = "cosine"
learning_rate = 2e-3
batch = 512
ema = 0.99
report_every = 200
validate_every = 0
checkpoint_every = 1000000
"#;

/// A method of the table.
struct Method {
    name: &'static str,
    label: &'static str,
    spline: Option<&'static str>,
    keep_rate: f64,
    overrides: &'static [&'static str],
    paper: f64,
}

const METHODS: [Method; 2] = [
    Method {
        name: "cfo",
        label: "CFO, quintic, 25 % of the times",
        spline: Some("quintic"),
        keep_rate: 0.25,
        overrides: &["data.keep_rate=0.25"],
        paper: 6.82e-2,
    },
    Method {
        name: "autoregressive",
        label: "autoregressive, all times",
        spline: None,
        keep_rate: 1.0,
        overrides: &["objective.kind=autoregressive"],
        paper: 9.04e-2,
    },
];

#[derive(Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    method: &'static str,
    spline: Option<&'static str>,
    keep_rate: f64,
    /// Mean over seeds and test trajectories.
    relative_l2: f64,
    /// Of each seed.
    per_seed: Vec<f64>,
    paper: f64,
    steps: u32,
    seconds: f64,
}

/// How much is spent.
struct Budget {
    split: [usize; 3],
    steps: u32,
    seeds: u64,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Record<Document<Row>>> {
    let budget = match arguments.scale {
        Scale::Smoke => Budget { split: [1000, 50, 100], steps: 5000, seeds: 3 },
        Scale::Paper => Budget { split: [9000, 500, 500], steps: 200_000, seeds: 3 },
    };
    let interrupt = interrupt::flag()?;
    let device = Device::from_str(&arguments.device).map_err(CfoError::from)?;
    say(&format!("simulating {} Lorenz trajectories", budget.split.iter().sum::<usize>()));
    let set =
        TrajectorySet::simulate(&Lorenz::default(), budget.split.iter().sum(), arguments.seed, interrupt)?
            .with_split(budget.split)?;
    let test: Vec<_> = set.part(Split::Test).map(|(_, trajectory)| trajectory).collect();

    let (mut rows, mut curves, mut losses) = (Vec::new(), Vec::new(), Vec::new());
    for (position, method) in METHODS.iter().enumerate() {
        let (mut per_seed, mut seconds) = (Vec::new(), 0.0);
        for seed in 0..budget.seeds {
            let overrides = method.overrides.iter().map(|&set| set.to_owned());
            let budgeted =
                [format!("train.steps={}", budget.steps), format!("train.seed={}", arguments.seed + seed)];
            let recipe = Recipe::parse(RECIPE, &overrides.chain(budgeted).collect::<Vec<_>>())?;
            say(&format!("training: {}, seed {}", method.label, recipe.train.seed));
            let mut progress = Training::new(recipe.train.steps);
            let mut loss = Vec::new();
            let mut observer = |report: &StepReport| {
                loss.push((f64::from(report.step), report.loss));
                progress.report(report);
            };
            let session = Session { device, folder: None, resume: false, interrupt, observer: &mut observer };
            let mut trained = train(&recipe, &set, session)?;
            drop(progress);
            let solver = Solver::from_config(&recipe.evaluate)?;
            let prefix = trained.prefix();
            let found = evaluate(&trained.model, &mut trained.memory, &test, &solver, prefix)?;
            say(&format!(
                "relative L2 error {:.4e} on {} test trajectories",
                found.relative_l2.mean,
                test.len()
            ));
            per_seed.push(found.relative_l2.mean);
            seconds += trained.seconds;
            if seed == 0 {
                let points = found.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
                curves.push(Series {
                    label: method.label.into(),
                    points,
                    color: position,
                    line: Line::Solid,
                });
                losses.push(Series {
                    label: method.label.into(),
                    points: loss,
                    color: position,
                    line: Line::Solid,
                });
            }
        }
        rows.push(Row {
            system: "lorenz",
            method: method.name,
            spline: method.spline,
            keep_rate: method.keep_rate,
            relative_l2: per_seed.iter().sum::<f64>() / per_seed.len() as f64,
            per_seed,
            paper: method.paper,
            steps: budget.steps,
            seconds,
        });
    }
    Ok(record(arguments, rows, curves, losses, &budget))
}

fn record(
    arguments: &args::Reproduce,
    rows: Vec<Row>,
    curves: Vec<Series>,
    losses: Vec<Series>,
    budget: &Budget,
) -> Record<Document<Row>> {
    let mut table = Table::new([
        ("method", Alignment::Left),
        ("relative L2", Alignment::Right),
        ("each seed", Alignment::Left),
        ("paper", Alignment::Right),
    ]);
    for (row, method) in rows.iter().zip(&METHODS) {
        let each: Vec<String> = row.per_seed.iter().map(|&error| scientific(error)).collect();
        table.push([
            method.label.to_owned(),
            scientific(row.relative_l2),
            each.join(", "),
            scientific(row.paper),
        ]);
    }
    let reduction = 100.0 * (1.0 - rows[0].relative_l2 / rows[1].relative_l2);
    let word = if reduction >= 0.0 { "less" } else { "more" };
    let verdict = format!(
        "CFO on a quarter of the times has {:.0} % {word} error than next-step prediction on all (the paper: 25 % less).",
        reduction.abs()
    );
    let setting = format!(
        "Lorenz, {} training trajectories, {} steps of 512 samples, {} seeds, rollouts of 1000 steps from the first snapshot.",
        budget.split[0], budget.steps, budget.seeds
    );
    let text = format!("{setting}\n\n{}\n{verdict}\n", table.text());
    let markdown = format!(
        "# Quickstart\n\n{setting} The autoregressive network predicts the next state, as the paper's does.\n\n{}\n{verdict}\n\n\
         ![error over time](error-over-time.png)\n\n![training loss](training-loss.png)\n\n    cfo reproduce quickstart --seed {}\n",
        table.markdown(),
        arguments.seed
    );
    let axis = |label: &str, scale| Axis { label: label.into(), scale };
    let over_time = Figure {
        title: "Rollout error on the Lorenz system".into(),
        x: axis("time", AxisScale::Linear),
        y: axis("relative L2 error", AxisScale::Logarithmic),
        series: curves,
        size: (640, 400),
    };
    let loss = Figure {
        title: "Training loss (each method's own)".into(),
        x: axis("step", AxisScale::Linear),
        y: axis("mean squared error", AxisScale::Logarithmic),
        series: losses,
        size: (640, 400),
    };
    let document = Document { target: arguments.target.name(), scale: arguments.scale, rows };
    Record {
        document,
        text,
        markdown,
        figures: vec![("error-over-time".into(), over_time), ("training-loss".into(), loss)],
    }
}
