//! Figures of a system without space axes: its components over time, its path through state space.

use std::path::Path;

use anyhow::Result;

use super::{Comparison, FRAMES, Picture, bounds, linear};
use crate::plot::{self, Curve, Figure, Limits, Line, Series, Space, Stack};

/// Most components that are drawn.
const COMPONENTS: usize = 8;

impl Comparison<'_> {
    pub(super) fn write_system(&self, folder: &Path) -> Result<Vec<Picture>> {
        plot::write(&self.components(self.frames() - 1, &self.title), folder, "worst-trajectory")?;
        let mut pictures = vec![Picture {
            file: "worst-trajectory.png".into(),
            caption: "Components of the worst trajectory over time".into(),
        }];
        let frames = self.spread(FRAMES);
        let moving = folder.join("rollout.png");
        match self.channels() {
            1 => plot::write_animation(
                &frames,
                |frame| self.components(frame, &self.time_label(frame)),
                &moving,
            )?,
            2 => {
                plot::write(&self.plane_of_states(self.frames() - 1, &self.title), folder, "state-space")?;
                plot::write_animation(
                    &frames,
                    |frame| self.plane_of_states(frame, &self.time_label(frame)),
                    &moving,
                )?;
            }
            _ => {
                plot::write(&self.space_of_states(self.frames() - 1, &self.title), folder, "state-space")?;
                plot::write_animation(
                    &frames,
                    |frame| self.space_of_states(frame, &self.time_label(frame)),
                    &moving,
                )?;
            }
        }
        if self.channels() > 1 {
            let caption = "The worst trajectory in state space".into();
            pictures.push(Picture { file: "state-space.png".into(), caption });
        }
        let caption = "Animation of the worst trajectory".into();
        pictures.push(Picture { file: "rollout.png".into(), caption });
        Ok(pictures)
    }

    /// A component's values up to a snapshot.
    fn course(&self, values: &[f32], channel: usize, last: usize) -> Vec<f64> {
        let steps = values.iter().skip(channel).step_by(self.channels());
        steps.take(last + 1).map(|&value| f64::from(value)).collect()
    }

    /// Each component over time, up to a snapshot.
    fn components(&self, last: usize, title: &str) -> Stack {
        let count = self.channels().min(COMPONENTS);
        let span = [self.times[0], self.times[self.frames() - 1]];
        let figure = |channel: usize| {
            let curve = |label: &str, values: &[f32], color: usize, line: Line| {
                Series::new(
                    label,
                    self.times.iter().copied().zip(self.course(values, channel, last)).collect(),
                    color,
                    line,
                )
            };
            let (top, bottom) = (channel == 0, channel + 1 == count);
            let figure = Figure {
                title: if top { title.to_owned() } else { String::new() },
                x: linear(if bottom { "time" } else { "" }),
                y: linear(&self.channel_name(channel)),
                series: vec![
                    curve("true", self.truth, 0, Line::Solid),
                    curve("predicted", self.prediction, 1, Line::Dashed),
                ],
                size: (680, 130 + if top { 26 } else { 0 } + if bottom { 20 } else { 0 }),
            };
            (figure, Limits { x: Some(span), y: Some(bounds(self.true_values(channel))) })
        };
        Stack((0..count).map(figure).collect())
    }

    /// Two components against each other, the prediction up to a snapshot.
    fn plane_of_states(&self, last: usize, title: &str) -> Stack {
        let curve = |label: &str, values: &[f32], last: usize, color: usize, line: Line| {
            Series::new(
                label,
                self.course(values, 0, last).into_iter().zip(self.course(values, 1, last)).collect(),
                color,
                line,
            )
        };
        let figure = Figure {
            title: title.to_owned(),
            x: linear(&self.channel_name(0)),
            y: linear(&self.channel_name(1)),
            series: vec![
                curve("true", self.truth, self.frames() - 1, 0, Line::Solid),
                curve("predicted", self.prediction, last, 1, Line::Dashed),
            ],
            size: (600, 400),
        };
        let limits = |channel| Some(bounds(self.true_values(channel)));
        Stack(vec![(figure, Limits { x: limits(0), y: limits(1) })])
    }

    /// The first three components in space, the prediction up to a snapshot.
    fn space_of_states(&self, last: usize, title: &str) -> Space {
        let curve = |label: &str, values: &[f32], last: usize, color: usize, line: Line| Curve {
            label: label.into(),
            points: values
                .chunks_exact(self.channels())
                .take(last + 1)
                .map(|state| [state[0], state[1], state[2]].map(f64::from))
                .collect(),
            color,
            line,
        };
        Space {
            title: title.to_owned(),
            labels: std::array::from_fn(|channel| self.channel_name(channel)),
            bounds: std::array::from_fn(|channel| bounds(self.true_values(channel))),
            curves: vec![
                curve("true", self.truth, self.frames() - 1, 0, Line::Solid),
                curve("predicted", self.prediction, last, 1, Line::Dashed),
            ],
            size: (620, 440),
        }
    }
}
