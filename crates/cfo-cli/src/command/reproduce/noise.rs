//! `noise`: the error against the amplitude of the path's noise, which the paper shows as a figure without numbers.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use serde::Serialize;

use super::experiment::Laboratory;
use super::findings::{Findings, marked};
use super::spread::Spread;
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table};

/// The systems of the paper's figure.
const SYSTEMS: [&str; 2] = ["diffusion-reaction", "shallow-water"];
/// Amplitudes in units of the normalised values. The paper names 0 to 1e-4, and larger ones without numbers.
const AMPLITUDES: [f64; 7] = [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];
/// The paper finds stable errors up to this amplitude.
const STABLE: f64 = 1e-4;

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    amplitude: f64,
    #[serde(flatten)]
    error: Spread,
    /// The error relative to that without noise.
    ratio: Option<f64>,
    /// The paper shows curves, not numbers.
    paper: Option<f64>,
    /// Of one training run, mean over the runs.
    seconds: f64,
    #[serde(skip)]
    setup: Setup,
}

/// What is kept of a run: its errors and the seconds of training.
type Measured = (Option<Report>, f64);

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| SYSTEMS.contains(&system.name()))?;
    let sweep = |&setup: &Setup| {
        AMPLITUDES.map(|amplitude| Training::flow(setup, Spline::Quintic, 1.0).with_noise(amplitude))
    };
    let trainings: Vec<Training> = setups.iter().flat_map(sweep).collect();
    let measured = laboratory.each(&trainings, |_, outcome| Ok((outcome.evaluate()?, outcome.seconds)))?;
    let Some(runs) = measured else { return Ok(None) };
    let mut rows: Vec<Row> =
        trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    for sweep in rows.chunks_mut(AMPLITUDES.len()) {
        let without = sweep[0].error.relative_l2;
        for row in sweep {
            row.ratio = row.error.relative_l2.zip(without).map(|(error, without)| error / without);
        }
    }
    let findings = Findings {
        title: "Error against the path's noise",
        about: format!(
            "Relative L2 error of rollouts of quintic CFO trained on all times, by the amplitude of the noise between snapshots in units of the normalised values. The paper shows this in a figure \
             without numbers: stable up to {STABLE:.0e}, worse above."
        ),
        table: table(&rows),
        verdict: rows.chunks(AMPLITUDES.len()).map(verdict).collect(),
        figures: setups.iter().map(|setup| figure(setup, &rows)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

fn row(training: &Training, runs: &[Measured]) -> Row {
    Row {
        system: training.system().name(),
        recipe: training.setup.edition,
        amplitude: training.recipe.path.noise.amplitude,
        error: Spread::of(runs.iter().map(|(report, _)| report.as_ref())),
        ratio: None,
        paper: None,
        seconds: runs.iter().map(|(_, seconds)| seconds).sum::<f64>() / runs.len().max(1) as f64,
        setup: training.setup,
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("amplitude", Right),
        ("relative L2", Right),
        ("± runs", Right),
        ("± trajectories", Right),
        ("relative to no noise", Right),
        ("training", Right),
    ]);
    for row in rows {
        let [error, runs, trajectories] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            format!("{:.0e}", row.amplitude),
            error,
            runs,
            trajectories,
            row.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            format!("{:.0} s", row.seconds),
        ]);
    }
    table
}

/// How much the errors of a sweep change up to the paper's amplitude, and how much above it.
fn verdict(sweep: &[Row]) -> String {
    let Some(first) = sweep.first() else { return String::new() };
    let most = |stable: bool| {
        let ratios = sweep.iter().filter(|row| row.amplitude > 0.0 && (row.amplitude <= STABLE) == stable);
        ratios.map(|row| row.ratio.unwrap_or(f64::INFINITY)).fold(0.0_f64, f64::max)
    };
    let least = sweep
        .iter()
        .filter(|row| row.amplitude <= STABLE)
        .map(|row| row.ratio.unwrap_or(f64::NAN))
        .fold(f64::INFINITY, f64::min);
    format!(
        "{}: up to {STABLE:.0e} the error is {least:.2} to {:.2} times that without noise, above it at most {:.2} times.\n",
        first.setup.title(),
        most(true).max(1.0),
        most(false)
    )
}

/// The error over the amplitude; a horizontal line is the error without noise.
fn figure(setup: &Setup, rows: &[Row]) -> (String, Figure) {
    let of_setup =
        || rows.iter().filter(|row| row.system == setup.system.name() && row.recipe == setup.edition);
    let points: Vec<(f64, f64)> = of_setup()
        .filter(|row| row.amplitude > 0.0)
        .filter_map(|row| Some((row.amplitude, row.error.relative_l2?)))
        .collect();
    let mut series =
        vec![Series { label: "with noise".into(), points: points.clone(), color: 0, line: Line::Solid }];
    let without = of_setup().find(|row| row.amplitude == 0.0).and_then(|row| row.error.relative_l2);
    if let (Some(error), Some(first), Some(last)) = (without, points.first(), points.last()) {
        let points = vec![(first.0, error), (last.0, error)];
        series.push(Series { label: "without".into(), points, color: 1, line: Line::Dashed });
    }
    let figure = Figure {
        title: format!("Error against the path's noise: {}", setup.title()),
        x: Axis { label: "amplitude of the noise".into(), scale: AxisScale::Logarithmic },
        y: Axis { label: "relative L2 error".into(), scale: AxisScale::Linear },
        series,
        size: (720, 400),
    };
    (format!("error-over-noise-{}", setup.stem()), figure)
}
