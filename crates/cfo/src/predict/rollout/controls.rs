//! Controls in rollouts: their values at the stages of each step, and their jumps.

use cfo_engine::{Data, Memory};

use super::{Rollout, RolloutBatch};
use crate::error::Result;

/// Share of half a step by which the ends of steps are moved inside when controls are evaluated there.
const INSIDE: f64 = 1e-9;

impl RolloutBatch<'_, '_> {
    /// Returns the times after the start at which a control of a trajectory jumps, in the order in which the trajectory reaches them.
    pub(super) fn jumps(&self, i: usize) -> Vec<f64> {
        let Some(signal) = self.signals.get(i) else { return Vec::new() };
        let (start, last) = (self.start[i], self.times[i].last().copied().unwrap_or(self.start[i]));
        let mut jumps = signal.jumps();
        jumps.retain(|&jump| jump > start.min(last) && jump < start.max(last));
        if last < start {
            jumps.reverse();
        }
        jumps
    }
}

impl Rollout {
    /// Evaluates the slope at the start of steps of these lengths if it is not known: before the first step, and after a control has jumped.
    /// Returns the number of evaluations.
    pub(super) fn first_slope(
        &mut self,
        memory: &mut Memory,
        part: &RolloutBatch<'_, '_>,
        (times, lengths): (&[f64], &[f64]),
    ) -> Result<usize> {
        if self.slope.is_some() {
            memory.write(&self.names.time, Data::F64(times))?;
            self.write_controls(memory, part, (times, lengths), 1)?;
        }
        let Some(program) = &mut self.slope else { return Ok(0) };
        program.run(memory)?;
        Ok(self.model.motion().evaluations())
    }

    /// Writes the controls at the first stages of steps. A stage at an end of its step gets their values inside it.
    pub(super) fn write_controls(
        &self,
        memory: &mut Memory,
        part: &RolloutBatch<'_, '_>,
        (times, lengths): (&[f64], &[f64]),
        stages: usize,
    ) -> Result<()> {
        if part.signals.is_empty() {
            return Ok(());
        }
        for (name, c) in self.names.controls.iter().zip(self.tableau.c).take(stages) {
            let inside = c + (0.5 - c) * INSIDE;
            let steps = part.signals.iter().zip(times.iter().zip(lengths));
            let values: Vec<f64> =
                steps.flat_map(|(signal, (time, length))| signal.at(time + inside * length)).collect();
            memory.write(name, Data::F64(&values))?;
        }
        Ok(())
    }
}
