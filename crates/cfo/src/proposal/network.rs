//! Choice of the network for a file: its kind by the number of space axes, its sizes by what the machine trains in a minute or two.

use std::ops::RangeInclusive;

use cfo_engine::Graph;

use super::machine::Machine;
use super::survey::FileSurvey;
use crate::error::Result;
use crate::operator::{Context, Fno, Mlp, MlpActivation, OperatorConfig, Setting};

/// Target duration of a training in seconds, estimated from the number of operations.
const SECONDS: f64 = 75.0;

/// The chosen network with its batch and steps.
pub(super) struct Network {
    pub operator: OperatorConfig,
    /// Keys of the operator with section, with their reasons.
    pub reasons: Vec<(String, String)>,
    pub batch: usize,
    pub steps: u32,
    /// Approximate duration of the training.
    pub seconds: f64,
}

impl Network {
    pub fn choose(survey: &FileSurvey, machine: Machine) -> Result<Self> {
        let (time, seen) = survey.time();
        // The smallest number of steps in which a kind of network learns, and the largest that is useful on small data.
        let (candidates, batch, [fewest, most]) = match survey.shape.axes() {
            0 => (perceptrons(survey, time), 512, [3e3, 1e4]),
            1 => (fourier(survey, time), batch(survey, 8..=32), [3e3, 6e3]),
            2 => (fourier(survey, time), batch(survey, 4..=16), [2e3, 4e3]),
            _ => (fourier(survey, time), batch(survey, 2..=16), [1e3, 3e3]),
        };
        // The largest network that can be trained for the fewest steps, or else the smallest network, which then takes longer.
        let (mut operator, mut multiplications, mut affordable) = (OperatorConfig::default(), 0.0, 0.0);
        for candidate in candidates {
            multiplications = batch as f64 * multiplications_of(&candidate, &survey.setting())?;
            affordable = SECONDS / machine.seconds(multiplications, 1);
            operator = candidate;
            if affordable >= fewest {
                break;
            }
        }
        // Steps are rounded down to hundreds for readability.
        let steps = (affordable.clamp(fewest, most) / 100.0) as u32 * 100;
        let reasons = reasons(survey, &operator, seen);
        let seconds = machine.seconds(multiplications, steps);
        Ok(Self { operator, reasons, batch, steps, seconds })
    }
}

/// Returns the number of multiplications of the forward pass of one sample.
fn multiplications_of(operator: &OperatorConfig, setting: &Setting) -> Result<f64> {
    let mut graph = Graph::new();
    let time = graph.input("time", [1])?;
    let field = graph.input("field", setting.input(1))?;
    let conditions = match setting.conditions {
        0 => None,
        count => Some(graph.input("conditions", [1, count])?),
    };
    operator.operator().apply(&mut graph, setting, field, &Context { conditions, ..Context::at(time) })?;
    Ok(graph.multiplications())
}

/// Returns the number of fields per step. It is smaller for large fields, because every point of a field is a sample.
fn batch(survey: &FileSurvey, range: RangeInclusive<usize>) -> usize {
    let points = survey.shape.grid.points();
    (16_384 / points.max(1)).next_power_of_two().clamp(*range.start(), *range.end())
}

/// Returns Fourier operators of several widths, the widest first. They need fewer steps than U-Nets (docs/experiments.md).
fn fourier(survey: &FileSurvey, time: bool) -> Vec<OperatorConfig> {
    let line = survey.shape.axes() == 1;
    // At most a third of the points: products of two modes have up to twice their frequencies, which the grid must resolve.
    let modes = (survey.shape.grid.shortest() / 3).clamp(1, if line { 16 } else { 8 });
    let widths: &[usize] = match survey.shape.axes() {
        1 => &[64, 48, 32, 24, 16],
        2 => &[48, 32, 24, 16],
        _ => &[32, 24, 16, 12],
    };
    let of_width = |&width: &usize| OperatorConfig::Fno(Fno { width, blocks: 4, modes, time });
    widths.iter().map(of_width).collect()
}

/// Returns MLPs with three layers, wider for larger states. They are smooth, so that high-order solvers keep their order.
fn perceptrons(survey: &FileSurvey, time: bool) -> Vec<OperatorConfig> {
    let widths: &[usize] = match survey.shape.len() {
        0..=16 => &[128, 64],
        17..=128 => &[256, 128],
        _ => &[512, 256, 128],
    };
    let perceptron = |&width: &usize| {
        let config = Mlp { hidden: vec![width; 3], activation: MlpActivation::Silu, time: time.into() };
        OperatorConfig::Mlp(config)
    };
    widths.iter().map(perceptron).collect()
}

fn reasons(survey: &FileSurvey, operator: &OperatorConfig, seen: String) -> Vec<(String, String)> {
    let mut reasons = match operator {
        OperatorConfig::Mlp(_) => vec![
            ("kind", "no space axes: an MLP on the whole state".to_owned()),
            ("hidden", "widths of the layers; larger for states with many components".into()),
            ("activation", "a smooth field, on which solvers keep their order".into()),
        ],
        _ => {
            let place = ["a line", "a plane", "a volume"][survey.shape.axes() - 1];
            let kind =
                format!("a field on {place}; predicts on other resolutions too. Try `unet` for shocks");
            vec![
                ("kind", kind),
                ("width", "channels inside; as many as this machine trains in a minute or two".into()),
                ("blocks", "more for fields with fine detail".into()),
                ("modes", "Fourier modes along each axis; at most a third of the points".into()),
            ]
        }
    };
    reasons.push(("time", seen));
    reasons.into_iter().map(|(key, reason)| (format!("operator.{key}"), reason)).collect()
}
