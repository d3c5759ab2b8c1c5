//! A training step through a solver with adaptive steps: forward with tolerances, then back through the accepted steps.
//!
//! The gradient is that of the accepted steps with their lengths (discretise, then optimise); the choice of the lengths is not
//! differentiated. [`StepCheckpoints`] decides which states at the start of steps are stored.

pub(super) mod equal_steps;
mod graphs;

use std::fmt;

use cfo_engine::{Data, Graph, Memory, Node, Program};
use cfo_numerics::ode::{Course, Recall, StepCheckpoints, first_step};

use crate::error::{CfoError, Divergence, Result};
use crate::model::Model;
use crate::ranks::job;
use crate::recipe::ThroughSolver;
use crate::train::training_data::TrainingData;
use graphs::{LENGTH, LENGTHS, STATE, SolverGraphs, TIME, WANTED, insert, slot, target};

/// Returns the graph with the parameters and the optimiser's tensors of a training through a solver, and its loss.
pub(super) fn update(model: &Model, data: &TrainingData, through: ThroughSolver) -> Result<(Graph, Node)> {
    SolverGraphs { model, data, through }.update()
}

/// A compiled step through a solver.
pub struct SolverStep {
    through: ThroughSolver,
    batch: usize,
    programs: Programs,
    /// Bytes of one stored state.
    state_bytes: usize,
    slots: usize,
    last: Counts,
}

struct Programs {
    draw: Program,
    start: Program,
    attempt: Program,
    replay: Program,
    compare: Program,
    back: Program,
    update: Program,
}

/// Counts of the solver in a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Attempted steps, each for the whole batch.
    pub attempts: usize,
    /// Steps that at least one sample accepted.
    pub accepted: usize,
    /// Steps that were computed again for the backward pass because their state was not stored.
    pub recomputed: usize,
}

/// Attempted steps of a window after which it is given up, as in diffrax.
const MOST_ATTEMPTS: usize = 4096;
/// States that are stored for the backward pass. The others are recomputed.
const CHECKPOINTS: usize = 64;
/// A step is extended to the end of the interval if the remaining part would be shorter than this share: states have single precision.
const ROUNDING: f64 = 1e-5;
/// Smallest step, as a share of the interval. Single precision cannot resolve a shorter one.
const LEAST: f64 = 1e-6;

/// One sample of a batch. The time of its course starts at 0 in every interval.
struct Sample {
    start: f64,
    interval: f64,
    course: Course,
}

impl Sample {
    fn enter(&mut self, interval: f64) {
        self.start += self.interval;
        self.interval = interval;
        self.course.set_time(0.0);
        self.course.set_least(LEAST * interval);
    }

    fn time(&self) -> f64 {
        self.start + self.course.time()
    }

    /// Returns the length of the next attempt; 0 at the end of the interval.
    fn next_length(&self) -> f64 {
        self.course.next_length(self.interval)
    }
}

#[derive(Default)]
struct Tape {
    /// Times and lengths of every sample's step; the length of a rejected step is 0.
    steps: Vec<(Vec<f64>, Vec<f64>)>,
    /// Steps until the end of each interval.
    ends: Vec<usize>,
}

impl SolverStep {
    pub(super) fn compile(
        model: &Model,
        data: &TrainingData,
        through: ThroughSolver,
        memory: &mut Memory,
    ) -> Result<Self> {
        let graphs = SolverGraphs { model, data, through };
        graphs.insert(memory)?;
        let memory: &Memory = memory;
        let compile = |graph: &Graph, outputs: &[Node]| Program::compile(graph, outputs, memory);
        let (start, norms) = graphs.start()?;
        let (attempt, error) = graphs.attempt(memory.precision())?;
        let (update, loss) = graphs.update()?;
        let programs = Programs {
            draw: compile(&graphs.draw()?, &[])?,
            start: compile(&start, &norms)?,
            attempt: compile(&attempt, &[error])?,
            replay: compile(&graphs.replay()?, &[])?,
            compare: compile(&graphs.compare()?, &[])?,
            back: compile(&graphs.back()?, &[])?,
            update: compile(&update, &[loss])?,
        };
        let batch = graphs.batch();
        let numbers: usize = model.batch_shape(batch).iter().product();
        let state_bytes = numbers * memory.element_bytes(cfo_engine::Element::Real);
        Ok(Self { through, batch, programs, state_bytes, slots: 0, last: Counts::default() })
    }

