//! Rollouts: a trained network integrated from given states to any times, forward or backward.

use cfo_engine::{Data, Graph, Memory, Node, Program};
use cfo_numerics::ode::{Controller, StepControl, Tableau};

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::recipe::EvaluateConfig;

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
    /// So many network evaluations for the whole horizon of the training data.
    Evaluations(usize),
    /// As long as the tolerances allow, for each trajectory on its own.
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
            0 if tableau.estimates_error() => {
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
                    format!("{nfe} evaluations allow no step of `{}`, which takes {needed}", tableau.name),
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
    step: Program,
    commit: Program,
    names: Names,
}

/// Names of the tensors of one rollout; programs of different batch sizes do not meet.
struct Names {
    state: String,
    candidate: String,
    time: String,
    step: String,
    accept: String,
    tolerance: String,
    conditions: String,
}

impl Names {
    fn new(batch: usize) -> Self {
        let name = |what: &str| format!("rollout.{batch}.{what}");
        Self {
            state: name("state"),
            candidate: name("candidate"),
            time: name("time"),
            step: name("step"),
            accept: name("accept"),
            tolerance: name("tolerance"),
            conditions: name("conditions"),
        }
    }
}

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
        let mut graph = Graph::new();
        append_commit(&mut graph, &names, shape)?;
        let commit = Program::compile(&graph, &[], memory)?;
        Ok(Self { model, batch, tableau, step, commit, names })
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
            memory.write(&self.names.state, Data::F32(&part.state))?;
            if self.model.setting.conditions > 0 {
                memory.write(&self.names.conditions, Data::F32(&part.conditions))?;
            }
            let evaluations = match budget {
                _ if self.model.is_autoregressive() => self.steps_between_outputs(memory, &mut part, 1)?,
                Budget::StepPerOutput => self.steps_between_outputs(memory, &mut part, 1)?,
                Budget::Evaluations(nfe) => self.within_budget(memory, &mut part, nfe)?,
                Budget::Adaptive(controller) => self.adaptive(memory, &mut part, controller)?,
            };
            prediction.evaluations = prediction.evaluations.max(evaluations);
            for (i, states) in part.outputs.into_iter().enumerate().take(last - first) {
                self.check_finite(first + i, &request.times[first + i], &states)?;
                prediction.states.push(self.model.scaling.restore(&states));
            }
        }
        Ok(prediction)
    }

    fn check_finite(&self, trajectory: usize, times: &[f64], states: &[f32]) -> Result<()> {
        match states.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                let frame = at / self.model.shape().len();
                let time = times[frame.saturating_sub(1)];
                Err(CfoError::RolloutDiverged { trajectory, time })
            }
        }
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

    /// So many steps from each output time to the next.
    fn steps_between_outputs(&mut self, memory: &mut Memory, part: &mut Part, steps: usize) -> Result<usize> {
        let everyone = vec![1.0; self.batch];
        for output in 0..part.longest() {
            let (from, to) = (part.times_before(output), part.times_at(output));
            let lengths: Vec<f64> =
                from.iter().zip(&to).map(|(from, to)| (to - from) / steps as f64).collect();
            for step in 0..steps {
                let times: Vec<f64> = from.iter().zip(&lengths).map(|(t, h)| t + step as f64 * h).collect();
                self.advance(memory, &times, &lengths)?;
                self.commit(memory, &everyone)?;
            }
            let state = memory.read(&self.names.state)?;
            part.record(output, &state);
        }
        let each = if self.model.is_autoregressive() { 1 } else { self.tableau.stages() };
        Ok(part.longest() * steps * each)
    }

    /// Equal steps within a budget for the horizon: whole steps between outputs if there are enough of them, else
    /// steps over several outputs, which then are read off the step's cubic Hermite polynomial.
    fn within_budget(&mut self, memory: &mut Memory, part: &mut Part, nfe: usize) -> Result<usize> {
        let span = part.longest_span();
        let stages = self.tableau.stages();
        let allowed = ((nfe / stages) as f64 * span).round().max(1.0) as usize;
        let intervals = part.longest();
        if allowed >= intervals {
            return self.steps_between_outputs(memory, part, allowed / intervals);
        }
        let stride = intervals.div_ceil(allowed);
        let everyone = vec![1.0; self.batch];
        let mut before: Option<Knot> = None;
        let mut evaluations = 0;
        for first in (0..intervals).step_by(stride) {
            let end = (first + stride).min(intervals) - 1;
            let (from, to) = (part.times_before(first), part.times_at(end));
            let lengths: Vec<f64> = from.iter().zip(&to).map(|(from, to)| to - from).collect();
            let state = memory.read(&self.names.state)?;
            self.advance(memory, &from, &lengths)?;
            let here =
                Knot { outputs: first..end + 1, times: from, ends: to, state, slope: self.step.output(0)? };
            self.commit(memory, &everyone)?;
            if let Some(before) = before.take() {
                part.interpolate(&before, &here.state, &here.slope);
            }
            before = Some(here);
            evaluations += stages;
        }
        if let Some(before) = before {
            let state = memory.read(&self.names.state)?;
            let zeros = vec![0.0; self.batch];
            self.advance(memory, &before.ends.clone(), &zeros)?;
            part.interpolate(&before, &state, &self.step.output(0)?);
            evaluations += 1;
        }
        Ok(evaluations)
    }

    /// Steps as long as the tolerances allow, each trajectory by its own controller; steps end on output times.
    fn adaptive(&mut self, memory: &mut Memory, part: &mut Part, controller: Controller) -> Result<usize> {
        /// First attempt, as a share of the horizon.
        const FIRST: f64 = 0.01;
        memory.write(&self.names.tolerance, Data::F64(&[controller.rtol, controller.atol]))?;
        let mut tracks: Vec<Track> = (0..self.batch)
            .map(|i| Track {
                time: part.start[i],
                output: 0,
                length: FIRST,
                control: controller.start(self.tableau.error_order),
            })
            .collect();
        let mut attempts = 0;
        while tracks.iter().enumerate().any(|(i, track)| track.output < part.times[i].len()) {
            attempts += 1;
            if attempts > controller.max_steps {
                let slowest = tracks.iter().position(|track| track.output < part.longest()).unwrap_or(0);
                let time = tracks[slowest].time * self.model.scaling.span + self.model.scaling.start;
                return Err(CfoError::RolloutDiverged { trajectory: slowest, time });
            }
            let lengths: Vec<f64> =
                tracks.iter().enumerate().map(|(i, track)| track.next_length(&part.times[i])).collect();
            let times: Vec<f64> = tracks.iter().map(|track| track.time).collect();
            self.advance(memory, &times, &lengths)?;
            let errors = self.step.output_f64(1)?;
            let mut accept = vec![0.0; self.batch];
            let mut landed = false;
            for (i, track) in tracks.iter_mut().enumerate() {
                if track.output < part.times[i].len() && track.judge(errors[i], lengths[i], &part.times[i]) {
                    accept[i] = 1.0;
                    landed |= track.time == part.times[i][track.output];
                }
            }
            self.commit(memory, &accept)?;
            if landed {
                let state = memory.read(&self.names.state)?;
                for (i, track) in tracks.iter_mut().enumerate() {
                    while accept[i] > 0.0 && part.times[i].get(track.output) == Some(&track.time) {
                        part.record_one(i, track.output, &state);
                        track.output += 1;
                    }
                }
            }
        }
        Ok(attempts as usize * self.tableau.stages())
    }
}

