//! Rollouts: a trained network integrated from given states to any times, forward or backward.

mod adaptive;
mod graph;
mod part;

use std::collections::VecDeque;

use cfo_engine::{Data, Drain, Graph, Memory, Program};
use cfo_numerics::ode::{Controller, Tableau};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::recipe::EvaluateConfig;
use graph::{
    Names, append_between, append_commit, append_dense, append_keep, append_show, append_slope, append_step,
    keeps_slope,
};
use part::{Knot, Part};

/// How the learned field is integrated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solver {
    /// The Runge-Kutta method.
    pub tableau: Tableau,
    /// How long its steps are.
    pub budget: Budget,
}

/// How long a solver's steps are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// One step for each output interval.
    StepPerOutput,
    /// As few equal steps in each output interval as keep them no longer than this, in the user's units of time.
    StepAtMost(f64),
    /// So many network evaluations for the whole horizon of the training data.
    Evaluations(usize),
    /// As long as the tolerances allow, for each trajectory on its own; states between come from dense output. For
    /// Dormand-Prince and Tsit5.
    Adaptive(Controller),
}

impl Solver {
    /// From a recipe's keys.
    ///
    /// # Errors
    /// If the method is unknown, or the budget too small for one step.
    pub fn from_config(config: &EvaluateConfig) -> Result<Self> {
        let invalid =
            |key: &str, problem: String| CfoError::InvalidKey { key: format!("evaluate.{key}"), problem };
        let Some(tableau) = Tableau::by_name(&config.solver) else {
            let known: Vec<&str> = Tableau::ALL.iter().map(|tableau| tableau.name).collect();
            return Err(invalid(
                "solver",
                format!("`{}` is none of `{}`", config.solver, known.join("`, `")),
            ));
        };
        let budget = match config.nfe {
            0 if tableau.first_same_as_last => {
                let positive = |value: f64| value >= 0.0 && value.is_finite();
                if !positive(config.rtol) || !positive(config.atol) || config.rtol + config.atol <= 0.0 {
                    return Err(invalid(
                        "rtol",
                        format!("tolerances {} and {} are not positive", config.rtol, config.atol),
                    ));
                }
                Budget::Adaptive(Controller::new(config.rtol, config.atol))
            }
            0 => Budget::StepPerOutput,
            nfe if nfe < tableau.stages() => {
                let needed = tableau.stages();
                return Err(invalid(
                    "nfe",
                    format!("a budget of {nfe} allows no step of `{}`, which takes {needed}", tableau.name),
                ));
            }
            nfe => Budget::Evaluations(nfe),
        };
        Ok(Self { tableau, budget })
    }
}

/// States at the times asked for.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// For each trajectory its snapshots, flattened `[times, height, width, channels]`, in the user's units.
    pub states: Vec<Vec<f32>>,
    /// Network evaluations for one trajectory (the most that any took).
    pub evaluations: usize,
}

/// Where a batch of trajectories starts and where it is wanted.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// For each trajectory the time at which it starts, in the user's units.
    pub start: Vec<f64>,
    /// For each trajectory the state there, in the user's units.
    pub states: Vec<Vec<f32>>,
    /// For each trajectory the times asked for, all after its start or all before it, in order away from it.
    pub times: Vec<Vec<f64>>,
    /// For each trajectory its PDE parameters.
    pub conditions: Vec<Vec<f64>>,
}

/// The compiled step of one model for one batch size, on the memory that holds its weights.
pub struct Rollout<'a> {
    model: &'a Model,
    batch: usize,
    tableau: Tableau,
    /// The slope where the trajectories are.
    slope: Option<Program>,
    /// Whether the method keeps a slope from step to step.
    keeps_slope: bool,
    step: Program,
    commit: Program,
    show: Program,
    /// An output between the last knot and the present state, and what makes that the next knot.
    between: Option<[Program; 2]>,
    /// An output inside the step just made, for methods that choose their steps.
    dense: Option<Program>,
    drain: Drain,
    /// For each output under way, which trajectories it is of; all if that is not said.
    asked: VecDeque<Option<Vec<bool>>>,
    names: Names,
}