    /// Runs one training step.
    ///
    /// # Errors
    /// If the device fails, or the solver exceeds its number of steps.
    pub fn run(&mut self, memory: &mut Memory) -> Result<()> {
        self.last = Counts::default();
        self.programs.draw.run(memory)?;
        let mut checkpoints = StepCheckpoints::new(CHECKPOINTS);
        let tape = self.forward(memory, &mut checkpoints);
        let tape = self.arrived(memory, tape)?;
        self.backward(memory, &tape, checkpoints)?;
        Ok(self.programs.update.run(memory)?)
    }

    /// Returns the result of the forward pass, or an error if the solver of any rank failed.
    fn arrived(&self, memory: &Memory, tape: Result<Tape>) -> Result<Tape> {
        let Some(ranks) = job() else { return tape };
        let ended = matches!(tape, Err(CfoError::Diverged { .. }));
        match ranks.gather(&[u8::from(ended)]).iter().any(|answer| answer[0] != 0) {
            true => self.no_end(memory),
            false => tape,
        }
    }

    /// Returns the counts of the latest step.
    pub fn counts(&self) -> Counts {
        self.last
    }

    /// Returns all programs; the last one updates the weights.
    pub(super) fn programs(&self) -> [&Program; 7] {
        let Programs { draw, start, attempt, replay, compare, back, update } = &self.programs;
        [draw, start, attempt, replay, compare, back, update]
    }

    /// Returns the program that updates the weights and computes the loss.
    pub(super) fn last(&self) -> &Program {
        &self.programs.update
    }

    /// Returns the bytes of the stored states, when all of them are used.
    pub(super) fn kept_bytes(&self) -> usize {
        CHECKPOINTS * self.state_bytes
    }

    fn forward(&mut self, memory: &mut Memory, checkpoints: &mut StepCheckpoints) -> Result<Tape> {
        let lengths = memory.read_f64(LENGTHS)?;
        let mut samples = self.samples(memory, &lengths)?;
        let mut tape = Tape::default();
        for interval in lengths.chunks(self.batch) {
            for (sample, &length) in samples.iter_mut().zip(interval) {
                sample.enter(length);
            }
            while let Some(mut lengths) = next_lengths(&samples) {
                let step = tape.steps.len();
                if let Some(number) = checkpoints.keep(step) {
                    self.keep(memory, number)?;
                }
                if self.last.attempts >= MOST_ATTEMPTS {
                    return self.no_end(memory);
                }
                let made = loop {
                    let made = self.attempt(memory, &mut samples, lengths)?;
                    if samples.iter().any(|sample| sample.course.is_stuck()) {
                        return self.no_end(memory);
                    }
                    if made.1.iter().any(|&length| length > 0.0) {
                        break made;
                    }
                    // No sample accepted: the next attempt starts from the same state.
                    match next_lengths(&samples) {
                        Some(shorter) => lengths = shorter,
                        None => break made,
                    }
                };
                tape.steps.push(made);
            }
            tape.ends.push(tape.steps.len());
        }
        self.last.accepted = tape.steps.len();
        Ok(tape)
    }

    /// Creates the samples at the start of their windows, with the length of their first step.
    fn samples(&mut self, memory: &mut Memory, lengths: &[f64]) -> Result<Vec<Sample>> {
        let (controller, order) = (self.through.solver.controller(), self.through.tableau().error_order);
        let starts = memory.read_f64(TIME)?;
        self.programs.start.run(memory)?;
        let [of_state, of_slope, rate] = [0, 1, 2].map(|output| self.programs.start.output_f64(output));
        let (of_state, of_slope, rate) = (of_state?, of_slope?, rate?);
        let sample = |i: usize| {
            let first = controller
                .first_step
                .unwrap_or_else(|| first_step(of_state[i], of_slope[i], order, lengths[i], |_| rate[i]));
            let course = Course::new(0.0, first, &controller, order).with_rounding(ROUNDING);
            Sample { start: starts[i], interval: 0.0, course }
        };
        Ok((0..self.batch).map(sample).collect())
    }

