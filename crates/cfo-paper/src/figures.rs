//! `figures`: CFO on a quarter of the times beside next-step prediction on all, on the worst and the median trajectory; and the
//! training losses of CFO and of the neural ODE on Lorenz.

use std::collections::HashMap;

use anyhow::Result;
use cfo::numerics::Spline;
use cfo::objective::{ObjectiveConfig, ThroughSolver};
use cfo::paper::Edition;
use serde::Serialize;

use crate::columns::{TableColumn, number, optional, words};
use crate::experiment::Laboratory;
use crate::findings::{Findings, marked, setup_figure};
use crate::network::label;
use crate::options::Reproduce;
use crate::published::percent;
use crate::side_by_side::Gallery;
use crate::system::Setup;
use crate::trained_run::TrainedRun;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::duration;

const LOSSES: &str = "lorenz";
const PICTURED: [&str; 3] = ["burgers", "diffusion-reaction", "shallow-water"];

/// A trajectory of a picture, or a training run of the figure of losses.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct TrajectoryRow {
    system: &'static str,
    recipe: Edition,
    method: &'static str,
    finetune_steps: u32,
    keep_rate: f64,
    /// `worst` or `median` by CFO's error; none for a loss.
    rank: Option<&'static str>,
    /// Its number among the test trajectories.
    trajectory: Option<usize>,
    /// Error of this trajectory; `None` if it diverged, and for a loss.
    relative_l2: Option<f64>,
    paper: Option<f64>,
    /// The last report's, in units in which a network that predicts no change has 1.
    loss: Option<f64>,
    seconds: f64,
    #[serde(skip)]
    setup: Setup,
}

/// CFO first: its errors choose the trajectories.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    if setup.system.name() == LOSSES {
        let objective = ObjectiveConfig::NeuralOde(ThroughSolver::default());
        return vec![
            NetworkTraining::flow(setup, Spline::Quintic, 1.0),
            NetworkTraining::other(setup, objective),
        ];
    }
    vec![
        NetworkTraining::flow(setup, Spline::Quintic, 0.25),
        NetworkTraining::baseline(setup, setup.system.best_baseline, false),
    ]
}

struct Course {
    label: &'static str,
    losses: Vec<(f64, f64)>,
    /// Seconds until each of them.
    clock: Vec<f64>,
}

#[derive(Default)]
struct Found {
    rows: Vec<TrajectoryRow>,
    gallery: Gallery,
    losses: HashMap<String, Vec<Course>>,
}

impl Found {
    fn row(training: &NetworkTraining, outcome: &TrainedRun<'_>) -> TrajectoryRow {
        TrajectoryRow {
            system: training.system().name(),
            recipe: training.setup.edition,
            method: training.method(),
            finetune_steps: outcome.recipe().finetune.steps,
            keep_rate: training.recipe.data.keep_rate,
            rank: None,
            trajectory: None,
            relative_l2: None,
            paper: None,
            loss: None,
            seconds: outcome.seconds,
            setup: training.setup,
        }
    }

    fn add_loss(&mut self, training: &NetworkTraining, outcome: &TrainedRun<'_>) {
        let loss = outcome.losses.last().map(|(_, loss)| *loss);
        self.rows.push(TrajectoryRow { loss, ..Self::row(training, outcome) });
        let label = label(training.method());
        let of_setup = self.losses.entry(training.setup.stem()).or_default();
        of_setup.push(Course { label, losses: outcome.losses.clone(), clock: outcome.clock.clone() });
    }

    /// Keeps a method's predictions of the trajectories that CFO's errors choose.
    fn add_pictures(&mut self, training: &NetworkTraining, outcome: &TrainedRun<'_>) -> Result<()> {
        for one in self.gallery.add(training, outcome)? {
            let paper =
                || published::figure("Figure 4", training.system().name(), &training.spline()?, one.rank);
            self.rows.push(TrajectoryRow {
                rank: Some(one.rank),
                trajectory: Some(one.number),
                relative_l2: one.last_error(),
                paper: paper(),
                ..Self::row(training, outcome)
            });
        }
        Ok(())
    }
}

pub(crate) fn run(arguments: &Reproduce) -> Made<TrajectoryRow> {
    let mut found = Found::default();
    let measured = Laboratory::measure(
        arguments,
        |system| system.name() == LOSSES || PICTURED.contains(&system.name()),
        trainings,
        |training, outcome| {
            if training.system().name() == LOSSES {
                found.add_loss(training, outcome);
                return Ok(());
            }
            found.add_pictures(training, outcome)
        },
    )?;
    let whole = |row: &TrajectoryRow| measured.setups.iter().any(|setup| setup.stem() == row.setup.stem());
    found.rows.retain(whole);
    let findings = Findings {
        title: "Single trajectories and training losses",
        about: "Quintic CFO trained on 25 % of the times and the autoregressive model (the paper's best network) trained on all times, on the test trajectories with CFO's highest \
                and median error. `loss` is the last reported training loss: of the velocity for CFO, of the next snapshot for the neural ODE; a network that predicts no change has 1. \
                The paper has one number: the error of CFO on its worst trajectory of Burgers."
            .into(),
        columns: columns(),
        verdict: String::new(),
        figures: measured.setups.iter().flat_map(|setup| loss_figures(setup, &found)).collect(),
        pictures: found.gallery.pictures(&measured.setups, ""),
        rows: found.rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn columns() -> Vec<TableColumn<TrajectoryRow>> {
    vec![
        words("system", |row: &TrajectoryRow| marked(row.setup)),
        words("recipe", |row: &TrajectoryRow| row.recipe.name().to_owned()),
        words("method", |row: &TrajectoryRow| {
            let tuned = if row.finetune_steps > 0 { ", fine-tuned" } else { "" };
            format!("{}{tuned}", label(row.method))
        }),
        number("times", |row: &TrajectoryRow| percent(row.keep_rate)),
        words("trajectory", |row: &TrajectoryRow| {
            let which = row.rank.zip(row.trajectory).map(|(rank, at)| format!("{rank} (test {at})"));
            which.unwrap_or_else(|| "-".into())
        }),
        number("relative L2", |row: &TrajectoryRow| {
            let diverged = row.rank.is_some() && row.relative_l2.is_none();
            if diverged { "diverged".into() } else { optional(row.relative_l2) }
        }),
        number("paper", |row: &TrajectoryRow| optional(row.paper)),
        number("loss", |row: &TrajectoryRow| optional(row.loss)),
        number("training", |row: &TrajectoryRow| duration(row.seconds)),
    ]
}

/// The losses over the steps and over the seconds of training.
fn loss_figures(setup: &Setup, found: &Found) -> Vec<(String, Figure)> {
    let Some(losses) = found.losses.get(&setup.stem()) else { return vec![] };
    let figure = |over: &str, unit: &str, seconds: bool| {
        let series = losses.iter().enumerate().map(|(color, Course { label, losses, clock })| {
            let points = losses
                .iter()
                .zip(clock)
                .map(|(&(step, loss), &time)| (if seconds { time } else { step }, loss));
            Curve::new(*label, points.collect(), color, LineStyle::Solid)
        });
        let axes = [Axis::logarithmic(unit), Axis::logarithmic("loss (1: nothing changes)")];
        let title = format!("Training loss against {over}");
        setup_figure(setup, &format!("loss-over-{over}"), &title, axes, series.collect())
    };
    vec![figure("steps", "step", false), figure("time", "seconds of training", true)]
}