/// Outputs under way to the host at most.
const UNDER_WAY: usize = 16;

impl<'a> Rollout<'a> {
    /// Compiles a step for `batch` trajectories; weights are read under `prefix` (empty, or `ema/`).
    ///
    /// # Errors
    /// If memory does not hold the model's weights.
    pub fn new(
        model: &'a Model,
        memory: &mut Memory,
        batch: usize,
        tableau: Tableau,
        prefix: &str,
    ) -> Result<Self> {
        let names = Names::new(batch);
        let shape = model.batch_shape(batch);
        let size: usize = shape.iter().product();
        let zeros = vec![0.0_f32; size.max(2 * batch)];
        memory.insert_real(&names.state, shape, &zeros[..size])?;
        memory.insert_real(&names.candidate, shape, &zeros[..size])?;
        memory.insert_real(&names.output, shape, &zeros[..size])?;
        if !model.is_autoregressive() {
            for name in [&names.slope, &names.candidate_slope, &names.knot_state, &names.knot_slope] {
                memory.insert_real(name, shape, &zeros[..size])?;
            }
            memory.insert_real(&names.weights, [batch, 4], &vec![0.0; 4 * batch])?;
        }
        let stages = tableau.stages();
        if keeps_slope(model, &tableau) {
            for stage in 1..stages {
                memory.insert_real(&names.slope_of_stage(stage, stages), shape, &zeros[..size])?;
            }
            memory.insert_real(&names.dense_weights, [batch, stages], &vec![0.0; batch * stages])?;
        }
        for name in [&names.time, &names.step, &names.accept] {
            memory.insert_real(name, [batch], &zeros[..batch])?;
        }
        memory.insert_real(&names.tolerance, [2], &zeros[..2])?;
        let count = model.setting.conditions;
        if count > 0 {
            memory.insert_real(&names.conditions, [batch, count], &vec![0.0; batch * count])?;
        }
        let mut graph = Graph::with_prefix(prefix);
        let outputs = append_step(model, &mut graph, &names, batch, &tableau)?;
        let step = Program::compile(&graph, &outputs, memory)?;
        let keeps_slope = keeps_slope(model, &tableau);
        let slope = match model.is_autoregressive() {
            true => None,
            false => {
                let mut graph = Graph::with_prefix(prefix);
                append_slope(model, &mut graph, &names, batch)?;
                Some(Program::compile(&graph, &[], memory)?)
            }
        };
        let mut graph = Graph::new();
        append_commit(model, &mut graph, &names, shape, keeps_slope)?;
        let commit = Program::compile(&graph, &[], memory)?;
        let mut graph = Graph::new();
        append_show(model, &mut graph, &names, shape)?;
        let show = Program::compile(&graph, &[], memory)?;
        let between = match model.is_autoregressive() {
            true => None,
            false => {
                let (mut between, mut keep) = (Graph::new(), Graph::new());
                append_between(model, &mut between, &names, shape)?;
                append_keep(&mut keep, &names, shape)?;
                let compile = |graph: &Graph| Program::compile(graph, &[], memory);
                Some([compile(&between)?, compile(&keep)?])
            }
        };
        let dense = match keeps_slope {
            false => None,
            true => {
                let mut graph = Graph::new();
                append_dense(model, &mut graph, &names, shape, stages)?;
                Some(Program::compile(&graph, &[], memory)?)
            }
        };
        let drain = Drain::new(memory, &names.output)?;
        let asked = VecDeque::new();
        Ok(Self {
            model,
            batch,
            tableau,
            slope,
            keeps_slope,
            step,
            commit,
            show,
            between,
            dense,
            drain,
            asked,
            names,
        })
    }

    /// The compiled step alone, for timing.
    pub fn into_step(self) -> Program {
        self.step
    }

