//! `spline-order`: how well the velocity of a spline matches the true one on the Lorenz system. The paper has a figure of
//! the error over a segment and a table of endpoint errors and empirical orders.
//!
//! Every segment of whole trajectories counts, with every phase of the downsampling: all rows average the same times.

use anyhow::Result;
use cfo::data::Trajectory;
use cfo::data::simulate::{Equation, Lorenz};
use cfo::numerics::{Path, Segment, Spline};
use rayon::prelude::*;
use serde::Serialize;

use crate::columns::{TableColumn, number, table, words};
use crate::options::Reproduce;
use crate::{Made, Record, ReportDocument, published};
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::{TextTable, scientific};

/// Whole trajectories: together they have the paper's 50,000 segments at either scale.
const TRAJECTORIES: u64 = 50;

const SPLINES: [Spline; 2] = [Spline::Quintic, Spline::Linear];

/// Distances between knots, in units of the data's step.
const STEPS: [usize; 3] = [1, 2, 4];

/// Positions inside a segment at which the error is measured, besides its first knot.
const POSITIONS: usize = 40;

/// One end of one row of the paper's table.
#[derive(Debug, Serialize)]
pub(crate) struct OrderRow {
    spline: String,
    /// Distance between knots in units of the data's step.
    step: usize,
    /// End of the segment: 0 or 1.
    tau: usize,
    /// Mean over the segments of the relative L2 error of the velocity.
    error: f64,
    /// Slope of the error against the step between this row and the one before.
    order: Option<f64>,
    /// L2 norm of all errors over the L2 norm of all velocities: the other reading of "average relative error".
    aggregate_error: f64,
    aggregate_order: Option<f64>,
    paper_error: Option<f64>,
    paper_order: Option<f64>,
    segments: usize,
}

pub(crate) fn run(arguments: &Reproduce) -> Made<OrderRow> {
    let lorenz = Lorenz::default();
    let sums = (0..TRAJECTORIES)
        .into_par_iter()
        .map(|index| measure(&lorenz, arguments.seed, index))
        .collect::<Result<Vec<_>>>()?
        .into_iter()
        .reduce(merge)
        .unwrap_or_default();
    let rows = rows(&sums);
    let table = table(&columns(), &rows);
    let text = format!(
        "Velocity of the spline against the true one on the Lorenz system, at the ends of a segment.\n\
         Mean over {} segments of the relative L2 error; Δt = 0.005; the paper's values in brackets.\n\n{}",
        rows[0].segments,
        table.text()
    );
    let markdown = markdown(arguments, &rows, &table);
    let figures = vec![("error-over-segment".into(), figure(&sums))];
    let document = ReportDocument::new(arguments, rows);
    Ok(Record { document, text, markdown, figures, pictures: vec![], files: vec![], failures: vec![] })
}

/// Errors of one spline at one step, summed over segments, at each position of a segment.
#[derive(Clone, Debug, Default)]
struct Sums {
    segments: usize,
    relative: Vec<f64>,
    error_squared: Vec<f64>,
    velocity_squared: Vec<f64>,
}

/// Sums in the order of [`SPLINES`] and [`STEPS`].
type AllSums = Vec<Sums>;

/// The errors along one whole trajectory.
fn measure(lorenz: &Lorenz, seed: u64, index: u64) -> Result<AllSums> {
    // Stored more finely than the data, so that the true velocity is known inside the segments too.
    let fine = Lorenz { frames: (lorenz.frames - 1) * POSITIONS + 1, ..lorenz.clone() };
    let trajectory = fine.trajectory(seed, index)?;
    let states: Vec<[f64; 3]> = states(&trajectory).collect();
    let mut all = AllSums::new();
    for spline in SPLINES {
        let path = Path { spline, ..Path::default() };
        for step in STEPS {
            let mut sums = Sums::default();
            for phase in 0..step {
                let knots: Vec<usize> = (phase * POSITIONS..states.len()).step_by(step * POSITIONS).collect();
                sums.add(lorenz, &path, &trajectory.times, &states, &knots);
            }
            all.push(sums);
        }
    }
    Ok(all)
}

impl Sums {
    /// Adds every segment between `knots`, given as indices into `times` and `states`.
    fn add(&mut self, lorenz: &Lorenz, path: &Path, times: &[f64], states: &[[f64; 3]], knots: &[usize]) {
        for sums in [&mut self.relative, &mut self.error_squared, &mut self.velocity_squared] {
            sums.resize(POSITIONS + 1, 0.0);
        }
        let knot_times: Vec<f64> = knots.iter().map(|&knot| times[knot]).collect();
        for (index, ends) in knots.windows(2).enumerate() {
            let stride = (ends[1] - ends[0]) / POSITIONS;
            let length = knot_times[index + 1] - knot_times[index];
            for position in 0..=POSITIONS {
                let segment = Segment { index, tau: position as f64 / POSITIONS as f64, length };
                let weights = path.weights_in(&knot_times, segment);
                let mut velocity = [0.0; 3];
                for (&knot, &weight) in knots[weights.range()].iter().zip(weights.velocity()) {
                    for (v, u) in velocity.iter_mut().zip(states[knot]) {
                        *v += weight * u;
                    }
                }
                let truth = lorenz_velocity(lorenz, states[ends[0] + position * stride]);
                let error_squared: f64 = velocity.iter().zip(truth).map(|(v, t)| (v - t).powi(2)).sum();
                let velocity_squared: f64 = truth.iter().map(|t| t.powi(2)).sum();
                self.relative[position] += (error_squared / velocity_squared).sqrt();
                self.error_squared[position] += error_squared;
                self.velocity_squared[position] += velocity_squared;
            }
            self.segments += 1;
        }
    }

