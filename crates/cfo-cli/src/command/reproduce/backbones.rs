//! `backbones`: the same systems with the networks that the paper tries, everything else fixed.

use anyhow::Result;
use cfo::numerics::Path;
use serde::Serialize;

use super::experiment::{Laboratory, Training};
use super::findings::Findings;
use super::{Document, Record};
use crate::args;
use crate::plot::{Axis, Figure, Line, Scale as AxisScale, Series};
use crate::report::{Alignment, Table, scientific};

const NAMES: [&str; 3] = ["burgers", "diffusion-reaction", "shallow-water"];

/// The paper's errors of quintic CFO on all times, by system and network.
const PAPER: [(&str, &str, f64); 6] = [
    ("burgers", "unet", 5.89e-3),
    ("burgers", "fno", 6.8e-3),
    ("diffusion-reaction", "unet", 4.37e-2),
    ("diffusion-reaction", "dit", 8.21e-2),
    ("shallow-water", "unet", 4.56e-3),
    ("shallow-water", "dit", 8.3e-3),
];

#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    system: &'static str,
    operator: &'static str,
    parameters: usize,
    /// Absent if a rollout diverged.
    relative_l2: Option<f64>,
    std: Option<f64>,
    paper: Option<f64>,
    seconds: f64,
}

pub(super) fn run(arguments: &args::Reproduce) -> Result<Option<Record<Document<Row>>>> {
    let laboratory = Laboratory::new(arguments)?;
    let systems = laboratory.systems(&NAMES)?;
    let mut cases = Vec::new();
    for &system in &systems {
        for backbone in system.backbones {
            cases
                .push((Training::flow(system, Path::default(), 1.0).on(backbone, arguments.scale), backbone));
        }
    }
    let trainings: Vec<Training> = cases.iter().map(|(training, _)| training.clone()).collect();
    let (mut rows, mut curves) = (Vec::new(), Vec::new());
    let complete = laboratory.each(&trainings, |position, mut outcome| {
        let (training, backbone) = &cases[position];
        let report = outcome.evaluate()?;
        let system = training.system.name;
        let paper = PAPER.iter().find(|(name, kind, _)| *name == system && *kind == backbone.kind);
        if let Some(report) = &report {
            let points = report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
            curves.push((system, backbone.kind, points));
        }
        rows.push(Row {
            system,
            operator: backbone.kind,
            parameters: outcome.trained.model.parameters()?,
            relative_l2: report.as_ref().map(|report| report.relative_l2.mean),
            std: report.as_ref().map(|report| report.relative_l2.std),
            paper: paper.map(|(_, _, error)| *error),
            seconds: outcome.seconds,
        });
        Ok(())
    })?;
    if !complete {
        return Ok(None);
    }
    let figures =
        systems.iter().map(|system| (figure_stem(system.name), figure(system.name, system.label, &curves)));
    let findings = Findings {
        title: "Networks under CFO",
        about: "Relative L2 error of rollouts of quintic CFO trained on all times, by network; the recipe is the same but for the network. The \
                MLP on Burgers is not among the paper's figures for CFO."
            .into(),
        table: table(&rows),
        verdict: String::new(),
        figures: figures.collect(),
        rows,
    };
    Ok(Some(findings.record(arguments, &systems)))
}

fn table(rows: &[Row]) -> Table {
    use Alignment::{Left, Right};
    let mut table = Table::new([
        ("system", Left),
        ("network", Left),
        ("parameters", Right),
        ("relative L2", Right),
        ("±", Right),
        ("paper", Right),
        ("training", Right),
    ]);
    let number = |value: Option<f64>, missing: &str| value.map_or_else(|| missing.to_owned(), scientific);
    for row in rows {
        table.push([
            row.system.to_owned(),
            row.operator.to_owned(),
            row.parameters.to_string(),
            number(row.relative_l2, "diverged"),
            number(row.std, "-"),
            number(row.paper, "-"),
            format!("{:.0} s", row.seconds),
        ]);
    }
    table
}

/// System, network and error over time.
type Curve = (&'static str, &'static str, Vec<(f64, f64)>);

fn figure_stem(system: &str) -> String {
    format!("error-over-time-{system}")
}

fn figure(system: &str, label: &str, curves: &[Curve]) -> Figure {
    let of_system = curves.iter().filter(|(name, _, _)| *name == system).enumerate();
    Figure {
        title: format!("Rollout error by network: {label}"),
        x: Axis { label: "time".into(), scale: AxisScale::Linear },
        y: Axis { label: "relative L2 error".into(), scale: AxisScale::Logarithmic },
        series: of_system
            .map(|(color, (_, kind, points))| Series {
                label: (*kind).into(),
                points: points.clone(),
                color,
                line: Line::Solid,
            })
            .collect(),
        size: (640, 400),
    }
}
