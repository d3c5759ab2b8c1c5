//! Figures of a field on a line: images over time and space, profiles at some times.

use std::path::Path;

use anyhow::Result;

use super::{Comparison, FRAMES, FigureFile, bounds};
use crate::plot::{self, Axis, AxisSpan, ColorScale, Curve, Figure, Limits, LineStyle, Stack};

pub(super) const COLUMNS: usize = 200;

/// Number of profiles, as in the paper: after a quarter, a half, three quarters and all of the time.
const PROFILES: usize = 4;

impl Comparison<'_> {
    pub(super) fn write_line(&self, folder: &Path) -> Result<Vec<FigureFile>> {
        plot::write(&self.side_by_side().line((190, 170)), folder, "worst-trajectory")?;
        plot::write(&self.profiles(), folder, "worst-profiles")?;
        let frames = self.spread(FRAMES);
        plot::write_animation(&frames, |frame| self.moment(frame), &folder.join("rollout.png"))?;
        let picture = |file: &str, caption: &str| FigureFile { file: file.into(), caption: caption.into() };
        Ok(vec![
            picture("worst-trajectory.png", "The worst trajectory over time and space"),
            picture("worst-profiles.png", "The worst trajectory at four times"),
            picture("rollout.png", "Animation of the worst trajectory"),
        ])
    }

    /// An image whose columns are equally spaced times, each interpolated between the two snapshots around it.
    pub(super) fn over_time(&self, field: impl Fn(usize) -> Vec<f32>) -> Vec<f32> {
        let width = self.description.shape.grid.width();
        let (first, last) = (self.times[0], self.times[self.frames() - 1]);
        let mut values = vec![0.0; COLUMNS * width];
        for column in 0..COLUMNS {
            let time = first + (last - first) * (column as f64 + 0.5) / COLUMNS as f64;
            let after = self.times.partition_point(|&t| t < time).clamp(1, self.frames() - 1);
            let (t0, t1) = (self.times[after - 1], self.times[after]);
            let share = ((time - t0) / (t1 - t0)) as f32;
            for (x, (a, b)) in field(after - 1).into_iter().zip(field(after)).enumerate() {
                values[x * COLUMNS + column] = a + share * (b - a);
            }
        }
        values
    }

    /// Truth and prediction over space at some times, the first channel above the second.
    fn profiles(&self) -> Stack {
        let chosen = self.spread(PROFILES + 1);
        let figure = |channel: usize| {
            let mut series = Vec::new();
            for (color, &frame) in chosen.iter().skip(1).enumerate() {
                let time = self.time_label(frame);
                for (values, kind, line) in [
                    (self.truth, "true", LineStyle::Solid),
                    (self.prediction, "predicted", LineStyle::Dashed),
                ] {
                    let points = self.over_space(&self.field(values, frame, channel));
                    series.push(Curve::new(format!("{time}, {kind}"), points, color, line));
                }
            }
            let top = channel == 0;
            let figure = Figure {
                title: if top { self.title.clone() } else { String::new() },
                x: Axis::linear(&self.span(0, "x").label),
                y: Axis::linear(self.channel_name(channel)),
                series,
                size: (760, 320),
            };
            (figure, Limits::default())
        };
        Stack((0..self.channels()).map(figure).collect())
    }

    /// Values with the places of their grid points, the middles of the domain's cells.
    fn over_space(&self, values: &[f32]) -> Vec<(f64, f64)> {
        let AxisSpan { low, high, .. } = self.span(0, "x");
        let step = (high - low) / values.len() as f64;
        let place = |i: usize| low + (i as f64 + 0.5) * step;
        values.iter().enumerate().map(|(i, &value)| (place(i), f64::from(value))).collect()
    }

    /// One frame of the animation: the first channel above its error.
    fn moment(&self, frame: usize) -> Stack {
        let curve = |label: &str, values: &[f32], color, line| {
            Curve::new(label, self.over_space(values), color, line)
        };
        let place = self.span(0, "x");
        let x = Some([place.low, place.high]);
        let fields = Figure {
            title: format!("{}, {}", self.channel_name(0), self.time_label(frame)),
            x: Axis::linear(""),
            y: Axis::linear(self.channel_name(0)),
            series: vec![
                curve("true", &self.field(self.truth, frame, 0), 0, LineStyle::Solid),
                curve("predicted", &self.field(self.prediction, frame, 0), 1, LineStyle::Dashed),
            ],
            size: (560, 220),
        };
        let errors: Vec<f32> = (0..self.frames()).flat_map(|frame| self.error(frame, 0)).collect();
        let error = Figure {
            title: String::new(),
            x: Axis::linear(&place.label),
            y: Axis::linear("error"),
            series: vec![curve("error", &self.error(frame, 0), 2, LineStyle::Solid)],
            size: (560, 150),
        };
        let scale = ColorScale::around_zero(errors.iter());
        Stack(vec![
            (fields, Limits { x, y: Some(bounds(self.true_values(0))) }),
            (error, Limits { x, y: Some([scale.low, scale.high]) }),
        ])
    }
}
