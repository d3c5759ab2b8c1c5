//! The figures of an evaluation: the error over time, the worst trajectory beside the truth, the training curves.
//!
//! One file per kind of data: `system` without space axes, `line` with one, `plane` with two. Of volumes, the middle plane
//! is shown.

mod line;
mod loss;
mod plane;
mod side_by_side;
mod system;

use std::path::Path;

use anyhow::Result;
use cfo::Report;
use cfo::data::Description;

use crate::plot::{self, Axis, AxisSpan, Curve, Figure, LineStyle};

pub use loss::loss_curves;
pub use side_by_side::MethodPanels;

const FRAMES: usize = 32;

/// A figure that was written.
pub struct FigureFile {
    /// Its file.
    pub file: String,
    /// Its caption.
    pub caption: String,
}

/// Writes a drawing, if there is one, under its caption.
pub fn chart(
    drawing: Option<impl plot::Drawing>,
    folder: &Path,
    stem: &str,
    caption: &str,
) -> Result<Option<FigureFile>> {
    let Some(drawing) = drawing else { return Ok(None) };
    plot::write(&drawing, folder, stem)?;
    Ok(Some(FigureFile { file: format!("{stem}.png"), caption: caption.into() }))
}

/// The relative error of every snapshot: its mean over trajectories, and the error of the worst trajectory.
pub fn error_over_time(report: &Report) -> Figure {
    let curve = |label: &str, color: usize, line: LineStyle, of: fn(&cfo::evaluate::TimeError) -> f64| {
        Curve::new(label, report.per_time.iter().map(|at| (at.time, of(at))).collect(), color, line)
    };
    Figure {
        title: "Rollout error over time".into(),
        x: Axis::linear("time"),
        y: Axis::logarithmic("relative L2 error"),
        series: vec![
            curve("mean", 0, LineStyle::Solid, |at| at.relative_l2),
            curve("worst", 1, LineStyle::Dashed, |at| at.worst),
        ],
        size: (640, 360),
    }
}

/// A trajectory and its prediction, snapshot after snapshot.
struct Comparison<'a> {
    description: &'a Description,
    times: &'a [f64],
    truth: &'a [f32],
    prediction: &'a [f32],
    title: String,
}

/// Writes the figures of the trajectory with the highest error.
pub fn worst(description: &Description, report: &Report, folder: &Path) -> Result<Vec<FigureFile>> {
    let Some(worst) = &report.worst else { return Ok(vec![]) };
    let title = match report.relative_l2.indices.len() {
        1 => format!("The trajectory: relative L2 error {}", short(worst.error)),
        count => format!("The worst of {count} trajectories: relative L2 error {}", short(worst.error)),
    };
    let comparison = Comparison {
        description,
        times: &worst.truth.times,
        truth: &worst.truth.values,
        prediction: &worst.prediction,
        title,
    };
    match description.shape.axes() {
        0 => comparison.write_system(folder),
        1 => comparison.write_line(folder),
        2 => comparison.write_plane(folder),
        _ => {
            let [(plane, truth), (_, prediction)] =
                [comparison.truth, comparison.prediction].map(|values| description.middle_plane(values));
            let title = format!("{}, middle plane", comparison.title);
            Comparison { description: &plane, truth: &truth, prediction: &prediction, title, ..comparison }
                .write_plane(folder)
        }
    }
}

impl Comparison<'_> {
    /// The prediction as the only method beside the truth.
    fn side_by_side(&self) -> MethodPanels<'_> {
        MethodPanels {
            description: self.description,
            times: self.times,
            truth: self.truth,
            methods: vec![("predicted".into(), self.prediction.to_vec())],
            title: self.title.clone(),
        }
    }

    /// Numbers in a snapshot.
    fn size(&self) -> usize {
        self.description.shape.len()
    }

    fn frames(&self) -> usize {
        self.times.len()
    }

    fn channels(&self) -> usize {
        self.description.shape.channels
    }

    fn channel_name(&self, channel: usize) -> String {
        let named = |names: &[String]| names.get(channel).filter(|name| !name.is_empty()).cloned();
        let name = named(&self.description.channel_names).unwrap_or_else(|| match self.channels() {
            1 => "u".into(),
            _ => format!("channel {channel}"),
        });
        match named(&self.description.channel_units) {
            Some(unit) => format!("{name} [{unit}]"),
            None => name,
        }
    }

    /// One channel of one snapshot of the truth or of the prediction.
    fn field(&self, values: &[f32], frame: usize, channel: usize) -> Vec<f32> {
        let snapshot = &values[frame * self.size()..(frame + 1) * self.size()];
        snapshot.iter().skip(channel).step_by(self.channels()).copied().collect()
    }

    /// One channel of prediction minus truth at one snapshot.
    fn error(&self, frame: usize, channel: usize) -> Vec<f32> {
        let predicted = self.field(self.prediction, frame, channel);
        predicted.iter().zip(self.field(self.truth, frame, channel)).map(|(p, q)| p - q).collect()
    }

    fn true_values(&self, channel: usize) -> impl Iterator<Item = &f32> {
        self.truth.iter().skip(channel).step_by(self.channels())
    }

    /// Returns the range of a space axis, in grid points if the file has no domain.
    fn span(&self, axis: usize, label: &str) -> AxisSpan {
        let count = self.description.shape.grid.sides()[axis];
        match self.description.domain.get(axis) {
            Some(&[low, high]) if low < high => AxisSpan { label: label.into(), low, high },
            _ => AxisSpan { label: format!("{label} (grid points)"), low: 0.0, high: count as f64 },
        }
    }

    /// Snapshots nearest to `count` equally spaced times, without repetition.
    fn spread(&self, count: usize) -> Vec<usize> {
        let (first, last) = (self.times[0], self.times[self.frames() - 1]);
        let mut chosen: Vec<usize> = (0..count)
            .map(|i| {
                let time = first + (last - first) * i as f64 / count.saturating_sub(1).max(1) as f64;
                self.nearest(time)
            })
            .collect();
        chosen.dedup();
        chosen
    }

    fn nearest(&self, time: f64) -> usize {
        let after = self.times.partition_point(|&t| t < time).min(self.frames() - 1);
        match after.checked_sub(1) {
            Some(before) if time - self.times[before] < self.times[after] - time => before,
            _ => after,
        }
    }

    fn time_label(&self, frame: usize) -> String {
        let span = self.times[self.frames() - 1] - self.times[0];
        let digits = (2.0 - span.log10().floor()).clamp(0.0, 6.0) as usize;
        format!("t = {:.digits$}", self.times[frame])
    }
}

/// Three significant digits, without an exponent where none is needed.
pub fn short(value: f64) -> String {
    if (1e-3..1e3).contains(&value) {
        let digits = (2.0 - value.log10().floor()).max(0.0) as usize;
        format!("{value:.digits$}")
    } else {
        format!("{value:.2e}")
    }
}

/// Least and greatest of some values, with a little room.
fn bounds<'a>(values: impl Iterator<Item = &'a f32>) -> [f64; 2] {
    let scale = plot::ColorScale::covering(values);
    let room = 0.04 * (scale.high - scale.low);
    [scale.low - room, scale.high + room]
}
