//! Generation of whole trajectories from noise: a flow over its own time, from 0 to 1, and the outputs interpolated at its end.

use cfo_engine::{Data, Memory, Program};

use super::graph::RolloutGraphs;
use super::{Budget, Rollout, RolloutBatch};
use crate::error::Result;

/// Number of steps of a flow by default.
pub(super) const STEPS: usize = 20;

/// The programs that start a flow and interpolate the trajectory at its end.
pub(super) struct Generator {
    noise: Program,
    frame: Program,
    frames: usize,
}

impl Generator {
    pub(super) fn new(graphs: &RolloutGraphs<'_>, memory: &Memory, frames: usize) -> Result<Self> {
        let noise = graphs.compile(memory, "", RolloutGraphs::noise)?;
        let frame = graphs.compile(memory, "", RolloutGraphs::frame)?;
        Ok(Self { noise, frame, frames })
    }
}

impl Rollout {
    /// Generates the trajectories of a batch and requests their outputs; returns the largest number of evaluations of a trajectory.
    pub(super) fn generate(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        budget: Budget,
    ) -> Result<usize> {
        self.number(memory, part, 0)?;
        if let Some(generator) = &mut self.generator {
            generator.noise.run(memory)?;
        }
        let mut flow = part.flow();
        let evaluations = self.integrate(memory, &mut flow, budget)?;
        for (i, found) in flow.outputs.iter().enumerate() {
            if let Some((halt, _)) = found.halt {
                part.halt(i, halt, part.start[i]);
            }
        }
        self.show_frames(memory, part)?;
        Ok(evaluations)
    }

    /// Requests every output of every trajectory, interpolated by the path through its frames.
    fn show_frames(&mut self, memory: &mut Memory, part: &mut RolloutBatch<'_, '_>) -> Result<()> {
        let Some(frames) = self.generator.as_ref().map(|generator| generator.frames) else { return Ok(()) };
        let path = self.model.question().path.supported(frames);
        // The duration of a trajectory is the unit of time, whatever its start is.
        let step = 1.0 / (frames.max(2) - 1) as f64;
        let grid: Vec<f64> = (0..frames).map(|frame| frame as f64 * step).collect();
        let passed: Vec<usize> = part
            .start
            .iter()
            .zip(&part.times)
            .map(|(start, times)| times.iter().take_while(|&time| time == start).count())
            .collect();
        let rounds = part.times.iter().zip(&passed).map(|(times, passed)| times.len() - passed).max();
        for round in 0..rounds.unwrap_or(0) {
            part.watch.heed_interrupt()?;
            let mut weights = vec![0.0; self.batch * frames];
            let mut marked = vec![false; self.batch];
            for (i, weights) in weights.chunks_mut(frames).enumerate() {
                let Some(&time) = part.times[i].get(passed[i] + round) else { continue };
                marked[i] = true;
                let found = path.weights(&grid, (time - part.start[i]).min(grid[frames - 1]));
                weights[found.first..][..found.count].copy_from_slice(&found.value[..found.count]);
            }
            memory.write(&self.names.frame_weights, Data::F64(&weights))?;
            if let Some(generator) = &mut self.generator {
                generator.frame.run(memory)?;
            }
            self.ask(memory, part, marked)?;
        }
        Ok(())
    }
}
