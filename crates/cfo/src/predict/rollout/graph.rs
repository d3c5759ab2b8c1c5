//! RolloutGraphs of a rollout: one step of every trajectory, and the move to its end.

use cfo_engine::{Data, Element, Graph, Memory, Node, Program, Role, Shape};
use cfo_numerics::ode::Tableau;

use crate::error::Result;
use crate::model::{self, Model, StepStart};
use crate::objective::{MotionKind, Point};

/// Names of the tensors of one rollout. They differ between batch sizes.
pub(super) struct Names {
    pub(super) state: String,
    pub(super) candidate: String,
    pub(super) slope: String,
    pub(super) candidate_slope: String,
    stage: String,
    pub(super) dense_weights: String,
    pub(super) output: String,
    pub(super) time: String,
    pub(super) step: String,
    pub(super) accept: String,
    pub(super) keep: String,
    pub(super) tolerance: String,
    pub(super) conditions: String,
    pub(super) statics: String,
    /// The controls at the time of each stage.
    pub(super) controls: Vec<String>,
    pub(super) given: String,
    pub(super) draws: String,
    pub(super) frame_weights: String,
}

impl Names {
    pub(super) fn new(batch: usize, stages: usize) -> Self {
        let name = |what: &str| tensor(batch, what);
        Self {
            state: name("state"),
            candidate: name("candidate"),
            slope: name("slope"),
            candidate_slope: name("candidate-slope"),
            stage: name("stage"),
            dense_weights: name(&format!("dense-weights.{stages}")),
            output: name("output"),
            time: name("time"),
            step: name("step"),
            accept: name("accept"),
            keep: name("keep"),
            tolerance: name("tolerance"),
            conditions: name("conditions"),
            statics: name("statics"),
            controls: (0..stages).map(|stage| name(&of_stage(stage, "controls"))).collect(),
            given: name("given"),
            draws: name("draws"),
            frame_weights: name("frame-weights"),
        }
    }

    /// Returns the name of the slope of a stage after a step; one at the end is the first slope of the next step.
    pub(super) fn slope_of_stage(&self, stage: usize, tableau: &Tableau) -> String {
        match stage {
            0 => self.slope.clone(),
            _ if tableau.first_same_as_last && stage + 1 == tableau.stages() => self.candidate_slope.clone(),
            _ => format!("{}.{stage}", self.stage),
        }
    }
}

/// Returns the name of an input of a stage. Only controls differ between stages.
fn of_stage(stage: usize, what: &str) -> String {
    if stage > 0 && what == "controls" { format!("{what}.{stage}") } else { what.to_owned() }
}

/// Returns the name of a tensor of rollouts with a batch size.
fn tensor(batch: usize, what: &str) -> String {
    format!("rollout.{batch}.{what}")
}

/// What the graphs of a rollout are built for.
pub(super) struct RolloutGraphs<'a> {
    pub(super) model: &'a Model,
    pub(super) names: &'a Names,
    pub(super) tableau: &'a Tableau,
    pub(super) batch: usize,
}

