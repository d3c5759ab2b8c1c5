//! Rollouts: a trained network is integrated from given states to any times, forward or backward.

mod adaptive;
mod budget;
mod controls;
mod excursion;
mod generate;
mod graph;
mod prediction;
mod rollout_batch;
mod schedule;
mod watch;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use cfo_engine::{Data, Drain, Memory, Program};
use cfo_numerics::ode::Tableau;

use crate::error::Result;
use crate::model::Model;
use crate::objective::MotionKind;
use excursion::Bounds;
use generate::Generator;
use graph::{Names, RolloutGraphs};
use rollout_batch::{Found, RolloutBatch};
use schedule::{Cut, Step, StepSchedule};

pub use crate::error::Halt;
pub use crate::recipe::{Budget, Solver, SolverOptions};
pub use excursion::Excursion;
pub use prediction::{Prediction, Request, RolloutDivergence};
pub use watch::Watch;

/// Largest distance of a time from the start, in horizons of the training data. A time beyond it is treated as a mistake.
const FARTHEST: f64 = 1e4;

/// The compiled solver step of a model for one batch size.
pub struct Rollout {
    model: Arc<Model>,
    motion: MotionKind,
    batch: usize,
    tableau: Tableau,
    /// The slope at the current states, for methods that keep it from step to step.
    slope: Option<Program>,
    step: Program,
    commit: Program,
    /// Interpolates an output inside the last step.
    dense: Option<Program>,
    /// Generates whole trajectories; `None` for models that integrate states.
    generator: Option<Generator>,
    drain: Drain,
    /// For each output in transfer, the trajectories that it belongs to.
    asked: VecDeque<Vec<bool>>,
    names: Names,
    bounds: Arc<Bounds>,
    seed: u64,
}

/// Largest number of outputs in transfer to the host.
const UNDER_WAY: usize = 16;

impl Rollout {
    /// Compiles a step for `batch` trajectories; weights are read under `prefix` (empty, or `ema/`).
    ///
    /// # Errors
    /// If memory does not hold the model's weights.
    pub fn new(
        model: &Arc<Model>,
        memory: &mut Memory,
        batch: usize,
        tableau: Tableau,
        prefix: &str,
    ) -> Result<Self> {
        let names = Names::new(batch, tableau.stages());
        let motion = model.motion().kind();
        let graphs = RolloutGraphs { model, names: &names, tableau: &tableau, batch };
        graphs.insert_tensors(memory)?;
        let step = graphs.compile(memory, prefix, RolloutGraphs::step)?;
        let slope =
            graphs.keeps_slope().then(|| graphs.compile(memory, prefix, RolloutGraphs::slope)).transpose()?;
        let commit = graphs.compile(memory, "", RolloutGraphs::commit)?;
        let (dense, generator) = match motion {
            MotionKind::Step => (None, None),
            MotionKind::Velocity => (Some(graphs.compile(memory, "", RolloutGraphs::dense)?), None),
            MotionKind::Trajectory { frames } => (None, Some(Generator::new(&graphs, memory, frames)?)),
        };
        let drain = Drain::new(memory, &names.output)?;
        let (bounds, seed) = (Arc::new(Bounds::new(&model.scaling)), model.recipe.evaluate.seed);
        Ok(Self {
            model: Arc::clone(model),
            motion,
            batch,
            tableau,
            slope,
            step,
            commit,
            dense,
            generator,
            drain,
            asked: VecDeque::new(),
            names,
            bounds,
            seed,
        })
    }

    /// Returns the compiled step, for benchmarks.
    pub fn into_step(self) -> Program {
        self.step
    }

    /// Returns the Runge-Kutta method.
    pub fn tableau(&self) -> Tableau {
        self.tableau
    }

