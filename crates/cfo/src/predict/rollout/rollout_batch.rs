//! A batch of trajectories during a rollout: their starts, output times and outputs.

use std::sync::Arc;

use cfo_data::TrajectoryInputs;
use cfo_device::roomy;
use cfo_numerics::Signal;
use rayon::prelude::*;

use super::excursion::{Bounds, Farthest};
use super::{Halt, Request, Watch};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::objective::{EQUAL, MotionKind};

/// Number of values from which several threads record an output.
const SHARED: usize = 1 << 16;

/// A batch during a rollout, in the network's units. Its outputs are in the user's units.
pub(super) struct RolloutBatch<'w, 'a> {
    size: usize,
    /// Number of requested trajectories; others fill the batch.
    pub(super) asked_for: usize,
    pub(super) watch: &'w Watch<'a>,
    pub(super) start: Vec<f64>,
    pub(super) times: Vec<Arc<[f64]>>,
    pub(super) state: Vec<f32>,
    pub(super) conditions: Vec<f32>,
    /// Static fields; empty for a model without them.
    pub(super) statics: Vec<f32>,
    /// The controls as functions of the network's time; empty for a model without controls.
    pub(super) signals: Vec<Signal>,
    /// The number that identifies each trajectory for random draws: a hash of its first state.
    pub(super) numbers: Vec<u32>,
    /// Whether outputs are not recorded, as for a flow from noise.
    pub(super) is_silent: bool,
    pub(super) outputs: Vec<Found>,
    pub(super) bounds: Arc<Bounds>,
}

#[derive(Default)]
pub(super) struct Found {
    pub(super) values: Vec<f32>,
    /// Why the trajectory ended early. The time is the last one reached, in the network's units, if it is later than the last output.
    pub(super) halt: Option<(Halt, Option<f64>)>,
    /// The first output far outside the range of the training data, and the farthest value, if there is one.
    pub(super) farthest: Option<Farthest>,
}

impl Found {
    /// Appends an output. An output that is not finite is dropped and ends the trajectory.
    fn push(&mut self, state: &[f32], bounds: &Bounds) {
        if !bounds.hold(state) {
            if !state.iter().fold(true, |finite, value| finite & value.is_finite()) {
                self.halt = Some((Halt::NotFinite, None));
                return;
            }
            bounds.look(state, self.values.len() / state.len().max(1), &mut self.farthest);
        }
        self.values.extend_from_slice(state);
    }
}

impl<'w, 'a> RolloutBatch<'w, 'a> {
    /// Creates a batch of the trajectories of a request from `first` on; the last one is repeated until the batch is full.
    pub(super) fn new(
        model: &Model,
        request: &Request,
        (first, batch): (usize, usize),
        (bounds, watch): (Arc<Bounds>, &'w Watch<'a>),
    ) -> Result<Self> {
        let last = (first + batch).min(request.start.len());
        let size = model.shape().len();
        let scaling = &model.scaling;
        let mut part = Self {
            size,
            asked_for: last - first,
            watch,
            start: Vec::new(),
            times: Vec::new(),
            state: Vec::new(),
            conditions: Vec::new(),
            statics: Vec::new(),
            signals: Vec::new(),
            numbers: Vec::new(),
            is_silent: false,
            outputs: Vec::new(),
            bounds,
        };
        for i in (first..first + batch).map(|i| i.min(last - 1)) {
            check(model, request, i)?;
            let times: Arc<[f64]> = request.times[i].iter().map(|&time| scaling.time(time)).collect();
            let mut found = Found { values: roomy(times.len() * size), ..Found::default() };
            let start = scaling.time(request.start[i]);
            for _ in times.iter().take_while(|&&time| time == start) {
                found.push(&request.states[i], &part.bounds);
            }
            part.start.push(start);
            part.times.push(times);
            part.state.extend(model.encode(&request.states[i]));
            part.numbers.push(number_of(&request.states[i]));
            part.outputs.push(found);
            if let Some(inputs) = request.inputs.get(i) {
                part.conditions.extend(model.conditions(inputs));
                part.statics.extend(model.statics(inputs));
                part.signals.extend(model.signal(inputs));
            }
        }
        Ok(part)
    }

    /// Returns the batch of flows from noise that generate these trajectories: from 0 to 1, without outputs.
    pub(super) fn flow(&self) -> Self {
        let count = self.start.len();
        Self {
            start: vec![0.0; count],
            times: (0..count).map(|_| Arc::from([1.0])).collect(),
            state: Vec::new(),
            conditions: Vec::new(),
            statics: Vec::new(),
            signals: Vec::new(),
            numbers: self.numbers.clone(),
            is_silent: true,
            outputs: (0..count).map(|_| Found::default()).collect(),
            bounds: Arc::clone(&self.bounds),
            ..*self
        }
    }

    /// Returns the latest of all starts and output times, in the network's units.
    pub(super) fn latest(&self) -> f64 {
        let outputs = self.times.iter().filter_map(|times| times.last());
        self.start.iter().chain(outputs).copied().fold(f64::NEG_INFINITY, f64::max)
    }

    /// Returns the number of outputs recorded for the requested trajectories.
    pub(super) fn recorded(&self) -> usize {
        self.outputs.iter().take(self.asked_for).map(|found| found.values.len() / self.size).sum()
    }

    /// Ends a trajectory early, at a time in the network's units.
    pub(super) fn halt(&mut self, i: usize, halt: Halt, time: f64) {
        self.outputs[i].halt.get_or_insert((halt, Some(time)));
    }