    /// Trajectories that one call integrates at most.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Integrates any number of trajectories, a batch at a time.
    ///
    /// # Errors
    /// If the request does not fit the model, or a trajectory leaves the realm of numbers.
    pub fn predict(&mut self, memory: &mut Memory, request: &Request, budget: Budget) -> Result<Prediction> {
        let mut prediction = Prediction { states: Vec::with_capacity(request.start.len()), evaluations: 0 };
        let count = request.start.len();
        for first in (0..count).step_by(self.batch) {
            let last = (first + self.batch).min(count);
            // The last batch repeats a trajectory until it is full.
            let chosen: Vec<usize> = (first..first + self.batch).map(|i| i.min(last - 1)).collect();
            let mut part = Part::new(self.model, request, &chosen)?;
            // Nothing of a call that ended early.
            while self.drain.take(|_| ())?.is_some() {}
            self.asked.clear();
            memory.write(&self.names.state, Data::F32(&part.state))?;
            if self.model.setting.conditions > 0 {
                memory.write(&self.names.conditions, Data::F32(&part.conditions))?;
            }
            let evaluations = match budget {
                _ if self.model.is_autoregressive() => {
                    self.steps_between_outputs(memory, &mut part, |_| 1)?
                }
                Budget::StepPerOutput => self.steps_between_outputs(memory, &mut part, |_| 1)?,
                Budget::StepAtMost(length) => {
                    let limit = length / self.model.scaling.span;
                    // A hair of slack: an interval of ten steps takes ten, whatever the last bit of the division says.
                    let count = |interval: f64| (interval / limit * (1.0 - 1e-9)).ceil().max(1.0) as usize;
                    self.steps_between_outputs(memory, &mut part, count)?
                }
                Budget::Evaluations(nfe) => self.within_budget(memory, &mut part, nfe)?,
                Budget::Adaptive(controller) => self.adaptive(memory, &mut part, controller)?,
            };
            self.record(&mut part, 0)?;
            prediction.evaluations = prediction.evaluations.max(evaluations);
            for (i, found) in part.outputs.into_iter().enumerate().take(last - first) {
                if let Some(output) = found.broken {
                    let (trajectory, times) = (first + i, &request.times[first + i]);
                    return Err(CfoError::RolloutDiverged {
                        trajectory,
                        time: times[output.saturating_sub(1)],
                    });
                }
                prediction.states.push(found.values);
            }
        }
        Ok(prediction)
    }

    /// Asks for what a program has just left in the tensor of outputs: the next output of every trajectory, or of those marked.
    fn ask(&mut self, memory: &Memory, part: &mut Part<'_>, marked: Option<Vec<bool>>) -> Result<()> {
        self.record(part, UNDER_WAY - 1)?;
        self.drain.ask(memory)?;
        self.asked.push_back(marked);
        Ok(())
    }

    /// Records outputs asked for until no more than `rest` are under way.
    fn record(&mut self, part: &mut Part<'_>, rest: usize) -> Result<()> {
        while self.drain.waiting() > rest {
            let marked = self.asked.pop_front().flatten();
            self.drain.take(|states| part.record(states, marked.as_deref()))?;
        }
        Ok(())
    }

    /// Evaluates the slope at the start where the first step expects it; returns the evaluations that took.
    fn first_slope(&mut self, memory: &mut Memory, part: &Part<'_>) -> Result<usize> {
        if !self.keeps_slope {
            return Ok(0);
        }
        self.slope_at(memory, &part.start)?;
        Ok(1)
    }

    /// Evaluates the slope where the trajectories are.
    fn slope_at(&mut self, memory: &mut Memory, times: &[f64]) -> Result<()> {
        memory.write(&self.names.time, Data::F64(times))?;
        match &mut self.slope {
            Some(program) => Ok(program.run(memory)?),
            None => Ok(()),
        }
    }

    /// Evaluations of one more step.
    fn evaluations_per_step(&self) -> usize {
        if self.model.is_autoregressive() { 1 } else { self.tableau.evaluations_per_step() }
    }

    /// Runs one step of every trajectory from its time over its length.
    fn advance(&mut self, memory: &mut Memory, times: &[f64], lengths: &[f64]) -> Result<()> {
        memory.write(&self.names.time, Data::F64(times))?;
        memory.write(&self.names.step, Data::F64(lengths))?;
        Ok(self.step.run(memory)?)
    }