/// One trajectory of an adaptive rollout.
struct Track {
    time: f64,
    output: usize,
    length: f64,
    control: StepControl,
}

impl Track {
    /// The next attempt's signed length: not past the next output; 0 for a trajectory that has arrived.
    fn next_length(&self, outputs: &[f64]) -> f64 {
        match outputs.get(self.output) {
            None => 0.0,
            Some(target) => {
                let rest = target - self.time;
                rest.signum() * self.length.min(rest.abs())
            }
        }
    }

    /// Whether the attempt counts; if so the time moves.
    fn judge(&mut self, error: f64, length: f64, outputs: &[f64]) -> bool {
        if length == 0.0 {
            return true;
        }
        let decision = self.control.decide(error);
        let clipped = length.abs() < self.length;
        if decision.accept {
            let target = outputs[self.output];
            self.time = if length == target - self.time { target } else { self.time + length };
            self.length = if clipped {
                self.length.max(length.abs() * decision.factor)
            } else {
                length.abs() * decision.factor
            };
        } else {
            self.length = length.abs() * decision.factor;
        }
        decision.accept
    }
}

/// The start of a step that spans several outputs.
struct Knot {
    outputs: std::ops::Range<usize>,
    times: Vec<f64>,
    ends: Vec<f64>,
    state: Vec<f32>,
    slope: Vec<f32>,
}

