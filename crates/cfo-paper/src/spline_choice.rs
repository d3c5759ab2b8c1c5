//! `spline-choice`: the errors that sparse times cause, and which spline and stencil to choose for them.
//!
//! Three errors for Lorenz and Burgers at keep rates 100, 50 and 25 %: that of the velocity of each path, which no training
//! can undo; that of left-out snapshots, which `cfo inspect` measures without knowing the truth; and the rollout error of
//! networks trained on the path.

use anyhow::{Context, Result};
use cfo::data::simulate::{Burgers, Equation, Lorenz};
use cfo::data::store::{TrajectoryFile, TrajectoryWriter, WriteOptions};
use cfo::data::{SamplingAudit, Statistics, Trajectory, thin};
use cfo::numerics::{Path, Segment, Spline, stencil};
use cfo::paper::Edition;
use rayon::prelude::*;
use serde::Serialize;

use crate::columns::{TableColumn, diverged_or, number, optional, words};
use crate::experiment::Laboratory;
use crate::findings::{Findings, setup_figure};
use crate::options::Reproduce;
use crate::published::percent;
use crate::spline_order::{lorenz_velocity, states};
use crate::spread::mean;
use crate::system::{Setup, TableSystem};
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::scientific;

const NAMES: [&str; 2] = ["lorenz", "burgers"];
const KEEP_RATES: [f64; 3] = [1.0, 0.5, 0.25];

const PATHS: [Path; 7] = SamplingAudit::PATHS;

/// Trajectories over which velocity errors are measured.
const TRAJECTORIES: u64 = 48;
/// Times between two snapshots of the data at which the velocity is compared, the first snapshot's included.
const FINE: usize = 5;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PathRow {
    system: &'static str,
    recipe: Edition,
    keep_rate: f64,
    spline: String,
    /// Absent for linear splines.
    stencil: Option<usize>,
    /// Norm of the error of the path's velocity over the norm of the true velocity, over all times and trajectories.
    velocity_error: f64,
    /// Error of snapshots left out in turn and interpolated, in standard deviations, as `cfo inspect` measures it.
    left_out_error: Option<f64>,
    /// Whether `cfo inspect` recommends it.
    recommended: bool,
    /// Rollout error of a network trained on this path; absent if a rollout diverged.
    relative_l2: Option<f64>,
    paper: Option<f64>,
    seconds: f64,
}

/// Every path at every keep rate.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let on = |keep_rate: f64| {
        PATHS.map(|path| NetworkTraining::flow(setup, path.spline, keep_rate).with_stencil(path))
    };
    KEEP_RATES.into_iter().flat_map(on).collect()
}