    /// Moves the trajectories marked with 1 to the end of the step just made.
    fn commit(&mut self, memory: &mut Memory, accept: &[f32]) -> Result<()> {
        memory.write(&self.names.accept, Data::F32(accept))?;
        Ok(self.commit.run(memory)?)
    }

    /// So many steps from each output time to the next; `count` is told the longest interval of the batch.
    fn steps_between_outputs(
        &mut self,
        memory: &mut Memory,
        part: &mut Part<'_>,
        count: impl Fn(f64) -> usize,
    ) -> Result<usize> {
        let everyone = vec![1.0; self.batch];
        let mut evaluations = self.first_slope(memory, part)?;
        for output in 0..part.longest() {
            let (from, to) = (part.times_before(output), part.times_at(output));
            let intervals: Vec<f64> = from.iter().zip(&to).map(|(from, to)| to - from).collect();
            let longest = intervals.iter().fold(0.0, |longest: f64, interval| longest.max(interval.abs()));
            // An output at the start takes no step, which matters to models that step from snapshot to snapshot.
            let steps = if longest > 0.0 { count(longest) } else { 0 };
            let lengths: Vec<f64> = intervals.iter().map(|interval| interval / steps as f64).collect();
            for step in 0..steps {
                let times: Vec<f64> = from.iter().zip(&lengths).map(|(t, h)| t + step as f64 * h).collect();
                self.advance(memory, &times, &lengths)?;
                // While the device works.
                self.record(part, 0)?;
                self.commit(memory, &everyone)?;
                evaluations += self.evaluations_per_step();
            }
            if steps == 0 {
                self.show.run(memory)?;
            }
            self.ask(memory, part, None)?;
        }
        Ok(evaluations)
    }

    /// Equal steps within a budget for the horizon: whole steps between outputs if there are enough of them, else
    /// steps over several outputs, which then are read off the step's cubic Hermite polynomial.
    fn within_budget(&mut self, memory: &mut Memory, part: &mut Part<'_>, nfe: usize) -> Result<usize> {
        let span = part.longest_span();
        let each = self.evaluations_per_step();
        let once = usize::from(self.keeps_slope);
        let allowed = (((nfe - once) / each) as f64 * span).round().max(1.0) as usize;
        let intervals = part.longest();
        if allowed >= intervals {
            return self.steps_between_outputs(memory, part, |_| allowed / intervals);
        }
        let stride = intervals.div_ceil(allowed);
        let everyone = vec![1.0; self.batch];
        let mut before: Option<Knot> = None;
        let mut evaluations = self.first_slope(memory, part)?;
        for first in (0..intervals).step_by(stride) {
            let end = (first + stride).min(intervals) - 1;
            let (from, to) = (part.times_before(first), part.times_at(end));
            let lengths: Vec<f64> = from.iter().zip(&to).map(|(from, to)| to - from).collect();
            self.advance(memory, &from, &lengths)?;
            // While the device works.
            self.record(part, 0)?;
            if let Some(before) = &before {
                self.show_between(memory, part, before)?;
            }
            if let Some([_, keep]) = &mut self.between {
                keep.run(memory)?;
            }
            before = Some(Knot { outputs: first..end + 1, times: from, ends: to });
            self.commit(memory, &everyone)?;
            evaluations += each;
        }
        if let Some(before) = before {
            if !self.keeps_slope {
                evaluations += 1;
                self.slope_at(memory, &before.ends)?;
            }
            self.show_between(memory, part, &before)?;
        }
        Ok(evaluations)
    }

    /// Asks for the outputs of a step from the last knot to the present state.
    fn show_between(&mut self, memory: &mut Memory, part: &mut Part<'_>, knot: &Knot) -> Result<()> {
        for output in knot.outputs.clone() {
            memory.write(&self.names.weights, Data::F64(&part.weights(knot, output)))?;
            if let Some([between, _]) = &mut self.between {
                between.run(memory)?;
            }
            self.ask(memory, part, None)?;
        }
        Ok(())
    }
}
