//! What an evaluation shows: PDEBench's metrics, the error over time, the worst trajectory.

use std::path::Path;

use anyhow::Result;
use cfo::data::Trajectory;
use cfo::{Model, Report};
use serde::Serialize;

use crate::plot::{self, Axis, Figure, Line, Scale, Series};

/// Errors in the user's units over all snapshots and channels.
#[derive(Debug, Serialize)]
pub(super) struct Metrics {
    /// Mean over trajectories and snapshots of the root mean square error.
    pub(super) rmse: f64,
    /// The same relative to the root mean square of the truth.
    pub(super) nrmse: f64,
    /// Largest error of a value.
    pub(super) maximum: f64,
}

impl Metrics {
    pub(super) fn new(model: &Model, chosen: &[&Trajectory], report: &Report) -> Self {
        let size = model.shape().len();
        let first = usize::from(model.recipe.data.drop_first);
        let (mut rmse, mut nrmse, mut maximum, mut count) = (0.0, 0.0, 0.0_f64, 0.0);
        for (trajectory, prediction) in chosen.iter().zip(&report.predictions) {
            let truth = trajectory.values[first * size..].chunks_exact(size);
            for (p, q) in prediction.chunks_exact(size).zip(truth) {
                let (mut error, mut square) = (0.0, 0.0);
                for (&p, &q) in p.iter().zip(q) {
                    let difference = f64::from(p) - f64::from(q);
                    error += difference * difference;
                    square += f64::from(q) * f64::from(q);
                    maximum = maximum.max(difference.abs());
                }
                rmse += (error / size as f64).sqrt();
                nrmse += (error / square).sqrt();
                count += 1.0;
            }
        }
        Self { rmse: rmse / count, nrmse: nrmse / count, maximum }
    }
}

/// The relative error of every snapshot, averaged over trajectories.
pub(super) fn error_over_time(report: &Report) -> Figure {
    let points = report.per_time.iter().map(|at| (at.time, at.relative_l2)).collect();
    Figure {
        title: "Rollout error over time".into(),
        x: Axis { label: "time".into(), scale: Scale::Linear },
        y: Axis { label: "relative L2 error".into(), scale: Scale::Logarithmic },
        series: vec![Series { label: "mean over trajectories".into(), points, color: 0, line: Line::Solid }],
        size: (640, 400),
    }
}

/// Figures of the trajectory with the highest error: prediction and truth of each channel over time for an ODE, at the
/// last snapshot for a field on a line. Returns the names of the files.
pub(super) fn worst(
    model: &Model,
    chosen: &[&Trajectory],
    report: &Report,
    folder: &Path,
) -> Result<Vec<String>> {
    let errors = &report.relative_l2.per_trajectory;
    let Some(worst) = (0..errors.len()).max_by(|&a, &b| errors[a].total_cmp(&errors[b])) else {
        return Ok(vec![]);
    };
    let shape = model.shape();
    if shape.axes == 2 {
        return Ok(vec![]);
    }
    let (size, first) = (shape.len(), usize::from(model.recipe.data.drop_first));
    let truth = &chosen[worst].values[first * size..];
    let prediction = &report.predictions[worst];
    let times = &chosen[worst].times[first..];
    let mut series = Vec::new();
    for channel in 0..shape.channels {
        let name = model.channel_names.get(channel).cloned().unwrap_or_else(|| format!("channel {channel}"));
        let curve = |values: &[f32]| -> Vec<(f64, f64)> {
            let last = values.len() / size - 1;
            match shape.axes {
                0 => times
                    .iter()
                    .enumerate()
                    .map(|(i, &t)| (t, f64::from(values[i * size + channel])))
                    .collect(),
                _ => (0..shape.width)
                    .map(|x| (x as f64, f64::from(values[last * size + x * shape.channels + channel])))
                    .collect(),
            }
        };
        series.push(Series {
            label: format!("{name}, true"),
            points: curve(truth),
            color: channel,
            line: Line::Solid,
        });
        let label = format!("{name}, predicted");
        series.push(Series { label, points: curve(prediction), color: channel, line: Line::Dashed });
    }
    let place = if shape.axes == 0 { "time" } else { "grid point, at the last snapshot" };
    let figure = Figure {
        title: format!("The worst of {} trajectories", errors.len()),
        x: Axis { label: place.into(), scale: Scale::Linear },
        y: Axis { label: "value".into(), scale: Scale::Linear },
        series,
        size: (760, 420),
    };
    plot::write(&figure, folder, "worst-trajectory")?;
    Ok(vec!["worst-trajectory.png".into()])
}
