//! Pictures of what methods make of the same trajectories: the median and the worst of CFO's.

use anyhow::Result;
use cfo::data::FieldShape;
use cfo::{Report, Request};

use super::experiment::Outcome;
use crate::plot::{ColorScale, Image, Panels, Row, Span};

/// What is shown of each trajectory, by their names.
const SHOWN: [&str; 2] = ["median", "worst"];

/// Fields of the chosen trajectories as images: over time and space on a line, at the last time on a plane.
pub(super) struct Seen {
    label: String,
    images: Vec<Vec<f32>>,
}

/// A method's fields beside the true ones and those of other methods.
#[derive(Default)]
pub(super) struct SideBySide {
    /// Positions among the test trajectories.
    chosen: Vec<usize>,
    truth: Vec<Vec<f32>>,
    found: Vec<Seen>,
    width: usize,
    spans: Option<[Span; 2]>,
}

impl SideBySide {
    /// Adds a method; the first one's errors choose the trajectories. Systems without space are not shown.
    pub fn add(&mut self, label: &str, outcome: &Outcome<'_>, report: &Report) -> Result<()> {
        let shape = outcome.trained.model().shape();
        if shape.axes == 0 {
            return Ok(());
        }
        let request = outcome.request();
        if self.found.is_empty() {
            self.chosen = median_and_worst(report);
            self.begin(outcome, &request, shape);
        }
        let one = Request {
            start: self.chosen.iter().map(|&i| request.start[i]).collect(),
            states: self.chosen.iter().map(|&i| request.states[i].clone()).collect(),
            times: self.chosen.iter().map(|&i| request.times[i].clone()).collect(),
            conditions: self.chosen.iter().map(|&i| request.conditions[i].clone()).collect(),
        };
        let states = outcome.trained.predict_each(&one, &outcome.watch())?.states;
        let images = states.iter().map(|states| image(states, shape, self.width)).collect();
        self.found.push(Seen { label: label.into(), images });
        Ok(())
    }

    /// What is true, and what the axes show.
    fn begin(&mut self, outcome: &Outcome<'_>, request: &Request, shape: FieldShape) {
        let test = outcome.test();
        let frames = self.chosen.iter().map(|&i| request.times[i].len()).min().unwrap_or(0);
        self.width = if shape.axes == 1 { frames } else { shape.width };
        for &i in &self.chosen {
            let values = &test[i].values[test[i].values.len() - request.times[i].len() * shape.len()..];
            self.truth.push(image(values, shape, self.width));
        }
        let domain = &outcome.set.description.domain;
        let span = |axis: usize, label: &str| {
            let [low, high] = domain.get(axis).copied().unwrap_or([0.0, 1.0]);
            Span { label: label.into(), low, high }
        };
        let times = self.chosen.first().map_or(&[][..], |&i| &request.times[i]);
        self.spans = Some(match (shape.axes, times) {
            (1, [first, .., last]) => [Span { label: "time".into(), low: *first, high: *last }, span(0, "x")],
            _ => [span(1, "x"), span(0, "y")],
        });
    }

    /// Truth, every method, and how far each is off; nothing where nothing was added.
    pub fn picture(self, title: String) -> Option<Panels> {
        let [x, y] = self.spans?;
        let labels = self.found.iter().map(|seen| seen.label.clone());
        let errors = self.found.iter().map(|seen| format!("{} - true", seen.label));
        let columns = std::iter::once("true".to_owned()).chain(labels).chain(errors).collect();
        let row = |(i, name): (usize, &&str)| {
            let truth = self.truth.get(i)?;
            let scale = ColorScale::covering(truth.iter());
            let off: Vec<Vec<f32>> = self
                .found
                .iter()
                .map(|seen| seen.images[i].iter().zip(truth).map(|(found, truth)| found - truth).collect())
                .collect();
            let error_scale = ColorScale::around_zero(off.iter().flatten());
            let image = |values: &Vec<f32>, scale, bar| Image {
                values: values.clone(),
                width: self.width,
                scale,
                bar,
            };
            let (count, mut images) = (self.found.len(), vec![image(truth, scale, false)]);
            images.extend(
                self.found.iter().enumerate().map(|(k, seen)| image(&seen.images[i], scale, k + 1 == count)),
            );
            images.extend(off.iter().enumerate().map(|(k, off)| image(off, error_scale, k + 1 == count)));
            Some(Row { label: (*name).to_owned(), images })
        };
        let rows = SHOWN.iter().enumerate().filter_map(row).collect();
        Some(Panels { title, columns, rows, panel: (150, 140), x: Some(x), y: Some(y) })
    }
}

/// Positions of the trajectories with the median and the highest error; those that diverged are left out.
fn median_and_worst(report: &Report) -> Vec<usize> {
    let errors = report.relative_l2.per_trajectory.iter().enumerate();
    let mut order: Vec<(usize, f64)> = errors.filter_map(|(i, error)| Some((i, (*error)?))).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    match order.len() {
        0 => Vec::new(),
        count => vec![order[(count - 1) / 2].0, order[count - 1].0],
    }
}

/// The first channel over time, or of the last snapshot; of states that ended early what is missing is left at 0.
fn image(states: &[f32], shape: FieldShape, width: usize) -> Vec<f32> {
    let (size, channels) = (shape.len(), shape.channels);
    if shape.axes > 1 {
        let last = &states[states.len() - size.min(states.len())..];
        let mut values: Vec<f32> = last.iter().step_by(channels).copied().collect();
        values.resize(shape.height * shape.width, 0.0);
        return values;
    }
    let mut values = vec![0.0; width * shape.width];
    for (column, snapshot) in states.chunks_exact(size).take(width).enumerate() {
        for (x, value) in snapshot.iter().step_by(channels).enumerate() {
            values[x * width + column] = *value;
        }
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use cfo::evaluate::RelativeL2;

    #[test]
    fn the_median_and_the_worst_are_chosen_among_those_that_arrived() {
        let per_trajectory = vec![Some(0.3), None, Some(0.1), Some(0.9), Some(0.2)];
        let relative_l2 = RelativeL2 { per_trajectory, ..RelativeL2::default() };
        let report = Report { relative_l2, ..Report::default() };
        assert_eq!(median_and_worst(&report), [4, 3]);
    }

    #[test]
    fn lines_are_shown_over_time_and_planes_at_their_end() {
        let line = image(&[1.0, 2.0, 3.0, 4.0], FieldShape::line(2, 1), 2);
        assert_eq!(line, [1.0, 3.0, 2.0, 4.0]);
        let plane = image(&[0.0, 0.0, 0.0, 0.0, 5.0, 6.0, 7.0, 8.0], FieldShape::plane(1, 2, 2), 2);
        assert_eq!(plane, [5.0, 7.0]);
    }
}