    pub(crate) fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
    }

    /// Returns the number of trajectories in a batch.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Integrates any number of trajectories, a batch at a time.
    ///
    /// # Errors
    /// If the request does not fit the model, or a trajectory diverges.
    pub fn predict(&mut self, memory: &mut Memory, request: &Request, budget: Budget) -> Result<Prediction> {
        let prediction = self.predict_each(memory, request, budget, &Watch::default())?;
        match prediction.diverged.first() {
            Some(&divergence) => Err(divergence.into()),
            None => Ok(prediction),
        }
    }

    /// Integrates trajectories. One that diverges is listed with the states that it reached.
    ///
    /// # Errors
    /// If the request contradicts itself or does not fit the model, or it was interrupted.
    pub fn predict_each(
        &mut self,
        memory: &mut Memory,
        request: &Request,
        budget: Budget,
        watch: &Watch<'_>,
    ) -> Result<Prediction> {
        request.check()?;
        let (mut prediction, count) = (Prediction::default(), request.start.len());
        for first in (0..count).step_by(self.batch) {
            let bounds = Arc::clone(&self.bounds);
            let mut part = RolloutBatch::new(&self.model, request, (first, self.batch), (bounds, watch))?;
            // Outputs of a previous call that ended early are discarded.
            while self.drain.take(|_| ())?.is_some() {}
            self.asked.clear();
            let start = if self.generator.is_some() { &self.names.given } else { &self.names.state };
            memory.write(start, Data::F32(&part.state))?;
            let inputs = [(&self.names.conditions, &part.conditions), (&self.names.statics, &part.statics)];
            for (name, values) in inputs.into_iter().filter(|(_, values)| !values.is_empty()) {
                memory.write(name, Data::F32(values))?;
            }
            let evaluations = match self.generator.is_some() {
                true => self.generate(memory, &mut part, budget)?,
                false => self.integrate(memory, &mut part, budget)?,
            };
            self.record(&mut part, 0)?;
            prediction.evaluations = prediction.evaluations.max(evaluations);
            for (i, found) in (first..count).zip(part.outputs) {
                prediction.diverged.extend(self.divergence(request, i, &found));
                let farthest =
                    found.farthest.map(|far| self.bounds.excursion(i, request.times[i][far.output], far));
                prediction.excursions.extend(farthest);
                let reached = found.values.len() / self.model.shape().len();
                prediction.times.push(request.times[i][..reached].to_vec());
                prediction.states.push(found.values);
            }
        }
        Ok(prediction)
    }

    /// Integrates a batch; returns the largest number of evaluations of a trajectory.
    fn integrate(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        budget: Budget,
    ) -> Result<usize> {
        match budget {
            Budget::Adaptive(controller) if self.motion != MotionKind::Step => {
                self.adaptive(memory, part, controller)
            }
            budget => {
                let cuts = self.cuts(budget, part)?;
                self.by_schedule(memory, part, &cuts)
            }
        }
    }

    /// Returns the time and the reason of a trajectory's early end, if it ended early.
    fn divergence(&self, request: &Request, trajectory: usize, found: &Found) -> Option<RolloutDivergence> {
        let (halt, reached) = found.halt?;
        let scaling = &self.model.scaling;
        let time = reached.map(|time| scaling.restore_time(time));
        let last_output = || match found.values.len() / self.model.shape().len() {
            0 => request.start[trajectory],
            outputs => request.times[trajectory][outputs - 1],
        };
        Some(RolloutDivergence { trajectory, time: time.unwrap_or_else(last_output), halt })
    }

    /// Starts the transfer of the tensor of outputs, which is the next output of the marked trajectories.
    fn ask(&mut self, memory: &Memory, part: &mut RolloutBatch<'_, '_>, marked: Vec<bool>) -> Result<()> {
        if part.is_silent {
            return Ok(());
        }
        self.record(part, UNDER_WAY - 1)?;
        self.drain.ask(memory)?;
        self.asked.push_back(marked);
        Ok(())
    }

    /// Records finished outputs until at most `rest` are in transfer.
    fn record(&mut self, part: &mut RolloutBatch<'_, '_>, rest: usize) -> Result<()> {
        let watch = part.watch;
        let before = if watch.counts() { part.recorded() } else { 0 };
        while self.drain.waiting() > rest {
            let marked = self.asked.pop_front().unwrap_or_default();
            self.drain.take(|states| part.record(states, &marked))?;
        }
        if watch.counts() {
            watch.tell(part.recorded() - before);
        }
        Ok(())
    }

    /// Writes the step and the trajectories that the next random numbers belong to.
    fn number(&self, memory: &mut Memory, part: &RolloutBatch<'_, '_>, step: u32) -> Result<()> {
        // The seed is written here, so that it is not a constant of the programs. Seed 0 does not change the numbers.
        let seed = (self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32;
        let draws: Vec<u32> = part.numbers.iter().flat_map(|&number| [step, number ^ seed]).collect();
        Ok(memory.write(&self.names.draws, Data::Index(&draws))?)
    }

    /// Runs one step of every trajectory from its time over its length.
    fn advance(
        &mut self,
        memory: &mut Memory,
        part: &RolloutBatch<'_, '_>,
        (times, lengths): (&[f64], &[f64]),
    ) -> Result<()> {
        memory.write(&self.names.time, Data::F64(times))?;
        memory.write(&self.names.step, Data::F64(lengths))?;
        self.write_controls(memory, part, (times, lengths), self.tableau.stages())?;
        Ok(self.step.run(memory)?)
    }

    /// Moves the marked trajectories to the end of the last step. Those that ended early become 0, so that their values cannot
    /// affect other trajectories of the batch.
    fn commit(&mut self, memory: &mut Memory, part: &RolloutBatch<'_, '_>, accept: &[bool]) -> Result<()> {
        let shares = accept.iter().enumerate().map(|(i, accept)| match accept {
            _ if part.is_halted(i) => (0.0, 0.0),
            true => (1.0, 0.0),
            false => (0.0, 1.0),
        });
        let (accept, keep): (Vec<f32>, Vec<f32>) = shares.unzip();
        memory.write(&self.names.accept, Data::F32(&accept))?;
        memory.write(&self.names.keep, Data::F32(&keep))?;
        Ok(self.commit.run(memory)?)
    }

    /// Integrates every trajectory with its fixed steps; returns the number of evaluations of the longest.
    fn by_schedule(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        cuts: &[Cut],
    ) -> Result<usize> {
        let schedule = |i: usize| {
            StepSchedule::new(part.start[i], part.times[i].clone(), cuts[i]).with_jumps(part.jumps(i))
        };
        let mut ways: Vec<StepSchedule> = (0..part.start.len()).map(schedule).collect();
        let mut evaluations = 0;
        for number in 0.. {
            part.watch.heed_interrupt()?;
            let steps: Vec<Option<Step>> = ways
                .iter_mut()
                .enumerate()
                .map(|(i, way)| if part.is_halted(i) { None } else { way.next() })
                .collect();
            if steps.iter().all(Option::is_none) {
                break;
            }
            let of = |value: fn(&Step) -> f64| -> Vec<f64> {
                steps.iter().map(|step| step.as_ref().map_or(0.0, value)).collect()
            };
            let (starts, lengths) = (of(|step| step.start), of(|step| step.length));
            let after_jump = || steps.iter().flatten().any(|step| step.follows_jump);
            if evaluations == 0 || after_jump() {
                evaluations += self.first_slope(memory, part, (&starts, &lengths))?;
            }
            if self.motion == MotionKind::Step {
                self.number(memory, part, number)?;
            }
            self.take(memory, part, &steps, (&starts, &lengths))?;
            evaluations += self.evaluations_per_step();
        }
        Ok(evaluations)
    }

    /// Makes one step for every trajectory that is not at its end, and requests the outputs of the step.
    fn take(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        steps: &[Option<Step>],
        (starts, lengths): (&[f64], &[f64]),
    ) -> Result<()> {
        let outputs = |range: fn(&Step) -> &Range<usize>| -> Vec<Range<usize>> {
            steps.iter().map(|step| step.as_ref().map_or(0..0, |step| range(step).clone())).collect()
        };
        let accept: Vec<bool> = steps.iter().map(Option::is_some).collect();
        self.advance(memory, part, (starts, lengths))?;
        // The host records while the device computes.
        self.record(part, 0)?;
        self.show_inside(memory, part, &outputs(|step| &step.inside), (starts, lengths))?;
        self.commit(memory, part, &accept)?;
        let at_end = outputs(|step| &step.at_end);
        for round in 0..at_end.iter().map(ExactSizeIterator::len).max().unwrap_or(0) {
            let marked = at_end.iter().map(|outputs| round < outputs.len()).collect();
            self.ask(memory, part, marked)?;
        }
        Ok(())
    }

    /// Requests the outputs that each trajectory passed in the last step, computed by dense output.
    fn show_inside(
        &mut self,
        memory: &mut Memory,
        part: &mut RolloutBatch<'_, '_>,
        passed: &[Range<usize>],
        (starts, lengths): (&[f64], &[f64]),
    ) -> Result<()> {
        if part.is_silent {
            return Ok(());
        }
        let stages = self.tableau.stages();
        for round in 0..passed.iter().map(ExactSizeIterator::len).max().unwrap_or(0) {
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
            self.ask(memory, part, marked)?;
        }
        Ok(())
    }
}