    fn mean(&self, position: usize) -> f64 {
        self.relative[position] / self.segments as f64
    }

    /// Norm of all errors over the norm of all velocities.
    fn aggregate(&self, position: usize) -> f64 {
        (self.error_squared[position] / self.velocity_squared[position]).sqrt()
    }
}

fn merge(mut left: AllSums, right: AllSums) -> AllSums {
    for (left, right) in left.iter_mut().zip(right) {
        left.segments += right.segments;
        for (into, from) in [
            (&mut left.relative, right.relative),
            (&mut left.error_squared, right.error_squared),
            (&mut left.velocity_squared, right.velocity_squared),
        ] {
            into.iter_mut().zip(from).for_each(|(into, from)| *into += from);
        }
    }
    left
}

/// Returns the states of a trajectory of the Lorenz system.
pub(crate) fn states(trajectory: &Trajectory) -> impl Iterator<Item = [f64; 3]> {
    trajectory.values.chunks_exact(3).map(|u| [u[0], u[1], u[2]].map(f64::from))
}

/// Returns the right-hand side of the Lorenz equations.
pub(crate) fn lorenz_velocity(lorenz: &Lorenz, [x, y, z]: [f64; 3]) -> [f64; 3] {
    [lorenz.sigma * (y - x), x * (lorenz.rho - z) - y, x * y - lorenz.beta * z]
}

fn rows(all: &AllSums) -> Vec<OrderRow> {
    let mut rows = Vec::new();
    for (splines_sums, spline) in all.chunks(STEPS.len()).zip(SPLINES) {
        for tau in [0, 1] {
            let position = tau * POSITIONS;
            for (i, sums) in splines_sums.iter().enumerate() {
                let order = |error: fn(&Sums, usize) -> f64| {
                    let before = splines_sums.get(i.checked_sub(1)?)?;
                    let ratio = STEPS[i] as f64 / STEPS[i - 1] as f64;
                    Some((error(sums, position) / error(before, position)).ln() / ratio.ln())
                };
                let paper = |what: &str| {
                    let table = format!("Table 4, {spline}");
                    published::figure(&table, "lorenz", &STEPS[i].to_string(), &format!("{what}, {tau}"))
                };
                rows.push(OrderRow {
                    spline: spline.to_string(),
                    step: STEPS[i],
                    tau,
                    error: sums.mean(position),
                    order: order(Sums::mean),
                    aggregate_error: sums.aggregate(position),
                    aggregate_order: order(Sums::aggregate),
                    paper_error: paper("error"),
                    paper_order: paper("order"),
                    segments: sums.segments,
                });
            }
        }
    }
    rows
}

fn columns() -> Vec<TableColumn<OrderRow>> {
    fn order(order: Option<f64>) -> String {
        order.map_or_else(|| "-".into(), |order| format!("{order:.2}"))
    }
    fn brackets(text: Option<String>) -> String {
        text.map_or_else(|| "-".into(), |text| format!("({text})"))
    }
    vec![
        words("spline", |row: &OrderRow| row.spline.clone()),
        number("step", |row: &OrderRow| if row.step == 1 { "Δt".into() } else { format!("{}Δt", row.step) }),
        number("τ", |row: &OrderRow| row.tau.to_string()),
        number("error", |row: &OrderRow| scientific(row.error)),
        number("(paper)", |row: &OrderRow| brackets(row.paper_error.map(scientific))),
        number("ratio", |row: &OrderRow| {
            row.paper_error.map_or_else(|| "-".into(), |paper| format!("{:.3}", row.error / paper))
        }),
        number("order", |row: &OrderRow| order(row.order)),
        number("(paper)", |row: &OrderRow| brackets(row.paper_order.map(|order| format!("{order:.2}")))),
        number("all segments together", |row: &OrderRow| scientific(row.aggregate_error)),
        number("order", |row: &OrderRow| order(row.aggregate_order)),
    ]
}

fn markdown(arguments: &Reproduce, rows: &[OrderRow], table: &TextTable) -> String {
    format!(
        "# Velocity error of splines on the Lorenz system\n\n\
         The velocity of the spline through snapshots Δt = 0.005 apart (and 2Δt, 4Δt) against the true velocity, at the \
         ends of a segment. `error` is the mean over the segments of the relative L2 error, the paper's values in \
         brackets; `all segments together` is the norm of all errors over the norm of all velocities.\n\n\
         {TRAJECTORIES} whole trajectories from random starts (seed {}), {} segments at Δt; every phase of the downsampling at 2Δt \
         and 4Δt. Made by `cfo reproduce spline-order --seed {}`, cfo {}.\n\n{}\n\
         ![Error over a segment](error-over-segment.png)\n",
        arguments.seed,
        rows[0].segments,
        arguments.seed,
        env!("CARGO_PKG_VERSION"),
        table.markdown()
    )
}

fn figure(all: &AllSums) -> Figure {
    let mut series = Vec::new();
    for (color, (sums, spline)) in all.chunks(STEPS.len()).zip(SPLINES).enumerate() {
        for ((sums, step), line) in
            sums.iter().zip(STEPS).zip([LineStyle::Solid, LineStyle::Dashed, LineStyle::Dotted])
        {
            let label = if step == 1 { format!("{spline}, Δt") } else { format!("{spline}, {step}Δt") };
            let points = (0..=POSITIONS).map(|i| (i as f64 / POSITIONS as f64, sums.mean(i))).collect();
            series.push(Curve::new(label, points, color, line));
        }
    }
    Figure {
        title: "Velocity error of the spline over a segment (Lorenz)".to_owned(),
        x: Axis::linear("position in the segment, τ"),
        y: Axis::logarithmic("mean relative L² error"),
        series,
        size: (680, 420),
    }
}
