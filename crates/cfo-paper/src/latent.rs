//! `latent`: CFO in the coefficients of orthogonal wavelets, beside CFO on the states.

use cfo::Report;
use cfo::numerics::Spline;
use cfo::recipe::{LatentConfig, LatentWavelet};
use serde::Serialize;

use crate::columns::{TableColumn, number, words};
use crate::experiment::Laboratory;
use crate::findings::Findings;
use crate::network::{NetworkRow, TrainedNetwork, errors_over_time};
use crate::options::Reproduce;
use crate::system::Setup;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::LineStyle;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatentSpace {
    /// Absent for states as they are.
    wavelet: Option<LatentWavelet>,
    levels: usize,
    /// Sides and channels of the fields that the network sees.
    field: Vec<usize>,
}

/// Returns the paper's error. The paper does not name its wavelet; the number is shown beside that of the recipes.
fn paper(system: &str) -> Option<f64> {
    published::figure("Table 14", system, "latent", "relative L2")
}

/// On the states; in the space of the recipe; by the other wavelet; one level further.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let states = NetworkTraining::flow(setup, Spline::Quintic, 1.0).beside(None);
    let Some(latent) = NetworkTraining::by(setup, "latent") else { return Vec::new() };
    let other = |wavelet: LatentWavelet, levels: usize| {
        let mut training = latent.clone();
        training.recipe.latent = LatentConfig { wavelet: Some(wavelet), levels };
        training.name = format!("latent-{}-{levels}", name(Some(wavelet)));
        training
    };
    let others = [other(LatentWavelet::Daubechies4, 1), other(LatentWavelet::Haar, 2)];
    let latent = latent.beside(paper(setup.system.name()));
    [states, latent].into_iter().chain(others).collect()
}

fn name(wavelet: Option<LatentWavelet>) -> &'static str {
    match wavelet {
        None => "none",
        Some(LatentWavelet::Haar) => "haar",
        Some(LatentWavelet::Daubechies4) => "daubechies4",
    }
}

/// Errors of a run, and the field that its network sees.
type LatentRun = (Option<Report>, Vec<usize>);

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<LatentSpace>> {
    let measured = Laboratory::measure(
        arguments,
        |system| paper(system.name()).is_some(),
        trainings,
        |_, outcome| Ok((outcome.evaluate()?, outcome.trained.model().setting.field.dimensions())),
    )?;
    let rows: Vec<NetworkRow<LatentSpace>> = measured.networks.iter().map(row).collect();
    let findings = Findings {
        title: "CFO in wavelet coefficients",
        about: "Relative L2 error of rollouts of quintic CFO trained on all times, measured on the states. The network works on the states or on all coefficients of an orthogonal wavelet; `field` is the \
                sides and channels of its input. The paper's number is in the row of the recipe's space; the paper does not name its wavelet."
            .into(),
        columns: columns(),
        verdict: String::new(),
        figures: errors_over_time(
            "Rollout error by space",
            &measured,
            &rows,
            |run: &LatentRun| run.0.as_ref(),
            |color, row| (row.own.label(), color, LineStyle::Solid),
        ),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}

fn row(network: &TrainedNetwork<LatentRun>) -> NetworkRow<LatentSpace> {
    let LatentConfig { wavelet, levels } = network.training.recipe.latent;
    let own = LatentSpace {
        wavelet,
        levels: if wavelet.is_some() { levels } else { 0 },
        field: network.runs.first().map_or_else(Vec::new, |run| run.1.clone()),
    };
    network.row(|run| run.0.as_ref(), own)
}

impl LatentSpace {
    fn label(&self) -> String {
        match self.wavelet {
            None => "states".into(),
            wavelet => {
                format!("{}, {} level{}", name(wavelet), self.levels, if self.levels == 1 { "" } else { "s" })
            }
        }
    }
}

fn columns() -> Vec<TableColumn<NetworkRow<LatentSpace>>> {
    NetworkRow::columns(
        [
            words("space", |row| row.own.label()),
            number("field", |row| row.own.field.iter().map(usize::to_string).collect::<Vec<_>>().join(" x ")),
            NetworkRow::of_size(),
        ],
        [NetworkRow::of_paper(), NetworkRow::of_training()],
    )
}