impl RolloutGraphs<'_> {
    /// Compiles the graph that `append` builds, with its outputs; weights are read under `prefix`.
    pub(super) fn compile(
        &self,
        memory: &Memory,
        prefix: &str,
        append: impl Fn(&Self, &mut Graph) -> Result<Vec<Node>>,
    ) -> Result<Program> {
        let mut graph = Graph::with_prefix(prefix);
        let outputs = append(self, &mut graph)?;
        Ok(Program::compile(&graph, &outputs, memory)?)
    }

    /// Returns whether the model is integrated by a method whose last slope is the first slope of the next step.
    pub(super) fn keeps_slope(&self) -> bool {
        self.tableau.first_same_as_last && self.model.motion().kind() != MotionKind::Step
    }

    fn point(&self, graph: &mut Graph) -> Result<Point> {
        self.point_of(graph, 0)
    }

    /// Appends the inputs of a stage.
    fn point_of(&self, graph: &mut Graph, stage: usize) -> Result<Point> {
        self.model.point(graph, self.batch, |what| tensor(self.batch, &of_stage(stage, what)))
    }

    /// Appends one Runge-Kutta step of every trajectory, from the tensor of states to that of candidates. It also writes the slopes of all
    /// stages, for dense output. If the method's last slope is the first slope of the next step, the first slope is read from its tensor.
    ///
    /// Returns the error of each trajectory relative to the tolerances, for methods that estimate it.
    pub(super) fn step(&self, graph: &mut Graph) -> Result<Vec<Node>> {
        let Self { model, names, tableau, batch } = *self;
        let shape = model.moving_shape(batch);
        let point = self.point(graph)?;
        let candidate = graph.input(&names.candidate, shape)?;
        let step = graph.input(&names.step, [batch])?;
        if model.motion().kind() == MotionKind::Step {
            let next = model.moved(graph, &point)?;
            graph.assign(candidate, next)?;
            return Ok(Vec::new());
        }
        let first = match tableau.first_same_as_last {
            true => Some(graph.input(&names.slope, shape)?),
            false => None,
        };
        let start = StepStart { state: point.state, time: point.context.time, length: step };
        let mut stages = usize::from(first.is_some())..;
        let made = model::append_step(graph, tableau, start, first, |graph, time, state| {
            let stage = stages.next().filter(|_| !model.inputs.controls.is_empty()).unwrap_or(0);
            let own = if stage == 0 { point } else { self.point_of(graph, stage)? };
            model.moved(graph, &own.at(time, state))
        })?;
        graph.assign(candidate, made.end)?;
        for (stage, &value) in made.slopes.iter().enumerate().skip(usize::from(first.is_some())) {
            let slope = graph.input(&names.slope_of_stage(stage, tableau), shape)?;
            graph.assign(slope, value)?;
        }
        match tableau.estimates_error() {
            true => Ok(vec![made.error(graph, tableau, &names.tolerance)?]),
            false => Ok(Vec::new()),
        }
    }

    /// Appends the slope at the states and times, and its assignment to the tensor of slopes.
    pub(super) fn slope(&self, graph: &mut Graph) -> Result<Vec<Node>> {
        let point = self.point(graph)?;
        let velocity = self.model.moved(graph, &point)?;
        let slope = graph.input(&self.names.slope, self.model.moving_shape(self.batch))?;
        graph.assign(slope, velocity)?;
        Ok(Vec::new())
    }

    /// Appends the move of accepted trajectories from state to candidate, and of their slopes if they are kept. Trajectories that are neither
    /// accepted nor kept become 0. The new state in the user's units is assigned to the tensor of outputs, unless it is a whole trajectory.
    pub(super) fn commit(&self, graph: &mut Graph) -> Result<Vec<Node>> {
        let (shape, names) = (self.model.moving_shape(self.batch), self.names);
        let f = graph.formula();
        let mark = |name: &str| f.input(name, [shape[0]]).reshape([shape[0], 1, 1, 1]).node();
        let (accept, keep) = (mark(&names.accept)?, mark(&names.keep)?);
        let moved = |graph: &mut Graph, old: &str, new: &str| -> Result<Node> {
            let f = graph.formula();
            let (old, new) = (f.input(old, shape), f.input(new, shape));
            let next = new.mask(accept) + old.mask(keep);
            next.assign_to(old)?;
            Ok(next.node()?)
        };
        let next = moved(graph, &names.state, &names.candidate)?;
        if !matches!(self.model.motion().kind(), MotionKind::Trajectory { .. }) {
            self.output(graph, next)?;
        }
        if self.keeps_slope() {
            moved(graph, &names.slope, &names.candidate_slope)?;
        }
        Ok(Vec::new())
    }

    /// Appends the noise from which a trajectory is generated, and its assignment to the tensor of states.
    pub(super) fn noise(&self, graph: &mut Graph) -> Result<Vec<Node>> {
        let point = self.point(graph)?;
        let drawn = point.noise.normal(graph, &self.model.moving_shape(self.batch), 0)?;
        graph.assign(point.state, drawn)?;
        Ok(Vec::new())
    }

    /// Appends the weighted sum of a trajectory's frames in the user's units, and its assignment to the tensor of outputs.
    pub(super) fn frame(&self, graph: &mut Graph) -> Result<Vec<Node>> {
        let (batch, shape) = (self.batch, self.model.moving_shape(self.batch));
        let f = graph.formula();
        let weights = f.input(&self.names.frame_weights, [batch, shape[1]]).reshape([batch, shape[1], 1, 1]);
        let frames = f.input(&self.names.state, shape);
        let state = (frames * weights).sum(&[1]).reshape(self.model.batch_shape(batch)).node()?;
        self.output(graph, state)
    }

    /// Appends dense output from the last step's start and slopes, assigned to the outputs in the user's units.
    pub(super) fn dense(&self, graph: &mut Graph) -> Result<Vec<Node>> {
        let Self { model, names, tableau, batch } = *self;
        let shape = model.batch_shape(batch);
        let f = graph.formula();
        let weights = f.input(&names.dense_weights, [batch, tableau.stages()]);
        let terms = (0..tableau.stages()).map(|stage| {
            let weight = weights.slice(1, stage, 1).reshape([batch, 1, 1, 1]);
            weight * f.input(&names.slope_of_stage(stage, tableau), shape)
        });
        let change = terms.reduce(|sum, term| sum + term).expect("a method has at least one stage");
        let value = (f.input(&names.state, shape) + change).node()?;
        self.output(graph, value)
    }

    /// Appends the assignment of a state, in the user's units, to the tensor of outputs.
    fn output(&self, graph: &mut Graph, value: Node) -> Result<Vec<Node>> {
        let scaling = &self.model.scaling;
        let constants = [1, 1, 1, scaling.mean.len()];
        let f = graph.formula();
        let deviation = f.constant(constants, scaling.deviation.clone());
        let mean = f.constant(constants, scaling.mean.clone());
        let mut restored = (value * deviation + mean).node()?;
        if let Some(latent) = self.model.latent() {
            restored = latent.decoded(graph, restored)?;
        }
        let output = graph.input(&self.names.output, graph.shape(restored).clone())?;
        graph.assign(output, restored)?;
        Ok(Vec::new())
    }

    pub(super) fn insert_tensors(&self, memory: &mut Memory) -> Result<()> {
        let Self { model, names, tableau, batch } = *self;
        let mut insert = |name: &str, shape: Shape| {
            let zeros = vec![0.0_f32; shape.len()];
            memory.insert_as(Role::Scratch, name, Element::Real, shape, Data::F32(&zeros))
        };
        let (shape, motion) = (model.moving_shape(batch), model.motion().kind());
        insert(&names.candidate, shape.into())?;
        if motion != MotionKind::Step {
            for stage in 0..tableau.stages() {
                insert(&names.slope_of_stage(stage, tableau), shape.into())?;
            }
        }
        match motion {
            MotionKind::Velocity => insert(&names.dense_weights, [batch, tableau.stages()].into())?,
            MotionKind::Trajectory { frames } => insert(&names.frame_weights, [batch, frames].into())?,
            MotionKind::Step => {}
        }
        insert(&names.output, model.shape().tensor(batch).into())?;
        for name in [&names.step, &names.accept, &names.keep] {
            insert(name, [batch].into())?;
        }
        insert(&names.tolerance, [2].into())?;
        if !model.inputs.controls.is_empty() {
            for name in &names.controls {
                insert(name, [batch, model.inputs.controls.len()].into())?;
            }
        }
        model.insert_point(memory, batch, |what| tensor(batch, what), |count| vec![0.0; count])
    }
}