pub(crate) fn run(arguments: &Reproduce) -> Made<PathRow> {
    let measured = Laboratory::measure(
        arguments,
        |system| NAMES.contains(&system.name()),
        trainings,
        |_, outcome| Ok(outcome.evaluate()?.map(|report| report.relative_l2.mean)),
    )?;
    let trained: Vec<(Option<f64>, f64)> = measured
        .networks
        .iter()
        .map(|network| (mean(network.runs.iter().copied()), network.seconds))
        .collect();
    let mut rows = Vec::new();
    for (i, setup) in measured.setups.iter().enumerate() {
        arguments.console.say(&format!("velocity errors: {}", setup.system.label()));
        let sample = Sample::new(setup.system, arguments.seed)?;
        for (k, keep_rate) in KEEP_RATES.into_iter().enumerate() {
            let first = (i * KEEP_RATES.len() + k) * PATHS.len();
            rows.extend(sample.rows(setup, keep_rate, &trained[first..first + PATHS.len()])?);
        }
    }
    let about = format!(
        "`velocity error` is the norm of the error of the spline's velocity over the norm of the true velocity, for {TRAJECTORIES} trajectories of the paper's data at {FINE} times per \
         snapshot interval, also with `smoke`. On Burgers about 1e-4 of it is rounding of the values from which the true velocity is computed. `left out` is the error of snapshots that are \
         left out in turn and interpolated, in standard deviations; * marks the recommendation of `cfo inspect`. `relative L2` is the error of rollouts of networks trained with the spline."
    );
    let findings = Findings {
        title: "Errors by spline and keep rate",
        about,
        columns: columns(),
        verdict: measured.setups.iter().map(|setup| verdict(setup, &rows)).collect(),
        figures: measured.setups.iter().map(|setup| figure(setup, &rows)).collect(),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

/// Trajectories of a system, stored more finely than the data, with their true velocities.
struct Sample {
    equation: Box<dyn Equation>,
    seed: u64,
    fine: Vec<Trajectory>,
    velocities: Vec<Vec<f64>>,
}

impl Sample {
    fn new(system: &TableSystem, seed: u64) -> Result<Self> {
        let lorenz = Lorenz::default();
        let burgers = Burgers::default();
        let refined = |frames: usize| (frames - 1) * FINE + 1;
        let (equation, fine): (Box<dyn Equation>, Box<dyn Equation>) = match system.name() {
            "lorenz" => {
                let fine = Lorenz { frames: refined(lorenz.frames), ..lorenz.clone() };
                (Box::new(lorenz.clone()), Box::new(fine))
            }
            _ => {
                let fine = Burgers { frames: refined(burgers.frames), ..burgers.clone() };
                (Box::new(burgers.clone()), Box::new(fine))
            }
        };
        let fine = (0..TRAJECTORIES)
            .into_par_iter()
            .map(|index| fine.trajectory(seed, index))
            .collect::<Result<Vec<_>, _>>()?;
        let size = equation.description().shape.len();
        let velocities = fine
            .par_iter()
            .map(|trajectory| match system.name() {
                "lorenz" => states(trajectory).flat_map(|state| lorenz_velocity(&lorenz, state)).collect(),
                _ => difference_velocities(trajectory, size),
            })
            .collect();
        Ok(Self { equation, seed, fine, velocities })
    }

    /// The rows of one keep rate, in the order of [`PATHS`].
    fn rows(&self, setup: &Setup, keep_rate: f64, trained: &[(Option<f64>, f64)]) -> Result<Vec<PathRow>> {
        let audit = self.audit(keep_rate)?;
        let recommended = audit.recommended().map(|rebuilt| rebuilt.path);
        let rows = PATHS.into_iter().zip(trained).map(|(path, &(relative_l2, seconds))| PathRow {
            system: setup.system.name(),
            recipe: setup.edition,
            keep_rate,
            spline: path.spline.to_string(),
            stencil: (path.spline != Spline::Linear).then_some(path.stencil),
            velocity_error: self.velocity_error(path, keep_rate),
            left_out_error: audit
                .paths
                .iter()
                .find(|rebuilt| rebuilt.path == path)
                .map(|rebuilt| rebuilt.error),
            recommended: recommended == Some(path),
            relative_l2,
            paper: published::flow(setup.system.name(), path.spline, keep_rate)[0]
                .filter(|_| path.spline == Spline::Linear || path.stencil == 3),
            seconds,
        });
        Ok(rows.collect())
    }

    /// Positions of the snapshots that thinning keeps, among the fine ones.
    fn knots(&self, trajectory: usize, keep_rate: f64) -> Vec<usize> {
        let frames = (self.fine[trajectory].times.len() - 1) / FINE + 1;
        thin::kept(frames, keep_rate, self.seed, trajectory).into_iter().map(|frame| frame * FINE).collect()
    }

    fn velocity_error(&self, path: Path, keep_rate: f64) -> f64 {
        let size = self.equation.description().shape.len();
        let [error, square] = (0..self.fine.len())
            .into_par_iter()
            .map(|i| {
                let knots = self.knots(i, keep_rate);
                squared_errors(path, &self.fine[i], &self.velocities[i], &knots, size)
            })
            .reduce(|| [0.0; 2], |a, b| [a[0] + b[0], a[1] + b[1]]);
        (error / square).sqrt()
    }

    /// The audit that `cfo inspect` makes of a file of the thinned trajectories.
    fn audit(&self, keep_rate: f64) -> Result<SamplingAudit> {
        let description = self.equation.description();
        let size = description.shape.len();
        let folder = tempfile::tempdir().context("making a temporary folder")?;
        let path = folder.path().join("thinned.h5");
        let mut writer = TrajectoryWriter::create(&path, &description, WriteOptions::default())?;
        let mut statistics = Statistics::new(description.shape.channels);
        for (i, trajectory) in self.fine.iter().enumerate() {
            let knots = self.knots(i, keep_rate);
            let times = knots.iter().map(|&knot| trajectory.times[knot]).collect();
            let values: Vec<f32> = knots
                .iter()
                .flat_map(|&knot| &trajectory.values[knot * size..(knot + 1) * size])
                .copied()
                .collect();
            statistics.add(&values);
            let parameters = trajectory.inputs.parameters.clone();
            writer.push(&Trajectory::new(times, values, parameters)?, None)?;
        }
        writer.finish()?;
        Ok(SamplingAudit::new(&TrajectoryFile::open(&path)?, &statistics.deviation(), &[])?)
    }
}

/// Sums over all fine times of the squared error of the path's velocity and of the squared velocity.
fn squared_errors(
    path: Path,
    fine: &Trajectory,
    velocities: &[f64],
    knots: &[usize],
    size: usize,
) -> [f64; 2] {
    let times: Vec<f64> = knots.iter().map(|&knot| fine.times[knot]).collect();
    let (mut errors, mut squares) = (0.0, 0.0);
    for (index, ends) in knots.windows(2).enumerate() {
        let length = times[index + 1] - times[index];
        for at in ends[0]..ends[1] {
            let segment = Segment { index, tau: (fine.times[at] - times[index]) / length, length };
            let weights = path.weights_in(&times, segment);
            for position in 0..size {
                let velocity: f64 = knots[weights.range()]
                    .iter()
                    .zip(weights.velocity())
                    .map(|(&knot, weight)| weight * f64::from(fine.values[knot * size + position]))
                    .sum();
                let truth = velocities[at * size + position];
                errors += (velocity - truth).powi(2);
                squares += truth.powi(2);
            }
        }
    }
    [errors, squares]
}

/// Seven-point differences of the fine trajectory; on Burgers, rounding of the values makes an error of some 1e-4.
fn difference_velocities(trajectory: &Trajectory, size: usize) -> Vec<f64> {
    const POINTS: usize = 7;
    let frames = trajectory.times.len();
    let mut velocities = vec![0.0; frames * size];
    let mut weights = [0.0; POINTS];
    for frame in 0..frames {
        let window = stencil::window(frame, POINTS, frames);
        stencil::weights(&trajectory.times[window.clone()], trajectory.times[frame], 1, &mut weights);
        for (neighbour, weight) in window.zip(weights) {
            for position in 0..size {
                velocities[frame * size + position] +=
                    weight * f64::from(trajectory.values[neighbour * size + position]);
            }
        }
    }
    velocities
}

fn columns() -> Vec<TableColumn<PathRow>> {
    vec![
        words("system", |row: &PathRow| row.system.to_owned()),
        words("recipe", |row: &PathRow| row.recipe.name().to_owned()),
        number("times", |row: &PathRow| percent(row.keep_rate)),
        words("path", |row: &PathRow| format!("{}{}", label(row), if row.recommended { " *" } else { "" })),
        number("velocity error", |row: &PathRow| scientific(row.velocity_error)),
        number("left out", |row: &PathRow| optional(row.left_out_error)),
        number("relative L2", |row: &PathRow| diverged_or(row.relative_l2, scientific)),
        number("paper", |row: &PathRow| optional(row.paper)),
    ]
}

impl PathRow {
    fn is_of(&self, setup: &Setup) -> bool {
        self.system == setup.system.name() && self.recipe == setup.edition
    }
}

fn label(row: &PathRow) -> String {
    row.stencil.map_or_else(|| row.spline.clone(), |points| format!("{}, {points} points", row.spline))
}

fn verdict(setup: &Setup, rows: &[PathRow]) -> String {
    let mut text = String::new();
    for keep_rate in KEEP_RATES {
        let of_rate = || rows.iter().filter(|row| row.is_of(setup) && row.keep_rate == keep_rate);
        let least = |measure: fn(&PathRow) -> Option<f64>| {
            let best =
                of_rate().filter_map(|row| Some((measure(row)?, row))).min_by(|a, b| a.0.total_cmp(&b.0));
            best.map_or_else(|| "none".to_owned(), |(_, row)| label(row))
        };
        let recommended = of_rate().find(|row| row.recommended).map_or_else(|| "none".to_owned(), label);
        text += &format!(
            "{}, {:.0} % of the times: least velocity error {}; least rollout error {}; `cfo inspect` recommends {}.\n",
            setup.title(),
            100.0 * keep_rate,
            least(|row| Some(row.velocity_error)),
            least(|row| row.relative_l2),
            recommended
        );
    }
    text
}

/// Velocity errors against the mean distance of snapshots.
fn figure(setup: &Setup, rows: &[PathRow]) -> (String, Figure) {
    let series = PATHS.into_iter().map(|path| {
        let points = (path.spline != Spline::Linear).then_some(path.stencil);
        let of_path = rows
            .iter()
            .filter(|row| row.is_of(setup) && row.spline == path.spline.to_string() && row.stencil == points);
        let line = match points {
            Some(5) => LineStyle::Dashed,
            Some(7) => LineStyle::Dotted,
            _ => LineStyle::Solid,
        };
        let color = path.spline.smoothness();
        let label =
            points.map_or_else(|| path.spline.to_string(), |n| format!("{}, {n} points", path.spline));
        let points = of_path.map(|row| (1.0 / row.keep_rate, row.velocity_error)).collect();
        Curve::new(label, points, color, line)
    });
    let axes = [
        Axis::logarithmic("mean distance between snapshots, in steps of the data"),
        Axis::logarithmic("relative error of the velocity"),
    ];
    let (stem, figure) =
        setup_figure(setup, "velocity-error", "Velocity error of paths", axes, series.collect());
    (stem, Figure { size: (760, 420), ..figure })
}
