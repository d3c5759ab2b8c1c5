//! `reverse`: the learned field integrated backward from a late snapshot of Burgers' equation.
//!
//! Diffusion smooths forward in time, so backward every error grows. The paper shows how noise shortens the way back.

use anyhow::Result;
use cfo::data::Trajectory;
use cfo::numerics::metric::relative_l2;
use cfo::numerics::ode::RK4;
use cfo::numerics::{Philox, Spline};
use cfo::paper::Edition;
use cfo::{Budget, Request, Solver};
use serde::Serialize;

use crate::Made;
use crate::columns::{TableColumn, diverged_or, number, words};
use crate::experiment::Laboratory;
use crate::findings::Findings;
use crate::noise::short;
use crate::options::Reproduce;
use crate::trained_run::TrainedRun;
use crate::training::NetworkTraining;
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};
use cfo_view::text::scientific;

const SYSTEM: &str = "burgers";
/// Noise in the last snapshot, relative to its root mean square. The paper does not state its levels.
const NOISES: [f64; 3] = [0.0, 1e-3, 1e-2];
/// Starts of the integration back to the first snapshot, as shares of the horizon.
const STARTS: [f64; 4] = [1.0, 0.75, 0.5, 0.25];
/// Times that the table shows, as shares of the horizon.
const SHOWN: [f64; 5] = [0.9, 0.75, 0.5, 0.25, 0.0];

#[derive(Clone, Debug, Serialize)]
pub(crate) struct BackwardRow {
    system: &'static str,
    recipe: Edition,
    /// Time at which the integration starts.
    from: f64,
    to: f64,
    /// Noise in the start, relative to its root mean square.
    noise: f64,
    /// Mean over the test trajectories of the relative L2 error at `to`; absent if one diverged on the way.
    relative_l2: Option<f64>,
    /// The paper shows curves, not numbers.
    paper: Option<f64>,
}

#[derive(Default)]
struct Found {
    rows: Vec<BackwardRow>,
    curves: Vec<(String, Vec<(f64, f64)>)>,
    /// The true first snapshot and those reconstructed.
    fields: Vec<(String, Vec<f32>)>,
}

impl Found {
    fn new(edition: Edition, outcome: &TrainedRun<'_>, seed: u64) -> Result<Self> {
        let mut found = Self::default();
        for noise in NOISES {
            let back = Backward::new(outcome, 1.0, noise, seed)?;
            found.rows.extend(SHOWN.iter().map(|&share| back.row(edition, share)));
            let level = if noise == 0.0 { "no noise".into() } else { format!("noise {noise:.0e}") };
            found.curves.push((format!("{}{level}", prefix(edition)), back.errors.clone()));
        }
        for start in STARTS {
            let back = Backward::new(outcome, start, 0.0, seed)?;
            if start < 1.0 {
                found.rows.push(back.row(edition, 0.0));
            }
            if found.fields.is_empty() {
                found.fields.push(("true".to_owned(), back.truth.clone()));
            }
            let label = format!("{}from t = {:.2}", prefix(edition), back.from);
            found.fields.extend(back.first.clone().map(|field| (label, field)));
        }
        Ok(found)
    }
}

pub(crate) fn run(arguments: &Reproduce) -> Made<BackwardRow> {
    let trainings = |setup| vec![NetworkTraining::flow(setup, Spline::Quintic, 1.0)];
    let mut measured = Laboratory::measure(
        arguments,
        |system| system.name() == SYSTEM,
        trainings,
        |training, outcome| Found::new(training.setup.edition, outcome, arguments.seed),
    )?;
    let mut all = Found::default();
    for found in measured.networks.iter_mut().flat_map(|network| network.runs.drain(..)) {
        // The truth is the same by every recipe.
        let known = usize::from(!all.fields.is_empty());
        all.fields.extend(found.fields.into_iter().skip(known));
        all.rows.extend(found.rows);
        all.curves.extend(found.curves);
    }
    let findings = Findings {
        title: "Backward in time",
        about: "Quintic CFO trained on all times of Burgers' equation and integrated backward with one RK4 step per snapshot. The relative L2 error at time `to` is a mean over the \
                test trajectories; the noise is relative to the root mean square of the initial state. The paper has plots without numbers."
            .into(),
        columns: columns(),
        verdict: String::new(),
        figures: vec![error_figure(all.curves), field_figure(all.fields)],
        pictures: vec![],
        rows: all.rows,
    };
    Ok(findings.record(arguments, &measured))
}

/// Marks the curves of our recipe in the legend.
fn prefix(edition: Edition) -> &'static str {
    match edition {
        Edition::Paper => "",
        Edition::Ours => "ours, ",
    }
}

struct Backward {
    from: f64,
    noise: f64,
    first_time: f64,
    horizon: f64,
    /// Time and mean error of every snapshot that all trajectories reached, going back.
    errors: Vec<(f64, f64)>,
    /// The first snapshot of the first test trajectory, and its reconstruction if the integration reached it.
    truth: Vec<f32>,
    first: Option<Vec<f32>>,
}

