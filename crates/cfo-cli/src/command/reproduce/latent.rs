//! `latent`: CFO in the coefficients of orthogonal wavelets, beside CFO on the states.

use anyhow::Result;
use cfo::Report;
use cfo::numerics::Spline;
use cfo::paper::Edition;
use cfo::recipe::{LatentConfig, LatentWavelet};
use serde::Serialize;

use super::experiment::Laboratory;
use super::findings::{Findings, error_over_time, marked};
use super::spread::Spread;
use super::system::Setup;
use super::training::Training;
use super::{Document, Record};
use crate::args;
use crate::plot::{Figure, Line, Series};
use crate::report::{Alignment, Table, scientific};

/// The paper's errors, which do not say of which wavelet: beside that of the recipes.
const PAPER: [(&str, f64); 2] = [("shallow-water", 0.0053), ("diffusion-reaction", 0.0218)];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    recipe: Edition,
    /// Absent for states as they are.
    wavelet: Option<LatentWavelet>,
    levels: usize,
    /// Height, width and channels that the network sees.
    field: [usize; 3],
    parameters: usize,
    #[serde(flatten)]
    error: Spread,
    paper: Option<f64>,
    /// Of one training, mean over the runs.
    seconds: f64,
    #[serde(skip)]
    setup: Setup,
}

/// On the states; in the space of the recipe; by the other wavelet; one level further.
fn trainings(setup: Setup) -> Vec<Training> {
    let paper = PAPER.iter().find(|(name, _)| *name == setup.system.name()).map(|(_, error)| *error);
    let states = Training::flow(setup, Spline::Quintic, 1.0);
    let Some(latent) = Training::by(setup, "latent", paper) else { return Vec::new() };
    let other = |wavelet: LatentWavelet, levels: usize| {
        let mut training = latent.clone();
        training.recipe.latent = LatentConfig { wavelet: Some(wavelet), levels };
        training.name = format!("latent-{}-{levels}", name(Some(wavelet)));
        training.paper = None;
        training
    };
    let others = [other(LatentWavelet::Daubechies4, 1), other(LatentWavelet::Haar, 2)];
    [states, latent.clone()].into_iter().chain(others).collect()
}

fn name(wavelet: Option<LatentWavelet>) -> &'static str {
    match wavelet {
        None => "none",
        Some(LatentWavelet::Haar) => "haar",
        Some(LatentWavelet::Daubechies4) => "daubechies4",
    }
}

/// What is kept of a run: its errors, the field and the size of its network, the seconds of training.
type Measured = (Option<Report>, [usize; 3], usize, f64);

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let setups = laboratory.setups(|system| PAPER.iter().any(|(name, _)| *name == system.name()))?;
    let trainings: Vec<Training> = setups.iter().flat_map(|&setup| trainings(setup)).collect();
    let measured = laboratory.each(&trainings, |_, outcome| {
        let model = outcome.trained.model();
        Ok((outcome.evaluate()?, model.setting.field, model.parameters()?, outcome.seconds))
    })?;
    let Some(runs) = measured else { return Ok(None) };
    let rows: Vec<Row> = trainings.iter().zip(&runs).map(|(training, runs)| row(training, runs)).collect();
    let findings = Findings {
        title: "CFO in wavelet coefficients",
        about: "Relative L2 error of rollouts of quintic CFO trained on all times, in the space of the data, where the network works on states or on all coefficients of an orthogonal \
                wavelet: `field` is the height, width and channels that it sees. The paper's figure stands beside the recipe's space; it does not say which wavelet it is of."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: setups.iter().map(|setup| figure(setup, &rows, &runs)).collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &setups)))
}

fn row(training: &Training, runs: &[Measured]) -> Row {
    let LatentConfig { wavelet, levels } = training.recipe.latent;
    let (field, parameters) = runs.first().map_or(([0; 3], 0), |run| (run.1, run.2));
    Row {
        system: training.system().name(),
        recipe: training.setup.edition,
        wavelet,
        levels: if wavelet.is_some() { levels } else { 0 },
        field,
        parameters,
        error: Spread::of(runs.iter().map(|run| run.0.as_ref())),
        paper: training.paper.filter(|_| wavelet.is_some()),
        seconds: runs.iter().map(|run| run.3).sum::<f64>() / runs.len().max(1) as f64,
        setup: training.setup,
    }
}

impl Row {
    /// The space that the network works in, for people.
    fn space(&self) -> String {
        match self.wavelet {
            None => "states".into(),
            wavelet => {
                format!("{}, {} level{}", name(wavelet), self.levels, if self.levels == 1 { "" } else { "s" })
            }
        }
    }
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("recipe", Left),
        ("space", Left),
        ("field", Right),
        ("parameters", Right),
        ("relative L2", Right),
        ("± runs", Right),
        ("paper", Right),
        ("training", Right),
    ]);
    for row in rows {
        let [error, runs, _] = row.error.cells();
        table.push([
            marked(row.setup),
            row.recipe.name().to_owned(),
            row.space(),
            row.field.map(|side| side.to_string()).join(" x "),
            row.parameters.to_string(),
            error,
            runs,
            row.paper.map_or_else(|| "-".to_owned(), scientific),
            format!("{:.0} s", row.seconds),
        ]);
    }
    table
}

/// The first run in each space over time.
fn figure(setup: &Setup, rows: &[Row], runs: &[Vec<Measured>]) -> (String, Figure) {
    let first = rows.iter().zip(runs).filter_map(|(row, runs)| Some((row, runs.first()?.0.as_ref()?)));
    let of_setup = first.filter(|(row, _)| row.system == setup.system.name() && row.recipe == setup.edition);
    let series = of_setup.enumerate().map(|(color, (row, report))| Series {
        label: row.space(),
        points: report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect(),
        color,
        line: Line::Solid,
    });
    error_over_time(setup, "Rollout error by space", series.collect())
}
