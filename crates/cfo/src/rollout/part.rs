//! A batch of trajectories under way: where each starts, where it is wanted, what was found.

use cfo_engine::roomy;
use rayon::prelude::*;

use super::Request;
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::scaling::Scaling;

/// Numbers from which on several threads share the recording of an output.
const SHARED: usize = 1 << 16;

/// A step that spans several outputs.
pub(super) struct Knot {
    pub(super) outputs: std::ops::Range<usize>,
    pub(super) times: Vec<f64>,
    pub(super) ends: Vec<f64>,
}

/// One batch under way, in the network's units; what was found is in the user's.
pub(super) struct Part<'a> {
    size: usize,
    scaling: &'a Scaling,
    pub(super) start: Vec<f64>,
    pub(super) times: Vec<Vec<f64>>,
    pub(super) state: Vec<f32>,
    pub(super) conditions: Vec<f32>,
    pub(super) outputs: Vec<Found>,
}

/// What was found of one trajectory: its outputs in order.
#[derive(Default)]
pub(super) struct Found {
    pub(super) values: Vec<f32>,
    /// The first output that is not finite.
    pub(super) broken: Option<usize>,
}

impl Found {
    fn outputs(&self, size: usize) -> usize {
        self.values.len() / size.max(1)
    }

    fn check(&mut self, size: usize) {
        let last = self.values.len() - size;
        if self.broken.is_none() && self.values[last..].iter().any(|value| !value.is_finite()) {
            self.broken = Some(last / size.max(1));
        }
    }
}

impl<'a> Part<'a> {
    pub(super) fn new(model: &'a Model, request: &Request, chosen: &[usize]) -> Result<Self> {
        let size = model.shape().len();
        let scaling = &model.scaling;
        let mut part = Self {
            size,
            scaling,
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
            part.outputs.push(Found { values: roomy(request.times[i].len() * size), broken: None });
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

    /// Appends the next output of every trajectory that has one more, or of those marked, from states in the user's units.
    pub(super) fn record(&mut self, states: &[f32], marked: Option<&[bool]>) {
        let (size, times) = (self.size, &self.times);
        let append = |(i, (found, state)): (usize, (&mut Found, &[f32]))| {
            if found.outputs(size) < times[i].len() && marked.is_none_or(|marked| marked[i]) {
                found.values.extend_from_slice(state);
                found.check(size);
            }
        };
        if states.len() < SHARED {
            self.outputs.iter_mut().zip(states.chunks(size)).enumerate().for_each(append);
        } else {
            self.outputs.par_iter_mut().zip(states.par_chunks(size)).enumerate().for_each(append);
        }
    }

    /// Appends an output of one trajectory that is due at its start.
    pub(super) fn record_start(&mut self, i: usize) {
        let state = self.scaling.restore(&self.state[i * self.size..(i + 1) * self.size]);
        self.outputs[i].values.extend(state);
        self.outputs[i].check(self.size);
    }

    /// Weights of state and slope at a step's start and at its end for an output inside it, for each trajectory.
    pub(super) fn weights(&self, knot: &Knot, output: usize) -> Vec<f64> {
        let of = |i: usize| -> [f64; 4] {
            let (start, length) = (knot.times[i], knot.ends[i] - knot.times[i]);
            let x = match self.times[i].get(output) {
                Some(time) if length != 0.0 => (time - start) / length,
                _ => 1.0,
            };
            [
                (1.0 + 2.0 * x) * (1.0 - x) * (1.0 - x),
                x * (1.0 - x) * (1.0 - x) * length,
                x * x * (3.0 - 2.0 * x),
                x * x * (x - 1.0) * length,
            ]
        };
        (0..self.times.len()).flat_map(of).collect()
    }
}