    /// Attempts a step of every sample. Returns the times, and the lengths of accepted steps.
    fn attempt(
        &mut self,
        memory: &mut Memory,
        samples: &mut [Sample],
        mut lengths: Vec<f64>,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let times: Vec<f64> = samples.iter().map(Sample::time).collect();
        place(memory, &times, &lengths)?;
        self.programs.attempt.run(memory)?;
        self.last.attempts += 1;
        let errors = self.programs.attempt.output_f64(0)?;
        for ((sample, length), error) in samples.iter_mut().zip(&mut lengths).zip(errors) {
            if *length > 0.0 && !sample.course.judge(error, sample.interval) {
                *length = 0.0;
            }
        }
        Ok((times, lengths))
    }

    /// Runs the backward pass, from the last snapshot to the first.
    fn backward(&mut self, memory: &mut Memory, tape: &Tape, mut checkpoints: StepCheckpoints) -> Result<()> {
        for (interval, &end) in tape.ends.iter().enumerate().rev() {
            memory.copy(&target(interval), WANTED)?;
            self.programs.compare.run(memory)?;
            let first = if interval == 0 { 0 } else { tape.ends[interval - 1] };
            for step in (first..end).rev() {
                self.recall(memory, tape, checkpoints.recall(step), step)?;
                let (times, lengths) = &tape.steps[step];
                place(memory, times, lengths)?;
                self.programs.back.run(memory)?;
            }
        }
        Ok(())
    }

    /// Restores the state at the start of a step.
    fn recall(&mut self, memory: &mut Memory, tape: &Tape, recall: Recall, wanted: usize) -> Result<()> {
        memory.copy(&slot(recall.slot), STATE)?;
        for step in recall.step..wanted {
            if let Some(&(_, number)) = recall.keep.iter().find(|(kept, _)| *kept == step) {
                self.keep(memory, number)?;
            }
            let (times, lengths) = &tape.steps[step];
            place(memory, times, lengths)?;
            self.programs.replay.run(memory)?;
            self.last.recomputed += 1;
        }
        Ok(())
    }

    /// Copies the state into a slot, which is created at its first use.
    fn keep(&mut self, memory: &mut Memory, number: usize) -> Result<()> {
        while self.slots <= number {
            let shape = memory.value_type(STATE)?.shape.clone();
            insert(memory, &slot(self.slots), shape)?;
            self.slots += 1;
        }
        Ok(memory.copy(STATE, &slot(number))?)
    }

    /// Returns the error for a field that is too steep for any step.
    fn no_end<T>(&self, memory: &Memory) -> Result<T> {
        let step = memory.read_index("train.step")?[0] + 1;
        let seen = Divergence { after: step - 1, no_step: true, ..Divergence::default() };
        Err(CfoError::Diverged { step, loss: f64::INFINITY, seen: Box::new(seen), last_good: None })
    }
}

/// Returns the lengths of the next attempt; `None` if all samples are at the end of the interval.
fn next_lengths(samples: &[Sample]) -> Option<Vec<f64>> {
    let lengths: Vec<f64> = samples.iter().map(Sample::next_length).collect();
    lengths.iter().any(|&length| length > 0.0).then_some(lengths)
}

/// Writes the time and the length of every sample's step.
fn place(memory: &mut Memory, times: &[f64], lengths: &[f64]) -> Result<()> {
    memory.write(TIME, Data::F64(times))?;
    Ok(memory.write(LENGTH, Data::F64(lengths))?)
}

impl fmt::Display for SolverStep {
    /// Writes the memory of a step forward, of a step back, and of the states that are stored between them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let Programs { attempt, back, .. } = &self.programs;
        write!(
            f,
            "solver step {:.1} MiB, its way back {:.1} MiB, {} states kept at most: {:.1} MiB",
            megabytes(attempt.plan().arena_bytes()),
            megabytes(back.plan().arena_bytes()),
            CHECKPOINTS,
            megabytes(self.kept_bytes()),
        )
    }
}
