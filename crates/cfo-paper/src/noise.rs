//! `noise`: the error against the amplitude of the path's noise, which the paper shows as a figure without numbers.

use cfo::numerics::Spline;
use serde::Serialize;

use crate::Made;
use crate::columns::{TableColumn, number};
use crate::experiment::Laboratory;
use crate::findings::{Findings, setup_figure};
use crate::network::NetworkRow;
use crate::options::Reproduce;
use crate::system::Setup;
use crate::training::NetworkTraining;
use cfo_view::plot::{Axis, Curve, Figure, LineStyle};

const SYSTEMS: [&str; 2] = ["diffusion-reaction", "shallow-water"];
/// Amplitudes in units of the normalised values. The paper names 0 to 1e-4, and larger ones without numbers.
const AMPLITUDES: [f64; 7] = [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1];
/// The paper finds stable errors up to this amplitude.
const STABLE: f64 = 1e-4;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NoiseAmplitude {
    amplitude: f64,
    /// The error relative to that without noise.
    ratio: Option<f64>,
}

/// A network for each amplitude. The paper shows curves, not numbers.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let with =
        |amplitude| NetworkTraining::flow(setup, Spline::Quintic, 1.0).with_noise(amplitude).beside(None);
    AMPLITUDES.map(with).into()
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<NoiseAmplitude>> {
    let measured = Laboratory::measure(
        arguments,
        |system| SYSTEMS.contains(&system.name()),
        trainings,
        |_, outcome| outcome.evaluate(),
    )?;
    let networks = measured.networks.iter();
    let mut rows: Vec<NetworkRow<NoiseAmplitude>> = networks
        .map(|network| {
            let amplitude = network.training.recipe.path.noise.amplitude;
            network.row(Option::as_ref, NoiseAmplitude { amplitude, ratio: None })
        })
        .collect();
    for sweep in rows.chunks_mut(AMPLITUDES.len()) {
        let without = sweep[0].error.relative_l2;
        for row in sweep {
            row.own.ratio = row.error.relative_l2.zip(without).map(|(error, without)| error / without);
        }
    }
    let findings = Findings {
        title: "Error against the path's noise",
        about: format!(
            "Relative L2 error of rollouts of quintic CFO trained on all times, over the amplitude of the noise between snapshots in normalised units. The paper has a plot without numbers: the error \
             is stable up to {STABLE:.0e} and grows above."
        ),
        columns: columns(),
        verdict: rows.chunks(AMPLITUDES.len()).map(verdict).collect(),
        figures: measured.setups.iter().map(|setup| figure(setup, &rows)).collect(),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn columns() -> Vec<TableColumn<NetworkRow<NoiseAmplitude>>> {
    NetworkRow::columns(
        [number("amplitude", |row| short(row.own.amplitude))],
        [
            number("relative to no noise", |row| {
                row.own.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            }),
            NetworkRow::of_training(),
        ],
    )
}

/// A power of ten, or 0.
pub(crate) fn short(amplitude: f64) -> String {
    if amplitude == 0.0 { "0".into() } else { format!("{amplitude:.0e}") }
}

/// Describes how much the errors of a sweep change up to the paper's amplitude, and above it.
fn verdict(sweep: &[NetworkRow<NoiseAmplitude>]) -> String {
    let Some(first) = sweep.first() else { return String::new() };
    let most = |stable: bool| {
        let ratios =
            sweep.iter().filter(|row| row.own.amplitude > 0.0 && (row.own.amplitude <= STABLE) == stable);
        ratios.map(|row| row.own.ratio.unwrap_or(f64::INFINITY)).fold(0.0_f64, f64::max)
    };
    let least = sweep
        .iter()
        .filter(|row| row.own.amplitude <= STABLE)
        .map(|row| row.own.ratio.unwrap_or(f64::NAN))
        .fold(f64::INFINITY, f64::min);
    format!(
        "{}: up to {STABLE:.0e} the error is {least:.2} to {:.2} times that without noise, above it at most {:.2} times.\n",
        first.setup.title(),
        most(true).max(1.0),
        most(false)
    )
}

/// The error over the amplitude; a horizontal line is the error without noise.
fn figure(setup: &Setup, rows: &[NetworkRow<NoiseAmplitude>]) -> (String, Figure) {
    let of_setup = || rows.iter().filter(|row| row.is_of(setup));
    let points: Vec<(f64, f64)> = of_setup()
        .filter(|row| row.own.amplitude > 0.0)
        .filter_map(|row| Some((row.own.amplitude, row.error.relative_l2?)))
        .collect();
    let mut series = vec![Curve::new("with noise", points.clone(), 0, LineStyle::Solid)];
    let without = of_setup().find(|row| row.own.amplitude == 0.0).and_then(|row| row.error.relative_l2);
    if let (Some(error), Some(first), Some(last)) = (without, points.first(), points.last()) {
        let points = vec![(first.0, error), (last.0, error)];
        series.push(Curve::new("without", points, 1, LineStyle::Dashed));
    }
    // Logarithmic: small differences are not drawn large.
    let axes = [
        Axis::logarithmic("amplitude of the noise, in normalised values"),
        Axis::logarithmic("relative L2 error"),
    ];
    setup_figure(setup, "error-over-noise", "Error against the path's noise", axes, series)
}
