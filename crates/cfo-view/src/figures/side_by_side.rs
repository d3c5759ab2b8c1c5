//! The predictions of several methods for one trajectory, side by side with the truth.

use cfo::data::Description;

use super::line::COLUMNS;
use super::{Comparison, plane};
use crate::plot::{AxisSpan, ColorScale, Image, PanelRow, Panels};

/// A trajectory and its predictions by several methods.
pub struct MethodPanels<'a> {
    /// Space, channels and units.
    pub description: &'a Description,
    /// Times of the snapshots.
    pub times: &'a [f64],
    /// The true snapshots, one after another.
    pub truth: &'a [f32],
    /// Name and predicted snapshots of each method; those of a method that diverged may end early.
    pub methods: Vec<(String, Vec<f32>)>,
    /// Printed above the images.
    pub title: String,
}

impl MethodPanels<'_> {
    /// The images: over time and space for a field on a line, at some times and channel by channel for one on a plane. All
    /// methods share a colour scale; times that a method did not reach are grey.
    pub fn panels(mut self) -> Vec<Panels> {
        for (_, values) in &mut self.methods {
            values.resize(self.truth.len(), f32::NAN);
        }
        if self.description.shape.axes() > 2 {
            let (description, truth) = self.description.middle_plane(self.truth);
            for (_, values) in &mut self.methods {
                *values = self.description.middle_plane(values).1;
            }
            return MethodPanels { description: &description, truth: &truth, ..self }.panels();
        }
        match self.description.shape.axes() {
            2 => (0..self.description.shape.channels).map(|channel| self.plane(channel)).collect(),
            _ => vec![self.line((170, 160))],
        }
    }

    fn comparison<'s>(&'s self, prediction: &'s [f32]) -> Comparison<'s> {
        let (description, times, truth) = (self.description, self.times, self.truth);
        Comparison { description, times, truth, prediction, title: String::new() }
    }

    fn comparisons(&self) -> Vec<Comparison<'_>> {
        self.methods.iter().map(|(_, values)| self.comparison(values)).collect()
    }

    /// The truth, each method, then each method's error; time to the right and space upwards.
    pub(super) fn line(&self, panel: (u32, u32)) -> Panels {
        let (truth, methods) = (self.comparison(self.truth), self.comparisons());
        let rows = (0..truth.channels()).map(|channel| {
            let of_truth = truth.over_time(|frame| truth.field(truth.truth, frame, channel));
            let predicted: Vec<Vec<f32>> = methods
                .iter()
                .map(|one| one.over_time(|frame| one.field(one.prediction, frame, channel)))
                .collect();
            let errors: Vec<Vec<f32>> =
                methods.iter().map(|one| one.over_time(|frame| one.error(frame, channel))).collect();
            let scale = ColorScale::covering(of_truth.iter());
            let error_scale = ColorScale::around_zero(errors.iter().flatten());
            let image = |values, scale, bar| Image { values, width: COLUMNS, scale, bar };
            let mut images = vec![image(of_truth, scale, false)];
            for (values, scale) in [(predicted, scale), (errors, error_scale)] {
                let last = values.len().saturating_sub(1);
                images.extend(values.into_iter().enumerate().map(|(i, one)| image(one, scale, i == last)));
            }
            let label = if truth.channels() > 1 { truth.channel_name(channel) } else { String::new() };
            PanelRow { label, images }
        });
        let names = || self.methods.iter().map(|(name, _)| name.clone());
        let columns =
            std::iter::once("true".to_owned()).chain(names()).chain(names().map(|name| name + " - true"));
        Panels {
            title: self.title.clone(),
            columns: columns.collect(),
            rows: rows.collect(),
            panel,
            x: Some(AxisSpan {
                label: "time".into(),
                low: self.times[0],
                high: self.times[self.times.len() - 1],
            }),
            y: Some(truth.span(0, "x")),
        }
    }

    /// The truth, then each method above its error, times to the right.
    pub(super) fn plane(&self, channel: usize) -> Panels {
        let (truth, methods) = (self.comparison(self.truth), self.comparisons());
        let chosen = truth.spread(plane::MOMENTS);
        let scale = truth.scale(channel);
        let errors =
            methods.iter().flat_map(|one| chosen.iter().flat_map(|&frame| one.error(frame, channel)));
        let error_scale = ColorScale::around_zero(errors.collect::<Vec<f32>>().iter());
        let row = |label: String, scale: ColorScale, field: &dyn Fn(usize) -> Vec<f32>| {
            let last = chosen.len() - 1;
            let shown = chosen.iter().enumerate();
            let images = shown.map(|(i, &frame)| truth.image(field(frame), scale, i == last)).collect();
            PanelRow { label, images }
        };
        let mut rows = vec![row("true".into(), scale, &|frame| truth.field(truth.truth, frame, channel))];
        for ((name, _), one) in self.methods.iter().zip(&methods) {
            rows.push(row(name.clone(), scale, &|frame| one.field(one.prediction, frame, channel)));
            rows.push(row(format!("{name} - true"), error_scale, &|frame| one.error(frame, channel)));
        }
        Panels {
            title: format!("{}. {}", truth.channel_name(channel), self.title),
            columns: chosen.iter().map(|&frame| truth.time_label(frame)).collect(),
            rows,
            panel: truth.panel(plane::SIDE),
            x: None,
            y: None,
        }
    }
}