impl Backward {
    /// Integrates from the snapshot at a share of the horizon back to the first one, or as far as all trajectories stay finite.
    fn new(outcome: &TrainedRun<'_>, start: f64, noise: f64, seed: u64) -> Result<Self> {
        let test: Vec<Trajectory> = outcome.test().into_iter().cloned().collect();
        let size = outcome.trained.model().shape().len();
        let last = (start * (test[0].times.len() - 1) as f64).round() as usize;
        let mut request = Request::default();
        for (i, trajectory) in test.iter().enumerate() {
            let state = &trajectory.values[last * size..(last + 1) * size];
            request.start.push(trajectory.times[last]);
            request.states.push(disturbed(state, noise, seed, i as u64));
            request.times.push(trajectory.times[..last].iter().rev().copied().collect());
            request.inputs.push(trajectory.inputs.clone());
        }
        let states = integrate(outcome, &request)?;
        let reached = states.first().map_or(0, |states| states.len() / size);
        let mut errors = Vec::new();
        for back in 0..reached {
            let frame = last - 1 - back;
            let each = states.iter().zip(&test).map(|(states, trajectory)| {
                relative_l2(
                    &states[back * size..(back + 1) * size],
                    &trajectory.values[frame * size..(frame + 1) * size],
                )
            });
            errors.push((test[0].times[frame], each.sum::<f64>() / test.len() as f64));
        }
        let first = (reached == last && reached > 0).then(|| states[0][(reached - 1) * size..].to_vec());
        let times = &test[0].times;
        Ok(Self {
            from: times[last],
            noise,
            first_time: times[0],
            horizon: times[times.len() - 1] - times[0],
            errors,
            truth: test[0].values[..size].to_vec(),
            first,
        })
    }

    fn row(&self, recipe: Edition, share: f64) -> BackwardRow {
        let to = self.first_time + share * self.horizon;
        let near = self.errors.iter().find(|(time, _)| (time - to).abs() < 1e-3 * self.horizon);
        BackwardRow {
            system: SYSTEM,
            recipe,
            from: self.from,
            to,
            noise: self.noise,
            relative_l2: near.map(|(_, error)| *error),
            paper: None,
        }
    }
}

/// The state with Gaussian noise, scaled to a share of its root mean square.
fn disturbed(state: &[f32], noise: f64, seed: u64, trajectory: u64) -> Vec<f32> {
    let mean = state.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>() / state.len() as f64;
    let mut random = Philox::new(seed, trajectory);
    state.iter().map(|&value| (f64::from(value) + noise * mean.sqrt() * random.normal()) as f32).collect()
}

/// States of every trajectory at those of the requested times that all of them reach.
fn integrate(outcome: &TrainedRun<'_>, request: &Request) -> Result<Vec<Vec<f32>>> {
    let trained = &outcome.trained;
    let size = trained.model().shape().len();
    let solver = Solver { tableau: RK4, budget: Budget::StepPerOutput };
    let mut states = trained.with_solver(solver).predict_each(request, &outcome.watch())?.states;
    let reached = states.iter().map(|states| states.len() / size).min().unwrap_or(0);
    states.iter_mut().for_each(|states| states.truncate(reached * size));
    Ok(states)
}

fn columns() -> Vec<TableColumn<BackwardRow>> {
    vec![
        words("system", |row: &BackwardRow| row.system.to_owned()),
        words("recipe", |row: &BackwardRow| row.recipe.name().to_owned()),
        number("from", |row: &BackwardRow| format!("{:.2}", row.from)),
        number("to", |row: &BackwardRow| format!("{:.2}", row.to)),
        number("noise", |row: &BackwardRow| short(row.noise)),
        number("relative L2", |row: &BackwardRow| diverged_or(row.relative_l2, scientific)),
    ]
}

fn error_figure(curves: Vec<(String, Vec<(f64, f64)>)>) -> (String, Figure) {
    let series = curves.into_iter().enumerate();
    let figure = Figure {
        title: "Backward from the last snapshot: Burgers".into(),
        x: Axis::linear("time"),
        y: Axis::logarithmic("relative L2 error"),
        series: series
            .map(|(color, (label, points))| Curve::new(label, points, color, LineStyle::Solid))
            .collect(),
        size: (680, 400),
    };
    ("error-backward".into(), figure)
}

fn field_figure(fields: Vec<(String, Vec<f32>)>) -> (String, Figure) {
    let series = fields.into_iter().enumerate().map(|(color, (label, field))| {
        let points = field.iter().enumerate().map(|(x, &value)| (x as f64, f64::from(value)));
        Curve::new(
            label,
            points.collect(),
            color,
            if color == 0 { LineStyle::Solid } else { LineStyle::Dashed },
        )
    });
    let figure = Figure {
        title: "The first snapshot of a test trajectory, reconstructed backward: Burgers".into(),
        x: Axis::linear("grid point"),
        y: Axis::linear("u"),
        series: series.collect(),
        size: (680, 400),
    };
    ("first-snapshot".into(), figure)
}
