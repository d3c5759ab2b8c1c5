//! Steps as long as tolerances allow, for each trajectory of a batch on its own.
//!
//! `cfo_numerics::ode::drive` moves one state through its times; here many move at once, each with its own time, length and
//! controller, so the course is written out. Controller, error norm and dense output are those of `cfo-numerics`.

use cfo_engine::{Data, Memory};
use cfo_numerics::ode::{Controller, StepControl};

use super::{Part, Rollout};
use crate::error::{CfoError, Result};

/// First attempt, as a share of the horizon.
const FIRST: f64 = 0.01;

/// One trajectory of an adaptive rollout.
struct Track {
    time: f64,
    /// The next output.
    output: usize,
    /// Length of the next attempt, if nothing ends it earlier.
    length: f64,
    control: StepControl,
}

impl Track {
    /// The next attempt's signed length: not past the last output; 0 for a trajectory that has arrived.
    fn next_length(&self, outputs: &[f64]) -> f64 {
        match outputs.last() {
            Some(end) if self.output < outputs.len() => {
                let rest = end - self.time;
                rest.signum() * self.length.min(rest.abs())
            }
            _ => 0.0,
        }
    }

    /// Whether the attempt counts; if so the time moves.
    fn judge(&mut self, error: f64, length: f64, outputs: &[f64]) -> bool {
        let decision = self.control.decide(error);
        self.length = length.abs() * decision.factor;
        if decision.accept {
            let end = outputs.last().copied().unwrap_or(self.time);
            self.time = if length == end - self.time { end } else { self.time + length };
        }
        decision.accept
    }

    /// Whether a time, not behind the start of a step of that direction, is reached.
    fn has_reached(&self, time: f64, length: f64) -> bool {
        if length >= 0.0 { time <= self.time } else { time >= self.time }
    }
}

impl Rollout<'_> {
    /// Integrates a batch and returns the evaluations of the trajectory that took most.
    pub(super) fn adaptive(
        &mut self,
        memory: &mut Memory,
        part: &mut Part<'_>,
        controller: Controller,
    ) -> Result<usize> {
        memory.write(&self.names.tolerance, Data::F64(&[controller.rtol, controller.atol]))?;
        let mut evaluations = self.first_slope(memory, part)?;
        let mut tracks: Vec<Track> = (0..self.batch)
            .map(|i| Track {
                time: part.start[i],
                output: 0,
                length: FIRST,
                control: controller.start(self.tableau.error_order),
            })
            .collect();
        for (i, track) in tracks.iter_mut().enumerate() {
            let here = part.times[i].iter().take_while(|&&time| time == part.start[i]).count();
            for _ in 0..here {
                part.record_start(i);
            }
            track.output = here;
        }
        let mut attempts = 0;
        while tracks.iter().zip(&part.times).any(|(track, times)| track.output < times.len()) {
            attempts += 1;
            if attempts > controller.max_steps {
                let waiting = |(track, times): (&Track, &Vec<f64>)| track.output < times.len();
                let slowest = tracks.iter().zip(&part.times).position(waiting).unwrap_or(0);
                let time = tracks[slowest].time * self.model.scaling.span + self.model.scaling.start;
                return Err(CfoError::RolloutDiverged { trajectory: slowest, time });
            }
            self.attempt(memory, part, &mut tracks)?;
            evaluations += self.tableau.evaluations_per_step();
        }
        Ok(evaluations)
    }

    /// One attempt of every trajectory that has not arrived, and the outputs that it passed.
    fn attempt(&mut self, memory: &mut Memory, part: &mut Part<'_>, tracks: &mut [Track]) -> Result<()> {
        let starts: Vec<f64> = tracks.iter().map(|track| track.time).collect();
        let lengths: Vec<f64> =
            tracks.iter().zip(&part.times).map(|(track, times)| track.next_length(times)).collect();
        self.advance(memory, &starts, &lengths)?;
        // While the device works.
        self.record(part, 0)?;
        let errors = self.step.output_f64(0)?;
        let mut accept = vec![0.0; self.batch];
        let mut passed: Vec<std::ops::Range<usize>> = vec![0..0; self.batch];
        for (i, track) in tracks.iter_mut().enumerate() {
            if lengths[i] == 0.0 || !track.judge(errors[i], lengths[i], &part.times[i]) {
                continue;
            }
            accept[i] = 1.0;
            let first = track.output;
            while part.times[i].get(track.output).is_some_and(|&time| track.has_reached(time, lengths[i])) {
                track.output += 1;
            }
            passed[i] = first..track.output;
        }
        for round in 0..passed.iter().map(ExactSizeIterator::len).max().unwrap_or(0) {
            self.show_dense(memory, part, &passed, round, (&starts, &lengths))?;
        }
        self.commit(memory, &accept)
    }

    /// Asks for one output of every trajectory that passed more than `round` in the step just made.
    fn show_dense(
        &mut self,
        memory: &mut Memory,
        part: &mut Part<'_>,
        passed: &[std::ops::Range<usize>],
        round: usize,
        (starts, lengths): (&[f64], &[f64]),
    ) -> Result<()> {
        let stages = self.tableau.stages();
        let mut weights = Vec::with_capacity(self.batch * stages);
        let marked: Vec<bool> = passed.iter().map(|outputs| round < outputs.len()).collect();
        for (i, outputs) in passed.iter().enumerate() {
            let theta = match marked[i] {
                true => (part.times[i][outputs.start + round] - starts[i]) / lengths[i],
                false => 0.0,
            };
            weights.extend((0..stages).map(|stage| lengths[i] * self.tableau.dense_weight(stage, theta)));
        }
        memory.write(&self.names.dense_weights, Data::F64(&weights))?;
        if let Some(dense) = &mut self.dense {
            dense.run(memory)?;
        }
        self.ask(memory, part, Some(marked))
    }
}
