//! Steps as long as tolerances allow, for each trajectory of a batch on its own.
//!
//! `cfo_numerics::ode::drive` moves one state through its times; here many move at once, each with its own time, length and
//! controller, so the course is written out. Controller, error norm and dense output are those of `cfo-numerics`.

use std::ops::Range;

use cfo_engine::{Data, Memory};
use cfo_numerics::ode::{Controller, StepControl};

use super::{Halt, Part, Rollout};
use crate::error::Result;

/// Attempts within a horizon of the training data before a rollout is given up. Rollouts that work take a few hundred.
const MOST_ATTEMPTS: f64 = 10_000.0;

/// First attempt, as a share of the horizon, unless the controller says otherwise.
const FIRST: f64 = 0.01;

/// Least step, as a share of the horizon or of the time, whichever is larger: a few units in the last place.
const LEAST: f64 = 16.0 * f64::EPSILON;

/// One trajectory of an adaptive rollout.
struct Track {
    start: f64,
    time: f64,
    /// The next output.
    output: usize,
    /// Length of the next attempt, if nothing ends it earlier.
    length: f64,
    /// Longest step.
    longest: f64,
    /// Whether steps end at every output.
    stops: bool,
    /// Attempts made.
    attempts: u64,
    control: StepControl,
}

impl Track {
    /// The next attempt's signed length: not past the output where it is to stop; 0 for a trajectory that has arrived.
    fn next_length(&self, outputs: &[f64]) -> f64 {
        let target = if self.stops { outputs.get(self.output) } else { outputs.last() };
        match target {
            Some(target) if self.output < outputs.len() => {
                let rest = target - self.time;
                rest.signum() * self.length.min(self.longest).min(rest.abs())
            }
            _ => 0.0,
        }
    }

    /// Whether the attempt counts; if so the time moves.
    fn judge(&mut self, error: f64, length: f64, outputs: &[f64]) -> bool {
        self.attempts += 1;
        let decision = self.control.decide(error);
        let next = length.abs() * decision.factor;
        if !decision.accept {
            self.length = next;
            return false;
        }
        let target = if self.stops { outputs.get(self.output) } else { outputs.last() };
        let target = target.copied().unwrap_or(self.time);
        let arrives = length == target - self.time;
        // A step cut short to end at an output says nothing against the length it was cut from.
        self.length = if arrives { next.max(self.length) } else { next };
        self.time = if arrives { target } else { self.time + length };
        true
    }

    /// Passes the outputs that are reached, and says which.
    fn pass(&mut self, length: f64, outputs: &[f64]) -> Range<usize> {
        let first = self.output;
        let reached = |time: f64| if length >= 0.0 { time <= self.time } else { time >= self.time };
        self.output += outputs[first..].iter().take_while(|&&time| reached(time)).count();
        first..self.output
    }

    /// Whether it made as many attempts as allowed: in all, and for the way that it has covered.
    fn is_exhausted(&self, most: u64, horizon: f64) -> bool {
        let covered = (self.time - self.start).abs() / horizon;
        self.attempts >= most || self.attempts as f64 >= MOST_ATTEMPTS * (1.0 + covered)
    }

    /// Why there is no sense in another attempt after one that was rejected with this error.
    fn hopeless(&self, error: f64) -> Option<Halt> {
        let vanished = self.length < LEAST * self.time.abs().max(1.0);
        vanished.then_some(if error.is_finite() { Halt::StepTooSmall } else { Halt::NotFinite })
    }
}

impl Rollout {
    /// Integrates a batch and returns the evaluations of the trajectory that took most.
    pub(super) fn adaptive(
        &mut self,
        memory: &mut Memory,
        part: &mut Part<'_, '_>,
        controller: Controller,
    ) -> Result<usize> {
        memory.write(&self.names.tolerance, Data::F64(&[controller.rtol, controller.atol]))?;
        // A flow from noise has a time of its own.
        let step = |length: f64, latest: f64| match self.generator.is_some() {
            true => length,
            false => self.model.scaling.step(length, latest),
        };
        let latest = part.latest();
        let track = |(time, times): (&f64, &std::sync::Arc<[f64]>)| Track {
            start: *time,
            time: *time,
            output: times.iter().take_while(|&at| at == time).count(),
            length: controller.first_step.map_or(FIRST, |first| step(first, *time)),
            longest: step(controller.max_step, latest),
            stops: controller.stop_at_outputs,
            attempts: 0,
            control: controller.start(self.tableau.error_order),
        };
        let mut tracks: Vec<Track> = part.start.iter().zip(&part.times).map(track).collect();
        let horizon = if self.generator.is_some() { 1.0 } else { self.model.scaling.horizon() };
        let mut evaluations = 0;
        loop {
            part.watch.heed_interrupt()?;
            for (i, track) in tracks.iter().enumerate() {
                if track.output < part.times[i].len() && track.is_exhausted(controller.max_steps, horizon) {
                    self.record(part, 0)?;
                    part.halt(i, Halt::TooManySteps, track.time);
                }
            }
            let lengths: Vec<f64> = (0..self.batch)
                .map(|i| if part.is_halted(i) { 0.0 } else { tracks[i].next_length(&part.times[i]) })
                .collect();
            if lengths.iter().all(|&length| length == 0.0) {
                return Ok(evaluations);
            }
            if evaluations == 0 {
                evaluations += self.first_slope(memory, part)?;
            }
            self.attempt(memory, part, &mut tracks, &lengths)?;
            evaluations += self.evaluations_per_step();
        }
    }

    /// One attempt of every trajectory that has not arrived, and the outputs that it passed.
    fn attempt(
        &mut self,
        memory: &mut Memory,
        part: &mut Part<'_, '_>,
        tracks: &mut [Track],
        lengths: &[f64],
    ) -> Result<()> {
        let starts: Vec<f64> = tracks.iter().map(|track| track.time).collect();
        self.advance(memory, &starts, lengths)?;
        // While the device works.
        self.record(part, 0)?;
        let errors = self.step.output_f64(0)?;
        let mut accept = vec![0.0; self.batch];
        let mut passed: Vec<Range<usize>> = vec![0..0; self.batch];
        for (i, track) in tracks.iter_mut().enumerate() {
            if lengths[i] == 0.0 {
                continue;
            }
            if track.judge(errors[i], lengths[i], &part.times[i]) {
                accept[i] = 1.0;
                passed[i] = track.pass(lengths[i], &part.times[i]);
            } else if let Some(halt) = track.hopeless(errors[i]) {
                part.halt(i, halt, track.time);
            }
        }
        self.show_inside(memory, part, &passed, (&starts, lengths))?;
        self.commit(memory, part, &accept)
    }
}
