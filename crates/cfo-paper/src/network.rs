//! A trained network in a table: what it is, and the errors of its rollouts over all runs.

use cfo::Report;
use cfo::paper::Edition;
use serde::Serialize;

use crate::columns::{TableColumn, diverged_or, number, optional, words};
use crate::experiment::MeasuredNetworks;
use crate::findings::{marked, setup_figure};
use crate::spread::ErrorSpread;
use crate::system::Setup;
use crate::training::NetworkTraining;
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::{duration, scientific};

/// A network that was trained with every seed, and what was measured of each run.
pub(crate) struct TrainedNetwork<T> {
    pub training: NetworkTraining,
    pub parameters: usize,
    /// Number of steps, with those of fine-tuning.
    pub steps: u32,
    pub finetune_steps: u32,
    /// Seconds of a training run, mean over the runs.
    pub seconds: f64,
    pub runs: Vec<T>,
}

/// The row of a network, with what the experiment adds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NetworkRow<X> {
    pub system: &'static str,
    pub recipe: Edition,
    /// `cfo`, or the objective's name.
    pub method: &'static str,
    pub operator: &'static str,
    pub spline: Option<String>,
    /// `next-state` or `change`, for next-step prediction.
    pub prediction: Option<&'static str>,
    pub keep_rate: f64,
    #[serde(flatten)]
    pub error: ErrorSpread,
    pub paper: Option<f64>,
    /// The paper's deviation.
    pub paper_std: Option<f64>,
    pub parameters: usize,
    /// Number of steps, with those of fine-tuning.
    pub steps: u32,
    pub finetune_steps: u32,
    /// Seconds of a training run, mean over the runs.
    pub seconds: f64,
    #[serde(flatten)]
    pub own: X,
    #[serde(skip)]
    pub setup: Setup,
}

/// The addition of experiments that add nothing to a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NoAddition {}

impl<T> TrainedNetwork<T> {
    /// Creates the row of the network from a report on each run; `None` stands for a run that diverged.
    pub fn row<X>(&self, report: impl Fn(&T) -> Option<&Report>, own: X) -> NetworkRow<X> {
        let NetworkTraining { setup, recipe, paper, paper_std, .. } = &self.training;
        let error = ErrorSpread::of(self.runs.iter().map(report));
        NetworkRow {
            system: setup.system.name(),
            recipe: setup.edition,
            method: self.training.method(),
            operator: recipe.operator.name(),
            spline: self.training.spline(),
            prediction: self.training.prediction(),
            keep_rate: recipe.data.keep_rate,
            error,
            paper: *paper,
            paper_std: *paper_std,
            parameters: self.parameters,
            steps: self.steps,
            finetune_steps: self.finetune_steps,
            seconds: self.seconds,
            own,
            setup: *setup,
        }
    }
}

impl<X> NetworkRow<X> {
    pub fn is_of(&self, setup: &Setup) -> bool {
        self.system == setup.system.name() && self.recipe == setup.edition
    }

    /// Returns the name of the network in tables and figures.
    pub fn label(&self) -> String {
        let kind = label(self.method);
        match (&self.spline, self.prediction) {
            (Some(spline), _) if self.finetune_steps > 0 => format!("{kind}, {spline}, fine-tuned"),
            (Some(spline), _) => format!("{kind}, {spline}"),
            (None, Some("change")) => format!("{kind} {}, change", self.operator),
            (None, Some(_)) => format!("{kind} {}, next state", self.operator),
            (None, None) => kind.to_owned(),
        }
    }
}

pub(crate) fn label(method: &str) -> &str {
    match method {
        "cfo" => "CFO",
        "neural-ode" => "neural ODE",
        "pde-refiner" => "PDE-Refiner",
        "conditional-flow-matching" => "conditional flow matching",
        other => other,
    }
}

impl<X> NetworkRow<X> {
    /// Returns all columns: system and recipe, `before`, the error with its deviations, `after`.
    pub fn columns<const B: usize, const A: usize>(
        before: [TableColumn<Self>; B],
        after: [TableColumn<Self>; A],
    ) -> Vec<TableColumn<Self>> {
        let mut columns = vec![
            words("system", |row: &Self| marked(row.setup)),
            words("recipe", |row: &Self| row.recipe.name().to_owned()),
        ];
        columns.extend(before);
        columns.extend([
            number("relative L2", |row: &Self| diverged_or(row.error.relative_l2, scientific)),
            number("± runs", |row: &Self| optional(row.error.std_runs)),
            number("± trajectories", |row: &Self| optional(row.error.std_trajectories)),
        ]);
        columns.extend(after);
        columns
    }

    pub fn of_method() -> TableColumn<Self> {
        words("method", Self::label)
    }

    pub fn of_size() -> TableColumn<Self> {
        number("parameters", |row: &Self| row.parameters.to_string())
    }

    /// The error at the last snapshot.
    pub fn of_end() -> TableColumn<Self> {
        number("at the end", |row: &Self| optional(row.error.final_time))
    }

    pub fn of_paper() -> TableColumn<Self> {
        number("paper", |row: &Self| match (row.paper, row.paper_std) {
            (Some(error), Some(deviation)) => format!("{} ± {}", scientific(error), scientific(deviation)),
            (error, _) => optional(error),
        })
    }

    /// The time of one training run.
    pub fn of_training() -> TableColumn<Self> {
        number("training", |row: &Self| duration(row.seconds))
    }
}

/// Draws the errors over time of first runs, a figure per setup. `look` returns a curve's label, colour and line.
pub(crate) fn errors_over_time<T, X>(
    title: &str,
    measured: &MeasuredNetworks<T>,
    rows: &[NetworkRow<X>],
    report: impl Fn(&T) -> Option<&Report>,
    look: impl Fn(usize, &NetworkRow<X>) -> (String, usize, LineStyle),
) -> Vec<(String, Figure)> {
    let of_setup = |setup: &Setup| {
        let networks = rows.iter().zip(&measured.networks).filter(|(row, _)| row.is_of(setup));
        let series = networks.enumerate().filter_map(|(at, (row, network))| {
            let report = network.runs.first().and_then(&report)?;
            let (label, color, line) = look(at, row);
            let points = report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
            Some(Curve::new(label, points, color, line))
        });
        let axes = [Axis::linear("time"), Axis::logarithmic("relative L2 error")];
        setup_figure(setup, "error-over-time", title, axes, series.collect())
    };
    measured.setups.iter().map(of_setup).collect()
}