    pub(super) fn is_halted(&self, i: usize) -> bool {
        self.outputs[i].halt.is_some()
    }

    /// Appends the next output of every marked trajectory, from states in the user's units.
    pub(super) fn record(&mut self, states: &[f32], marked: &[bool]) {
        let bounds = &*self.bounds;
        let append = |((found, state), &marked): ((&mut Found, &[f32]), &bool)| {
            if marked && found.halt.is_none() {
                found.push(state, bounds);
            }
        };
        if states.len() < SHARED {
            self.outputs.iter_mut().zip(states.chunks(self.size)).zip(marked).for_each(append);
        } else {
            self.outputs.par_iter_mut().zip(states.par_chunks(self.size)).zip(marked).for_each(append);
        }
    }
}

/// Returns a hash of all bits of a state (Fowler, Noll and Vo's). Different states have equal hashes with probability 2^-32.
fn number_of(state: &[f32]) -> u32 {
    let mix =
        |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = state.iter().fold(0xcbf2_9ce4_8422_2325, mix);
    (hash ^ (hash >> 32)) as u32
}

/// Returns an error if a trajectory of a request does not fit the model, or its times change direction.
fn check(model: &Model, request: &Request, i: usize) -> Result<()> {
    let size = model.shape().len();
    let bad = |problem: String, hint: &str| Err(CfoError::bad_data(problem, hint));
    if request.states[i].len() != size {
        return bad(
            format!("initial state {i} has {} values; the model takes {size}", request.states[i].len()),
            "the grid and the channels must be those of the training data",
        );
    }
    let (start, times) = (request.start[i], &request.times[i]);
    if let Some(time) = times.iter().chain([&start]).find(|time| !time.is_finite()) {
        return bad(
            format!("a requested time of trajectory {i} is {time}"),
            "times must be finite numbers, in the unit of the training data",
        );
    }
    let direction = times.last().map_or(0.0, |last| (last - start).signum());
    let before = [start].into_iter().chain(times.iter().copied());
    let mut turns = before.zip(times).map(|(before, &time)| (time - before) * direction);
    if turns.any(|way| way < 0.0) {
        return bad(
            format!("the times of trajectory {i} are not in one direction from its start at {start}"),
            "request earlier and later times separately",
        );
    }
    match model.motion().kind() {
        MotionKind::Velocity => {}
        MotionKind::Step => check_steps(model, (start, times), request.inputs.get(i))?,
        MotionKind::Trajectory { .. } => check_horizon(model, i, start, times)?,
    }
    let none = TrajectoryInputs::default();
    let ends = [start, times.last().copied().unwrap_or(start)];
    model.check_covered(i, request.inputs.get(i).unwrap_or(&none), ends)?;
    let far = times.last().map_or(0.0, |last| (last - start).abs()) / model.scaling.span;
    if far > super::FARTHEST {
        return bad(
            format!(
                "time {} is {far:.1e} times the horizon of the training data away from the start at {start}",
                times[times.len() - 1]
            ),
            "check the unit, which must be that of the training data, or request times nearer to the start",
        );
    }
    Ok(())
}

/// Largest relative difference of a step from the mean step. A step may differ from its trajectory's first, that from the first of all
/// trajectories, and the mean from that.
const UNEQUAL: f64 = 4.0 * EQUAL;

/// Returns an error for times that a model with fixed steps cannot reach. Its step is the interval of the training data, or a parameter of
/// the trajectory that equals the first requested step.
fn check_steps(
    model: &Model,
    (start, times): (f64, &[f64]),
    inputs: Option<&TrajectoryInputs>,
) -> Result<()> {
    let mean = model.scaling.interval;
    let asked = times.iter().map(|time| time - start).find(|&step| step != 0.0).unwrap_or(mean);
    let told = inputs.into_iter().flat_map(|inputs| &inputs.parameters).copied();
    let told = told.take(model.inputs.parameters.len()).find(|value| (value / asked - 1.0).abs() < EQUAL);
    let interval = told.unwrap_or(mean);
    let mut before = start;
    for &time in times.iter().filter(|&&time| time != start) {
        let step = time - before;
        // Times far from 0 have larger rounding errors.
        let rounding = 4.0 * f64::EPSILON * time.abs().max(start.abs());
        if (step - interval).abs() > UNEQUAL * interval + rounding {
            let [interval, next, last] = [interval, start + interval, start + 2.0 * interval].map(shown);
            return Err(CfoError::bad_data(
                format!(
                    "the model predicts only snapshots that are {interval} apart: {time} comes after {before}"
                ),
                format!("request {next}, {last}, ...; a model trained by flow matching predicts any times"),
            ));
        }
        before = time;
    }
    Ok(())
}

/// Returns a time without digits that are due to rounding.
fn shown(time: f64) -> f64 {
    format!("{time:.8e}").parse().unwrap_or(time)
}

/// Returns an error for times that a model of whole trajectories does not generate.
fn check_horizon(model: &Model, i: usize, start: f64, times: &[f64]) -> Result<()> {
    let horizon = model.scaling.span;
    match times.iter().find(|&&time| !(0.0..=horizon * (1.0 + 1e-6)).contains(&(time - start))) {
        None => Ok(()),
        Some(time) => Err(CfoError::bad_data(
            format!(
                "trajectory {i} is requested at time {time}, but the model generates trajectories from their start at {start} to {}",
                start + horizon
            ),
            "request times within the horizon of the training data; a model trained by flow matching also predicts beyond it",
        )),
    }
}
