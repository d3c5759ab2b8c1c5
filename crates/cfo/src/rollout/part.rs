//! A batch of trajectories under way: where each starts, where it is wanted, what was found.

use super::Request;
use crate::error::{CfoError, Result};
use crate::model::Model;

/// The start of a step that spans several outputs.
pub(super) struct Knot {
    pub(super) outputs: std::ops::Range<usize>,
    pub(super) times: Vec<f64>,
    pub(super) ends: Vec<f64>,
    pub(super) state: Vec<f32>,
    pub(super) slope: Vec<f32>,
}

/// One batch under way, in the network's units.
pub(super) struct Part {
    pub(super) size: usize,
    pub(super) start: Vec<f64>,
    pub(super) times: Vec<Vec<f64>>,
    pub(super) state: Vec<f32>,
    pub(super) conditions: Vec<f32>,
    pub(super) outputs: Vec<Vec<f32>>,
}

impl Part {
    pub(super) fn new(model: &Model, request: &Request, chosen: &[usize]) -> Result<Self> {
        let size = model.shape().len();
        let scaling = &model.scaling;
        let mut part = Self {
            size,
            start: Vec::new(),
            times: Vec::new(),
            state: Vec::new(),
            conditions: Vec::new(),
            outputs: Vec::new(),
        };
        for &i in chosen {
            if request.states[i].len() != size {
                return Err(CfoError::BadData {
                    problem: format!(
                        "initial state {i} has {} values; the model takes {size}",
                        request.states[i].len()
                    ),
                    hint: "the grid and the channels must be those of the training data".into(),
                });
            }
            part.start.push(scaling.time(request.start[i]));
            part.times.push(request.times[i].iter().map(|&time| scaling.time(time)).collect());
            part.state.extend(scaling.normalize(&request.states[i]));
            part.outputs.push(vec![0.0; request.times[i].len() * size]);
            if model.setting.conditions > 0 {
                let values = request.conditions[i].iter().zip(&scaling.conditions);
                part.conditions
                    .extend(values.map(|(value, [mean, deviation])| ((value - mean) / deviation) as f32));
            }
        }
        Ok(part)
    }

    /// Most outputs of a trajectory.
    pub(super) fn longest(&self) -> usize {
        self.times.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Longest time from start to last output.
    pub(super) fn longest_span(&self) -> f64 {
        let spans = self
            .times
            .iter()
            .zip(&self.start)
            .filter_map(|(times, start)| Some((times.last()? - start).abs()));
        spans.fold(0.0, f64::max)
    }

    /// For each trajectory the time of an output; its last one if it has fewer.
    pub(super) fn times_at(&self, output: usize) -> Vec<f64> {
        let at =
            |(times, start): (&Vec<f64>, &f64)| times.get(output).or(times.last()).copied().unwrap_or(*start);
        self.times.iter().zip(&self.start).map(at).collect()
    }

    /// For each trajectory the time before an output.
    pub(super) fn times_before(&self, output: usize) -> Vec<f64> {
        if output == 0 { self.start.clone() } else { self.times_at(output - 1) }
    }

    pub(super) fn record(&mut self, output: usize, state: &[f32]) {
        for i in 0..self.times.len() {
            self.record_one(i, output, state);
        }
    }

    /// Fills an output of one trajectory that is due at its start.
    pub(super) fn record_start(&mut self, i: usize, output: usize) {
        let from = &self.state[i * self.size..(i + 1) * self.size];
        self.outputs[i][output * self.size..(output + 1) * self.size].copy_from_slice(from);
    }

    pub(super) fn record_one(&mut self, i: usize, output: usize, state: &[f32]) {
        if output < self.times[i].len() {
            let from = &state[i * self.size..(i + 1) * self.size];
            self.outputs[i][output * self.size..(output + 1) * self.size].copy_from_slice(from);
        }
    }

    /// Fills one output of one trajectory from the state at a step's start and weighted slopes: dense output.
    pub(super) fn combine(&mut self, i: usize, output: usize, state: &[f32], terms: &[(f64, &[f32])]) {
        for j in 0..self.size {
            let at = i * self.size + j;
            let change: f64 = terms.iter().map(|(weight, slope)| weight * f64::from(slope[at])).sum();
            self.outputs[i][output * self.size + j] = (f64::from(state[at]) + change) as f32;
        }
    }

    /// Fills the outputs inside a step from values and slopes at its ends.
    pub(super) fn interpolate(&mut self, knot: &Knot, end_state: &[f32], end_slope: &[f32]) {
        for i in 0..self.times.len() {
            let (start, length) = (knot.times[i], knot.ends[i] - knot.times[i]);
            for output in knot.outputs.clone().filter(|&output| output < self.times[i].len()) {
                let x = if length == 0.0 { 1.0 } else { (self.times[i][output] - start) / length };
                let weights = [
                    (1.0 + 2.0 * x) * (1.0 - x) * (1.0 - x),
                    x * (1.0 - x) * (1.0 - x) * length,
                    x * x * (3.0 - 2.0 * x),
                    x * x * (x - 1.0) * length,
                ];
                for j in 0..self.size {
                    let at = i * self.size + j;
                    let terms = [knot.state[at], knot.slope[at], end_state[at], end_slope[at]];
                    let value: f64 = weights.iter().zip(terms).map(|(w, term)| w * f64::from(term)).sum();
                    self.outputs[i][output * self.size + j] = value as f32;
                }
            }
        }
    }
}
