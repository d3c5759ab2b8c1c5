//! The network by the space axes of the data, and its sizes by what the machine can train in a minute or two.

use std::ops::RangeInclusive;

use cfo_engine::Graph;

use super::machine::Machine;
use super::survey::Survey;
use crate::error::Result;
use crate::operator::{Context, Fno, Mlp, MlpActivation, OperatorConfig, Setting};

/// Seconds that a training may take by the count of its operations.
const SECONDS: f64 = 75.0;

/// Fewest steps in which a network of a kind learns something, and the most that are worth it on small data.
struct Steps {
    fewest: u32,
    most: u32,
}

/// The network, its batch and its steps.
pub(super) struct Network {
    pub operator: OperatorConfig,
    /// Keys of the operator with their reasons.
    pub reasons: Vec<(&'static str, String)>,
    pub batch: usize,
    pub steps: u32,
    /// Multiplications of the forward pass of a batch.
    multiplications: f64,
}

impl Network {
    pub fn choose(survey: &Survey, machine: Machine) -> Result<Self> {
        let (time, seen) = survey.time();
        let (candidates, batch, steps) = match survey.shape.axes {
            0 => (perceptrons(survey, time), 512, Steps { fewest: 3_000, most: 10_000 }),
            1 => (fourier(survey, time), batch(survey, 8..=32), Steps { fewest: 3_000, most: 6_000 }),
            _ => (fourier(survey, time), batch(survey, 4..=16), Steps { fewest: 2_000, most: 4_000 }),
        };
        // The largest network that gets its steps; the smallest, and more time, if none does.
        let (mut operator, mut multiplications, mut affordable) = (OperatorConfig::default(), 0.0, 0.0);
        for candidate in candidates {
            multiplications = batch as f64 * multiplications_of(&candidate, &survey.setting())?;
            affordable = SECONDS / machine.seconds(multiplications, 1);
            operator = candidate;
            if affordable >= f64::from(steps.fewest) {
                break;
            }
        }
        let affordable = affordable.clamp(f64::from(steps.fewest), f64::from(steps.most));
        // Round numbers are easier to think with.
        let steps = (affordable / 100.0) as u32 * 100;
        let reasons = reasons(survey, &operator, seen);
        Ok(Self { operator, reasons, batch, steps, multiplications })
    }

    /// Seconds that the training takes, about.
    pub fn seconds(&self, machine: Machine) -> f64 {
        machine.seconds(self.multiplications, self.steps)
    }
}

/// Returns the number of multiplications of the forward pass of one sample.
fn multiplications_of(operator: &OperatorConfig, setting: &Setting) -> Result<f64> {
    let mut graph = Graph::new();
    let [height, width] = setting.grid;
    let time = graph.input("time", [1])?;
    let field = graph.input("field", [1, height, width, setting.inputs])?;
    let conditions = match setting.conditions {
        0 => None,
        count => Some(graph.input("conditions", [1, count])?),
    };
    operator.operator().apply(&mut graph, setting, field, &Context { time, conditions })?;
    Ok(graph.multiplications())
}

/// Fields of a step: fewer of large ones, each of whose points is a sample too.
fn batch(survey: &Survey, range: RangeInclusive<usize>) -> usize {
    let points = survey.shape.height * survey.shape.width;
    (16_384 / points.max(1)).next_power_of_two().clamp(*range.start(), *range.end())
}

/// Fourier operators of several widths, the widest first. They learn a law from fewer steps than U-Nets do (docs/experiments.md).
fn fourier(survey: &Survey, time: bool) -> Vec<OperatorConfig> {
    let line = survey.shape.axes == 1;
    let (height, width) = (survey.shape.height, survey.shape.width);
    let shortest = if line { width } else { height.min(width) };
    // No more than the grid resolves, and room above them: products of modes reach twice as far.
    let modes = (shortest / 3).clamp(1, if line { 16 } else { 8 });
    let widths: &[usize] = if line { &[64, 48, 32, 24, 16] } else { &[48, 32, 24, 16] };
    let of_width = |&width: &usize| OperatorConfig::Fno(Fno { width, blocks: 4, modes, time });
    widths.iter().map(of_width).collect()
}

/// Three layers, wider where the state is; smooth, so that solvers of high order keep their order.
fn perceptrons(survey: &Survey, time: bool) -> Vec<OperatorConfig> {
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

fn reasons(survey: &Survey, operator: &OperatorConfig, seen: String) -> Vec<(&'static str, String)> {
    let mut reasons = match operator {
        OperatorConfig::Mlp(_) => vec![
            ("kind", "no space axes: an MLP on the whole state".to_owned()),
            ("hidden", "widths of the layers; larger for states with many components".into()),
            ("activation", "a smooth field, on which solvers keep their order".into()),
        ],
        _ => {
            let place = if survey.shape.axes == 1 { "a line" } else { "a plane" };
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
    reasons
}
