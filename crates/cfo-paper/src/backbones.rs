//! `backbones`: the same systems with each network that the paper compares, everything else fixed.

use cfo::numerics::Spline;

use crate::columns::words;
use crate::experiment::Laboratory;
use crate::findings::Findings;
use crate::network::{NetworkRow, NoAddition, errors_over_time};
use crate::options::Reproduce;
use crate::system::Setup;
use crate::training::NetworkTraining;
use crate::{Made, published};
use cfo_view::plot::LineStyle;

/// The system's own network, which table 1 has, and the others.
fn trainings(setup: Setup) -> Vec<NetworkTraining> {
    let on = |backbone: &&'static str| {
        let training = NetworkTraining::flow(setup, Spline::Quintic, 1.0).on(backbone);
        match published::figure("Table 12", setup.system.name(), backbone, "relative L2") {
            Some(error) => training.beside(Some(error)),
            None => training,
        }
    };
    setup.system.backbones.iter().map(on).collect()
}

pub(crate) fn run(arguments: &Reproduce) -> Made<NetworkRow<NoAddition>> {
    let measured = Laboratory::measure(
        arguments,
        |system| system.position().is_some() && system.backbones.len() > 1,
        trainings,
        |_, outcome| outcome.evaluate(),
    )?;
    let rows: Vec<NetworkRow<NoAddition>> =
        measured.networks.iter().map(|network| network.row(Option::as_ref, NoAddition {})).collect();
    let findings = Findings {
        title: "CFO with different networks",
        about: "Relative L2 error of rollouts of quintic CFO trained on all times. The recipes differ only in the network. The paper has no \
                number for CFO with the MLP on Burgers."
            .into(),
        columns: NetworkRow::columns(
            [words("network", |row| row.operator.to_owned()), NetworkRow::of_size()],
            [NetworkRow::of_paper(), NetworkRow::of_training()],
        ),
        verdict: String::new(),
        figures: errors_over_time("Rollout error by network", &measured, &rows, Option::as_ref, |color, row| {
            (row.operator.to_owned(), color, LineStyle::Solid)
        }),
        pictures: vec![],
        rows,
    };
    Ok(findings.record(arguments, &measured))
}
