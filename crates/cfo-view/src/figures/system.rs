//! Figures of a system without space axes: its components over time, its path through state space.

use std::path::Path;

use anyhow::Result;

use super::{Comparison, FRAMES, FigureFile, bounds};
use crate::plot::{self, Axis, Curve, Drawing, Figure, Limits, LineStyle, SpaceCurve, SpacePlot, Stack};

const COMPONENTS: usize = 8;

impl Comparison<'_> {
    pub(super) fn write_system(&self, folder: &Path) -> Result<Vec<FigureFile>> {
        let picture = |file: &str, caption: &str| FigureFile { file: file.into(), caption: caption.into() };
        plot::write(&self.components(self.frames() - 1, &self.title), folder, "worst-trajectory")?;
        let mut pictures =
            vec![picture("worst-trajectory.png", "Components of the worst trajectory over time")];
        match self.channels() {
            1 => self.animate_states(folder, |frame, title| self.components(frame, title))?,
            2 => self.write_states(folder, |last, title| self.plane_of_states(last, title))?,
            _ => self.write_states(folder, |last, title| self.space_of_states(last, title))?,
        }
        if self.channels() > 1 {
            pictures.push(picture("state-space.png", "The worst trajectory in state space"));
        }
        pictures.push(picture("rollout.png", "Animation of the worst trajectory"));
        Ok(pictures)
    }

    /// Writes all states and an animation of them. `draw` is given the last snapshot and the title.
    fn write_states<D: Drawing>(&self, folder: &Path, draw: impl Fn(usize, &str) -> D + Sync) -> Result<()> {
        plot::write(&draw(self.frames() - 1, &self.title), folder, "state-space")?;
        self.animate_states(folder, draw)
    }

    fn animate_states<D: Drawing>(
        &self,
        folder: &Path,
        draw: impl Fn(usize, &str) -> D + Sync,
    ) -> Result<()> {
        let moment = |frame| draw(frame, &self.time_label(frame));
        plot::write_animation(&self.spread(FRAMES), moment, &folder.join("rollout.png"))
    }

    fn course(&self, values: &[f32], channel: usize, last: usize) -> Vec<f64> {
        let steps = values.iter().skip(channel).step_by(self.channels());
        steps.take(last + 1).map(|&value| f64::from(value)).collect()
    }

    /// Each component over time, up to a snapshot.
    fn components(&self, last: usize, title: &str) -> Stack {
        let count = self.channels().min(COMPONENTS);
        let span = [self.times[0], self.times[self.frames() - 1]];
        let figure = |channel: usize| {
            let curve = |label: &str, values: &[f32], color: usize, line: LineStyle| {
                Curve::new(
                    label,
                    self.times.iter().copied().zip(self.course(values, channel, last)).collect(),
                    color,
                    line,
                )
            };
            let (top, bottom) = (channel == 0, channel + 1 == count);
            let figure = Figure {
                title: if top { title.to_owned() } else { String::new() },
                x: Axis::linear(if bottom { "time" } else { "" }),
                y: Axis::linear(self.channel_name(channel)),
                series: vec![
                    curve("true", self.truth, 0, LineStyle::Solid),
                    curve("predicted", self.prediction, 1, LineStyle::Dashed),
                ],
                size: (680, 130 + if top { 26 } else { 0 } + if bottom { 20 } else { 0 }),
            };
            (figure, Limits { x: Some(span), y: Some(bounds(self.true_values(channel))) })
        };
        Stack((0..count).map(figure).collect())
    }

    /// Two components against each other, the prediction up to a snapshot.
    fn plane_of_states(&self, last: usize, title: &str) -> Stack {
        let curve = |label: &str, values: &[f32], last: usize, color: usize, line: LineStyle| {
            Curve::new(
                label,
                self.course(values, 0, last).into_iter().zip(self.course(values, 1, last)).collect(),
                color,
                line,
            )
        };
        let figure = Figure {
            title: title.to_owned(),
            x: Axis::linear(self.channel_name(0)),
            y: Axis::linear(self.channel_name(1)),
            series: vec![
                curve("true", self.truth, self.frames() - 1, 0, LineStyle::Solid),
                curve("predicted", self.prediction, last, 1, LineStyle::Dashed),
            ],
            size: (600, 400),
        };
        let limits = |channel| Some(bounds(self.true_values(channel)));
        Stack(vec![(figure, Limits { x: limits(0), y: limits(1) })])
    }

    /// The first three components in space, the prediction up to a snapshot.
    fn space_of_states(&self, last: usize, title: &str) -> SpacePlot {
        let curve = |label: &str, values: &[f32], last: usize, color: usize, line: LineStyle| SpaceCurve {
            label: label.into(),
            points: values
                .chunks_exact(self.channels())
                .take(last + 1)
                .map(|state| [state[0], state[1], state[2]].map(f64::from))
                .collect(),
            color,
            line,
        };
        SpacePlot {
            title: title.to_owned(),
            labels: std::array::from_fn(|channel| self.channel_name(channel)),
            bounds: std::array::from_fn(|channel| bounds(self.true_values(channel))),
            curves: vec![
                curve("true", self.truth, self.frames() - 1, 0, LineStyle::Solid),
                curve("predicted", self.prediction, last, 1, LineStyle::Dashed),
            ],
            size: (620, 440),
        }
    }
}
