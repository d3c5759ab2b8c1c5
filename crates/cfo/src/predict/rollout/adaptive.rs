//! Rollouts with adaptive steps. Each trajectory of a batch has a separate [`Course`]. The host's integrator has equal rules.

use std::ops::Range;

use cfo_engine::{Data, Memory};
use cfo_numerics::ode::{Controller, Course};

use super::{Halt, Rollout, RolloutBatch};
use crate::error::Result;

/// Largest number of attempted steps per horizon of the training data. A successful rollout needs a few hundred.
const MOST_ATTEMPTS: f64 = 10_000.0;

/// Length of the first attempt, as a share of the horizon, unless the controller sets it.
const FIRST: f64 = 0.01;

/// Smallest step, as a share of the horizon.
const LEAST: f64 = 16.0 * f64::EPSILON;

struct Track {
    start: f64,
    course: Course,
    output: usize,
    /// Whether steps end at every output.
    stops: bool,
    /// Times at which a control jumps, in order; steps end there.
    jumps: Vec<f64>,
    /// Number of jumps passed.
    passed: usize,
    /// Number of attempts so far.
    attempts: u64,
}

impl Track {
    /// Returns the end of the next attempt: the next output if steps end at outputs, else the last one.
    fn target(&self, outputs: &[f64]) -> f64 {
        let (now, output) =
            (self.course.time(), if self.stops { outputs.get(self.output) } else { outputs.last() });
        let Some(&target) = output.filter(|_| self.output < outputs.len()) else { return now };
        let jump = self.jumps.get(self.passed).filter(|&jump| (jump - now).abs() < (target - now).abs());
        jump.copied().unwrap_or(target)
    }

    /// Advances past the jumps that are reached and returns whether there are any.
    fn pass_jumps(&mut self) -> bool {
        let now = self.course.time();
        let first = self.passed;
        self.passed += self.jumps[first..].iter().take_while(|&&jump| jump == now).count();
        self.passed > first
    }

    /// Advances past the outputs that are reached and returns their range.
    fn pass(&mut self, length: f64, outputs: &[f64]) -> Range<usize> {
        let first = self.output;
        let now = self.course.time();
        let reached = |time: f64| if length >= 0.0 { time <= now } else { time >= now };
        self.output += outputs[first..].iter().take_while(|&&time| reached(time)).count();
        first..self.output
    }

    /// Returns whether the number of attempts has reached the limit: in total, or for the distance covered.
    fn is_exhausted(&self, most: u64, horizon: f64) -> bool {
        let covered = (self.course.time() - self.start).abs() / horizon;
        self.attempts >= most || self.attempts as f64 >= MOST_ATTEMPTS * (1.0 + covered)
    }
}

impl Rollout {
    /// Integrates a batch and returns the largest number of evaluations of a trajectory.
    pub(super) fn adaptive(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        controller: Controller,
    ) -> Result<usize> {
        memory.write(&self.names.tolerance, Data::F64(&[controller.rtol, controller.atol]))?;
        // A flow from noise has its own time, from 0 to 1.
        let step = |length: f64, latest: f64| match self.generator.is_some() {
            true => length,
            false => self.model.scaling.step(length, latest),
        };
        let latest = part.latest();
        let track = |(i, (&time, times)): (usize, (&f64, &std::sync::Arc<[f64]>))| {
            let first = controller.first_step.map_or(FIRST, |first| step(first, time));
            let controller = Controller { max_step: step(controller.max_step, latest), ..controller };
            Track {
                start: time,
                course: Course::new(time, first, &controller, self.tableau.error_order).with_least(LEAST),
                output: times.iter().take_while(|&&at| at == time).count(),
                stops: controller.stop_at_outputs,
                jumps: part.jumps(i),
                passed: 0,
                attempts: 0,
            }
        };
        let mut tracks: Vec<Track> = part.start.iter().zip(&part.times).enumerate().map(track).collect();
        let horizon = if self.generator.is_some() { 1.0 } else { self.model.scaling.horizon() };
        let mut evaluations = 0;
        loop {
            part.watch.heed_interrupt()?;
            let jumped = tracks.iter_mut().filter_map(|track| track.pass_jumps().then_some(())).count();
            for (i, track) in tracks.iter().enumerate() {
                if track.output < part.times[i].len() && track.is_exhausted(controller.max_steps, horizon) {
                    self.record(part, 0)?;
                    part.halt(i, Halt::TooManySteps, track.course.time());
                }
            }
            let lengths: Vec<f64> = (0..self.batch)
                .map(|i| match part.is_halted(i) {
                    true => 0.0,
                    false => tracks[i].course.next_length(tracks[i].target(&part.times[i])),
                })
                .collect();
            if lengths.iter().all(|&length| length == 0.0) {
                return Ok(evaluations);
            }
            if evaluations == 0 || jumped > 0 {
                let starts: Vec<f64> = tracks.iter().map(|track| track.course.time()).collect();
                evaluations += self.first_slope(memory, part, (&starts, &lengths))?;
            }
            self.attempt(memory, part, &mut tracks, &lengths)?;
            evaluations += self.evaluations_per_step();
        }
    }

    /// Makes one attempt for every trajectory that has not arrived, and requests the outputs that it passed.
    fn attempt(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        tracks: &mut [Track],
        lengths: &[f64],
    ) -> Result<()> {
        let starts: Vec<f64> = tracks.iter().map(|track| track.course.time()).collect();
        self.advance(memory, part, (&starts, lengths))?;
        // The host records while the device computes.
        self.record(part, 0)?;
        let errors = self.step.output_f64(0)?;
        let mut accept = vec![false; self.batch];
        let mut passed: Vec<Range<usize>> = vec![0..0; self.batch];
        for (i, track) in tracks.iter_mut().enumerate() {
            if lengths[i] == 0.0 {
                continue;
            }
            track.attempts += 1;
            let target = track.target(&part.times[i]);
            if track.course.judge(errors[i], target) {
                accept[i] = true;
                passed[i] = track.pass(lengths[i], &part.times[i]);
            } else if track.course.is_stuck() {
                let halt = if errors[i].is_finite() { Halt::StepTooSmall } else { Halt::NotFinite };
                part.halt(i, halt, track.course.time());
            }
        }
        self.show_inside(memory, part, &passed, (&starts, lengths))?;
        self.commit(memory, part, &accept)
    }
}