/// One batch under way, in the network's units.
struct Part {
    size: usize,
    start: Vec<f64>,
    times: Vec<Vec<f64>>,
    state: Vec<f32>,
    conditions: Vec<f32>,
    outputs: Vec<Vec<f32>>,
}

impl Part {
    fn new(model: &Model, request: &Request, chosen: &[usize]) -> Result<Self> {
        let size = model.shape().len();
        let scaling = &model.scaling;
        let mut part = Self {
            size,
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
            part.outputs.push(vec![0.0; request.times[i].len() * size]);
            if model.setting.conditions > 0 {
                let values = request.conditions[i].iter().zip(&scaling.conditions);
                part.conditions
                    .extend(values.map(|(value, [mean, deviation])| ((value - mean) / deviation) as f32));
            }
        }
        Ok(part)
    }

    /// Most outputs of a trajectory.
    fn longest(&self) -> usize {
        self.times.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Longest time from start to last output.
    fn longest_span(&self) -> f64 {
        let spans = self
            .times
            .iter()
            .zip(&self.start)
            .filter_map(|(times, start)| Some((times.last()? - start).abs()));
        spans.fold(0.0, f64::max)
    }

    /// For each trajectory the time of an output; its last one if it has fewer.
    fn times_at(&self, output: usize) -> Vec<f64> {
        let at =
            |(times, start): (&Vec<f64>, &f64)| times.get(output).or(times.last()).copied().unwrap_or(*start);
        self.times.iter().zip(&self.start).map(at).collect()
    }

    /// For each trajectory the time before an output.
    fn times_before(&self, output: usize) -> Vec<f64> {
        if output == 0 { self.start.clone() } else { self.times_at(output - 1) }
    }

    fn record(&mut self, output: usize, state: &[f32]) {
        for i in 0..self.times.len() {
            self.record_one(i, output, state);
        }
    }

    fn record_one(&mut self, i: usize, output: usize, state: &[f32]) {
        if output < self.times[i].len() {
            let from = &state[i * self.size..(i + 1) * self.size];
            self.outputs[i][output * self.size..(output + 1) * self.size].copy_from_slice(from);
        }
    }

    /// Fills the outputs inside a step from values and slopes at its ends.
    fn interpolate(&mut self, knot: &Knot, end_state: &[f32], end_slope: &[f32]) {
        for i in 0..self.times.len() {
            let (start, length) = (knot.times[i], knot.ends[i] - knot.times[i]);
            for output in knot.outputs.clone().filter(|&output| output < self.times[i].len()) {
                let x = if length == 0.0 { 1.0 } else { (self.times[i][output] - start) / length };
                let weights = [
                    (1.0 + 2.0 * x) * (1.0 - x) * (1.0 - x),
                    x * (1.0 - x) * (1.0 - x) * length,
                    x * x * (3.0 - 2.0 * x),
                    x * x * (x - 1.0) * length,
                ];
                for j in 0..self.size {
                    let at = i * self.size + j;
                    let terms = [knot.state[at], knot.slope[at], end_state[at], end_slope[at]];
                    let value: f64 = weights.iter().zip(terms).map(|(w, term)| w * f64::from(term)).sum();
                    self.outputs[i][output * self.size + j] = value as f32;
                }
            }
        }
    }
}

/// Appends one Runge-Kutta step of every trajectory, from the tensor of states into that of candidates. Returns the
/// slope at its start and, for methods that estimate it, each trajectory's error relative to the tolerances.
fn append_step(
    model: &Model,
    graph: &mut Graph,
    names: &Names,
    batch: usize,
    tableau: &Tableau,
) -> Result<Vec<Node>> {
    let shape = model.batch_shape(batch);
    let state = graph.input(&names.state, shape)?;
    let candidate = graph.input(&names.candidate, shape)?;
    let time = graph.input(&names.time, [batch])?;
    let step = graph.input(&names.step, [batch])?;
    let conditions = match model.setting.conditions {
        0 => None,
        count => Some(graph.input(&names.conditions, [batch, count])?),
    };
    if model.is_autoregressive() {
        let output = model.velocity(graph, [time, state], conditions)?;
        let next = model.next_state(graph, state, output)?;
        graph.assign(candidate, next)?;
        return Ok(vec![output]);
    }
    let length = graph.reshape(step, [batch, 1, 1, 1])?;
    let mut slopes: Vec<Node> = Vec::new();
    for (stage, &c) in tableau.c.iter().enumerate() {
        let at = combine(graph, state, length, tableau.a[stage], &slopes)?;
        let delay = graph.scale(step, c)?;
        let when = graph.add(time, delay)?;
        slopes.push(model.velocity(graph, [when, at], conditions)?);
    }
    let next = combine(graph, state, length, tableau.b, &slopes)?;
    graph.assign(candidate, next)?;
    let mut outputs = vec![slopes[0]];
    if tableau.estimates_error() {
        let zero = graph.scale(state, 0.0)?;
        let error = combine(graph, zero, length, tableau.error, &slopes)?;
        outputs.push(scaled_error(graph, names, [state, next, error])?);
    }
    Ok(outputs)
}

/// `state + length * sum(weights * slopes)`.
fn combine(graph: &mut Graph, state: Node, length: Node, weights: &[f64], slopes: &[Node]) -> Result<Node> {
    let mut sum: Option<Node> = None;
    for (&weight, &slope) in weights.iter().zip(slopes).filter(|(weight, _)| **weight != 0.0) {
        let term = graph.scale(slope, weight)?;
        sum = Some(match sum {
            Some(sum) => graph.add(sum, term)?,
            None => term,
        });
    }
    match sum {
        None => Ok(state),
        Some(sum) => {
            let change = graph.multiply(length, sum)?;
            Ok(graph.add(state, change)?)
        }
    }
}

/// Root mean square over each trajectory of `error / (atol + rtol max(|before|, |after|))`.
fn scaled_error(graph: &mut Graph, names: &Names, [before, after, error]: [Node; 3]) -> Result<Node> {
    let tolerance = graph.input(&names.tolerance, [2])?;
    let rtol = graph.slice(tolerance, 0, 0, 1)?;
    let atol = graph.slice(tolerance, 0, 1, 1)?;
    let (before, after) = (graph.abs(before)?, graph.abs(after)?);
    let size = graph.maximum(before, after)?;
    let relative = graph.multiply(size, rtol)?;
    let scale = graph.add(relative, atol)?;
    let ratio = graph.divide(error, scale)?;
    let square = graph.square(ratio)?;
    let mean = graph.mean(square, &[1, 2, 3])?;
    Ok(graph.sqrt(mean)?)
}

/// Appends the move of accepted trajectories from state to candidate.
fn append_commit(graph: &mut Graph, names: &Names, shape: [usize; 4]) -> Result<()> {
    let state = graph.input(&names.state, shape)?;
    let candidate = graph.input(&names.candidate, shape)?;
    let accept = graph.input(&names.accept, [shape[0]])?;
    let accept = graph.reshape(accept, [shape[0], 1, 1, 1])?;
    let refuse = graph.affine(accept, -1.0, 1.0)?;
    let (new, old) = (graph.mask(candidate, accept)?, graph.mask(state, refuse)?);
    let next = graph.add(new, old)?;
    Ok(graph.assign(state, next)?)
}
