//! A trained network in a table: what it is, and the errors of its rollouts over all runs.

use cfo::Report;
use cfo::paper::Edition;
use serde::Serialize;

use crate::columns::{Column, diverged_or, number, optional, words};
use crate::experiment::Measured;
use crate::findings::{marked, setup_figure};
use crate::spread::Spread;
use crate::system::Setup;
use crate::training::Training;
use cfo_view::plot::{Axis, Figure, Line, Series};
use cfo_view::text::{duration, scientific};

/// A network that was trained with every seed, and what was measured of each run.
pub(crate) struct Network<T> {
    pub training: Training,
    pub parameters: usize,
    /// Those of fine-tuning included.
    pub steps: u32,
    pub finetune_steps: u32,
    /// Of one training run, mean over the runs.
    pub seconds: f64,
    pub runs: Vec<T>,
}

/// The row of a network, with what the experiment adds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row<X> {
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
    pub error: Spread,
    pub paper: Option<f64>,
    /// The paper's deviation.
    pub paper_std: Option<f64>,
    pub parameters: usize,
    /// Those of fine-tuning included.
    pub steps: u32,
    pub finetune_steps: u32,
    /// Of one training run, mean over the runs.
    pub seconds: f64,
    #[serde(flatten)]
    pub own: X,
    #[serde(skip)]
    pub setup: Setup,
}

/// For experiments that add nothing to a row.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Nothing {}

impl<T> Network<T> {
    /// Its row, by a report of each run; `None` stands for a run that diverged.
    pub fn row<X>(&self, report: impl Fn(&T) -> Option<&Report>, own: X) -> Row<X> {
        let Training { setup, recipe, paper, paper_std, .. } = &self.training;
        let error = Spread::of(self.runs.iter().map(report));
        Row {
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

impl<X> Row<X> {
    pub fn is_of(&self, setup: &Setup) -> bool {
        self.system == setup.system.name() && self.recipe == setup.edition
    }

    /// What was trained, for tables and figures.
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

/// A method's name in tables and titles.
pub(crate) fn label(method: &str) -> &str {
    match method {
        "cfo" => "CFO",
        "neural-ode" => "neural ODE",
        "pde-refiner" => "PDE-Refiner",
        "conditional-flow-matching" => "conditional flow matching",
        other => other,
    }
}

/// Columns of tables of networks.
impl<X> Row<X> {
    /// Returns all columns: system and recipe, `before`, the error with its deviations, `after`.
    pub fn columns<const B: usize, const A: usize>(
        before: [Column<Self>; B],
        after: [Column<Self>; A],
    ) -> Vec<Column<Self>> {
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

    pub fn of_method() -> Column<Self> {
        words("method", Self::label)
    }

    pub fn of_size() -> Column<Self> {
        number("parameters", |row: &Self| row.parameters.to_string())
    }

    /// The error at the last snapshot.
    pub fn of_end() -> Column<Self> {
        number("at the end", |row: &Self| optional(row.error.final_time))
    }

    pub fn of_paper() -> Column<Self> {
        number("paper", |row: &Self| match (row.paper, row.paper_std) {
            (Some(error), Some(deviation)) => format!("{} ± {}", scientific(error), scientific(deviation)),
            (error, _) => optional(error),
        })
    }

    /// The time of one training run.
    pub fn of_training() -> Column<Self> {
        number("training", |row: &Self| duration(row.seconds))
    }
}

/// The error over time of the first run of each network: a figure for each setup. `look` says a curve's label, colour and line from its
/// position in the figure and its row.
pub(crate) fn errors_over_time<T, X>(
    title: &str,
    measured: &Measured<T>,
    rows: &[Row<X>],
    report: impl Fn(&T) -> Option<&Report>,
    look: impl Fn(usize, &Row<X>) -> (String, usize, Line),
) -> Vec<(String, Figure)> {
    let of_setup = |setup: &Setup| {
        let networks = rows.iter().zip(&measured.networks).filter(|(row, _)| row.is_of(setup));
        let series = networks.enumerate().filter_map(|(at, (row, network))| {
            let report = network.runs.first().and_then(&report)?;
            let (label, color, line) = look(at, row);
            let points = report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
            Some(Series::new(label, points, color, line))
        });
        let axes = [Axis::linear("time"), Axis::logarithmic("relative L2 error")];
        setup_figure(setup, "error-over-time", title, axes, series.collect())
    };
    measured.setups.iter().map(of_setup).collect()
}
