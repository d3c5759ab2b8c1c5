//! Figures of a field on a plane: images at some times.

use std::path::Path;

use anyhow::Result;
use rayon::prelude::*;

use super::{Comparison, FRAMES, FigureFile};
use crate::plot::{self, ColorScale, Image, PanelRow, Panels};

pub(super) const MOMENTS: usize = 5;

/// Longer side of an image in points.
pub(super) const SIDE: f64 = 124.0;

/// Longer side of an image in an animation, in points.
const MOVING_SIDE: f64 = 190.0;

impl Comparison<'_> {
    pub(super) fn write_plane(&self, folder: &Path) -> Result<Vec<FigureFile>> {
        let stem = |channel: usize| match self.channels() {
            1 => "worst-trajectory".to_owned(),
            _ => format!("worst-trajectory-{channel}"),
        };
        let moments = |channel: usize| {
            plot::write(&self.side_by_side().plane(channel), folder, &stem(channel))?;
            let caption = format!("The worst trajectory at {MOMENTS} times: {}", self.channel_name(channel));
            Ok(FigureFile { file: format!("{}.png", stem(channel)), caption })
        };
        // The animation takes longest, so it starts first.
        let (animation, moments) = rayon::join(
            || self.animate(folder),
            || (0..self.channels()).into_par_iter().map(moments).collect::<Result<Vec<_>>>(),
        );
        let mut pictures = moments?;
        pictures.push(animation?);
        Ok(pictures)
    }

    fn animate(&self, folder: &Path) -> Result<FigureFile> {
        let (scales, errors) = (self.scales(), self.errors());
        let draw = |frame| self.instant(frame, &scales, &errors);
        plot::write_animation(&self.spread(FRAMES), draw, &folder.join("rollout.png"))?;
        let caption = "Animation of the worst trajectory".into();
        Ok(FigureFile { file: "rollout.png".into(), caption })
    }

    fn scales(&self) -> Vec<ColorScale> {
        (0..self.channels()).into_par_iter().map(|channel| self.scale(channel)).collect()
    }

    fn errors(&self) -> Vec<ColorScale> {
        let largest = |channel: usize| {
            let frames = (0..self.frames()).into_par_iter().map(move |frame| {
                let error = self.error(frame, channel);
                error.iter().filter(|value| value.is_finite()).fold(0.0_f32, |most, x| most.max(x.abs()))
            });
            frames.reduce(|| 0.0, f32::max)
        };
        (0..self.channels()).map(|channel| ColorScale::around_zero([largest(channel)].iter())).collect()
    }

    /// The scale of a channel's values. It leaves out the first snapshot, which is given and may be noise.
    pub(super) fn scale(&self, channel: usize) -> ColorScale {
        let points = self.description.shape.grid.points();
        ColorScale::covering(self.true_values(channel).skip(points))
    }

    /// Width and height of an image whose longer side is `side`.
    pub(super) fn panel(&self, side: f64) -> (u32, u32) {
        let shape = self.description.shape;
        let (width, height) = (shape.grid.width() as f64, shape.grid.rows() as f64);
        let scale = side / width.max(height);
        ((width * scale).round().max(24.0) as u32, (height * scale).round().max(24.0) as u32)
    }

    pub(super) fn image(&self, values: Vec<f32>, scale: ColorScale, bar: bool) -> Image {
        Image { values, width: self.description.shape.grid.width(), scale, bar }
    }

    /// One frame of the animation: true, predicted and error side by side, a row for each channel.
    fn instant(&self, frame: usize, scales: &[ColorScale], errors: &[ColorScale]) -> Panels {
        let row = |channel: usize| {
            let scale = scales[channel];
            let images = vec![
                self.image(self.field(self.truth, frame, channel), scale, false),
                self.image(self.field(self.prediction, frame, channel), scale, true),
                self.image(self.error(frame, channel), errors[channel], true),
            ];
            let label = if self.channels() > 1 { self.channel_name(channel) } else { String::new() };
            PanelRow { label, images }
        };
        Panels {
            title: self.time_label(frame),
            columns: ["true", "predicted", "predicted - true"].map(String::from).to_vec(),
            rows: (0..self.channels()).map(row).collect(),
            panel: self.panel(MOVING_SIDE),
            x: None,
            y: None,
        }
    }
}
