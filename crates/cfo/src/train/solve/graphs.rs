//! What training through a solver runs on the device: drawing, one step forward, one step back, the loss, the optimiser.

use cfo_engine::{Data, Element, Graph, Memory, Node, Precision, Role, Shape};

use crate::error::Result;
use crate::model::Model;
use crate::objective::{Integration, Noise, Point, advanced};
use crate::runge_kutta::{StepStart, append_step, combine, scaled_error};
use crate::train::step::{COUNTER, drawn, learn, summed};
use crate::training_data::TrainingData;

pub(super) const STATE: &str = "solve.state";
pub(super) const SLOPE: &str = "solve.slope";
pub(super) const TIME: &str = "solve.time";
pub(super) const LENGTH: &str = "solve.length";
pub(super) const LENGTHS: &str = "solve.lengths";
pub(super) const WANTED: &str = "solve.wanted";
pub(super) const COTANGENT: &str = "solve.cotangent";
pub(super) const KEEP: &str = "solve.keep";
const CONDITIONS: &str = "solve.conditions";
const TOLERANCE: &str = "solve.tolerance";
const LOSS: &str = "solve.loss";

/// The tensor of the snapshots after an interval.
pub(super) fn target(interval: usize) -> String {
    format!("solve.target.{interval}")
}

/// The tensor of a kept state.
pub(super) fn slot(number: usize) -> String {
    format!("solve.slot.{number}")
}

fn gradient(parameter: &str) -> String {
    format!("solve.gradient/{parameter}")
}

/// Builds the graphs of a model's step.
pub(super) struct Graphs<'a> {
    pub(super) model: &'a Model,
    pub(super) data: &'a TrainingData,
    pub(super) integration: Integration,
}

impl Graphs<'_> {
    /// Samples that this process draws.
    pub(super) fn batch(&self) -> usize {
        self.data.share.samples().len()
    }

    /// The graph of what all that follows reads: states, times and lengths `[batch]`.
    fn point(&self, graph: &mut Graph) -> Result<Point> {
        let batch = self.batch();
        let time = graph.input(TIME, [batch])?;
        let state = graph.input(STATE, self.model.batch_shape(batch))?;
        let conditions = match self.model.setting.conditions {
            0 => None,
            count => Some(graph.input(CONDITIONS, [batch, count])?),
        };
        let counter = graph.counter(COUNTER)?;
        let first = self.data.share.samples().start as u32;
        let noise = Noise::of_step(self.model.recipe.train.seed, counter, first);
        Ok(Point { time, state, conditions, given: None, noise })
    }

    /// Names and shapes of the parameters.
    fn parameters(&self) -> Result<Vec<(String, Shape)>> {
        let graph = self.model.graph()?;
        Ok(graph.parameters().iter().map(|of| (of.name.clone(), of.shape.clone())).collect())
    }

    /// Puts the tensors that the programs share into memory.
    pub(super) fn insert(&self, memory: &mut Memory) -> Result<()> {
        let (batch, conditions) = (self.batch(), self.model.setting.conditions);
        let (intervals, field) = (self.integration.intervals, Shape::from(self.model.batch_shape(batch)));
        let mut tensors: Vec<(String, Shape)> = vec![
            (TIME.into(), [batch].into()),
            (LENGTH.into(), [batch].into()),
            (LENGTHS.into(), [intervals, batch].into()),
            (KEEP.into(), Shape::scalar()),
            (TOLERANCE.into(), [2].into()),
            (LOSS.into(), Shape::scalar()),
        ];
        let fields = [STATE, SLOPE, WANTED, COTANGENT].map(String::from).into_iter();
        tensors.extend(fields.chain((0..intervals).map(target)).map(|name| (name, field.clone())));
        if conditions > 0 {
            tensors.push((CONDITIONS.into(), [batch, conditions].into()));
        }
        tensors.extend(self.parameters()?.into_iter().map(|(name, shape)| (gradient(&name), shape)));
        for (name, shape) in tensors {
            insert(memory, &name, shape)?;
        }
        let controller = self.integration.controller;
        memory.write(TOLERANCE, Data::F64(&[controller.rtol, controller.atol]))?;
        memory.write(KEEP, Data::F64(&[f64::from(u8::from(self.integration.through_time))]))?;
        Ok(())
    }

    /// Draws a batch of windows and forgets what the step before left.
    pub(super) fn draw(&self) -> Result<Graph> {
        let (mut graph, batch) = drawn(self.model, self.data)?;
        let count = self.batch();
        let mut pairs = vec![(STATE.to_owned(), batch.state), (TIME.to_owned(), batch.time)];
        for interval in 0..self.integration.intervals {
            pairs.push((target(interval), batch.snapshot(&mut graph, interval + 1)?));
        }
        pairs.extend(batch.conditions.map(|value| (CONDITIONS.to_owned(), value)));
        pairs.extend(batch.window.map(|window| (LENGTHS.to_owned(), window.lengths)));
        for (name, value) in pairs {
            let shape = graph.shape(value).clone();
            let tensor = graph.input(&name, shape)?;
            graph.assign(tensor, value)?;
        }
        let none = graph.scalar(0.0);
        let left =
            [(LOSS.to_owned(), Shape::scalar()), (COTANGENT.into(), self.model.batch_shape(count).into())];
        let gradients = self.parameters()?.into_iter().map(|(name, shape)| (gradient(&name), shape));
        for (name, shape) in left.into_iter().chain(gradients) {
            let tensor = graph.input(&name, shape)?;
            let zero = graph.mask(tensor, none)?;
            graph.assign(tensor, zero)?;
        }
        Ok(graph)
    }

    /// The slope at the start, and the norms by which the first step is chosen: of the state, of the slope, and of the slope's change
    /// over a short step, relative to it.
    pub(super) fn start(&self) -> Result<(Graph, Vec<Node>)> {
        let mut graph = Graph::new();
        let graph_ref = &mut graph;
        let point = self.point(graph_ref)?;
        let batch = self.batch();
        let objective = self.model.objective();
        let slope = objective.moved(graph_ref, self.model, &point)?;
        let kept = graph_ref.input(SLOPE, self.model.batch_shape(batch))?;
        graph_ref.assign(kept, slope)?;
        let norm = |graph: &mut Graph, value: Node| {
            scaled_error(graph, TOLERANCE, [point.state, point.state, value])
        };
        let [of_state, of_slope] = [norm(graph_ref, point.state)?, norm(graph_ref, slope)?];
        // As in `cfo_numerics::ode::first_step`, which makes the choice: a hundredth of the time in which the state changes by itself.
        let least = graph_ref.constant([1], vec![1e-5])?;
        let lengths = graph_ref.input(LENGTHS, [self.integration.intervals, batch])?;
        let longest = graph_ref.slice(lengths, 0, 0, 1)?;
        let longest = graph_ref.reshape(longest, [batch])?;
        let smaller = graph_ref.minimum(of_state, of_slope)?;
        let usual = graph_ref.at_least(smaller, least)?;
        let ratio = graph_ref.divide(of_state, of_slope)?;
        let ratio = graph_ref.scale(ratio, 0.01)?;
        let ratio = graph_ref.mask(ratio, usual)?;
        let tiny = graph_ref.affine(usual, -1e-6, 1e-6)?;
        let guess = graph_ref.add(ratio, tiny)?;
        let guess = graph_ref.minimum(guess, longest)?;
        let length = graph_ref.reshape(guess, [batch, 1, 1, 1])?;
        let state = combine(graph_ref, point.state, length, &[1.0], &[slope])?;
        let time = graph_ref.add(point.time, guess)?;
        let next = objective.moved(graph_ref, self.model, &Point { time, state, ..point })?;
        let change = graph_ref.subtract(next, slope)?;
        let change = norm(graph_ref, change)?;
        let rate = graph_ref.divide(change, guess)?;
        Ok((graph, vec![of_state, of_slope, rate]))
    }

    /// One attempted step of every sample. Those whose error is within the tolerances move; returns the errors. Only the last
    /// slope of a method whose last stage is the next step's first is carried over.
    pub(super) fn attempt(&self, precision: Precision) -> Result<(Graph, Node)> {
        let mut graph = Graph::new();
        let (batch, tableau) = (self.batch(), self.integration.tableau);
        let shape = self.model.batch_shape(batch);
        let point = self.point(&mut graph)?;
        let length = graph.input(LENGTH, [batch])?;
        let carried = match tableau.first_same_as_last {
            true => Some(graph.input(SLOPE, shape)?),
            false => None,
        };
        let start = StepStart { state: point.state, time: point.time, length };
        let made = append_step(&mut graph, &tableau, start, carried, |graph, time, state| {
            self.model.objective().moved(graph, self.model, &Point { time, state, ..point })
        })?;
        let error = made.error(&mut graph, &tableau, TOLERANCE)?;
        // The greatest number below 1: what the host accepts is what moves here.
        let below = match precision {
            Precision::F64 => 1.0 - f64::EPSILON / 2.0,
            _ => f64::from(1.0 - f32::EPSILON / 2.0),
        };
        let limit = graph.constant([1], vec![below])?;
        let accepted = graph.at_least(limit, error)?;
        let rejected = graph.affine(accepted, -1.0, 1.0)?;
        let [accepted, rejected] = [accepted, rejected].map(|mark| graph.reshape(mark, [batch, 1, 1, 1]));
        let (accepted, rejected) = (accepted?, rejected?);
        let carried = carried.map(|slope| (slope, made.slopes[made.slopes.len() - 1]));
        for (old, new) in [(point.state, made.end)].into_iter().chain(carried) {
            let (moved, stayed) = (graph.mask(new, accepted)?, graph.mask(old, rejected)?);
            let value = graph.add(moved, stayed)?;
            graph.assign(old, value)?;
        }
        Ok((graph, error))
    }

    /// The step that was accepted, once more: from the state at its start to that at its end.
    pub(super) fn replay(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let start = self.point(&mut graph)?;
        let length = graph.input(LENGTH, [self.batch()])?;
        let end = advanced(&mut graph, self.model, &self.integration.tableau, (start, length))?;
        graph.assign(start.state, end)?;
        Ok(graph)
    }

    /// Returns the graph of the step's backward pass: from the cotangent of the state at its end to that at its start, adding to the gradients of the parameters.
    pub(super) fn back(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let start = self.point(&mut graph)?;
        let length = graph.input(LENGTH, [self.batch()])?;
        let end = advanced(&mut graph, self.model, &self.integration.tableau, (start, length))?;
        let cotangent = graph.input(COTANGENT, self.model.batch_shape(self.batch()))?;
        let parameters: Vec<_> = graph.parameters().to_vec();
        let targets: Vec<Node> = parameters.iter().map(|of| of.node).chain([start.state]).collect();
        let mut found = graph.vector_jacobian(&[(end, cotangent)], &targets)?;
        if let Some(before) = found.pop().flatten() {
            graph.assign(cotangent, before)?;
        }
        for (parameter, found) in parameters.iter().zip(found) {
            let Some(found) = found else { continue };
            let sum = graph.input(&gradient(&parameter.name), parameter.shape.clone())?;
            let grown = graph.add(sum, found)?;
            graph.assign(sum, grown)?;
        }
        Ok(graph)
    }

    /// The mismatch of the states with the snapshots wanted, added to the loss, and its cotangent to that of what comes later.
    pub(super) fn compare(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let shape = self.model.batch_shape(self.batch());
        let [found, wanted, later] = [STATE, WANTED, COTANGENT].map(|name| graph.input(name, shape));
        let (found, wanted, later) = (found?, wanted?, later?);
        let mismatch = self.model.objective().mismatch(&mut graph, self.model, [found, wanted])?;
        let share = graph.scale(mismatch, 1.0 / self.integration.intervals as f64)?;
        let own = graph.gradients(share, &[found])?[0];
        let keep = graph.input(KEEP, Shape::scalar())?;
        let kept = graph.mask(later, keep)?;
        let cotangent = graph.add(kept, own)?;
        graph.assign(later, cotangent)?;
        let loss = graph.input(LOSS, Shape::scalar())?;
        let sum = graph.add(loss, share)?;
        graph.assign(loss, sum)?;
        Ok(graph)
    }

    /// The optimiser's step by the gradients gathered. Its parameters and states are the training's.
    pub(super) fn update(&self) -> Result<(Graph, Node)> {
        let mut graph = Graph::new();
        let point = self.point(&mut graph)?;
        // For the parameters; nothing of it runs.
        self.model.objective().moved(&mut graph, self.model, &point)?;
        let parameters: Vec<_> = graph.parameters().to_vec();
        let gradients = parameters.iter().map(|of| graph.input(&gradient(&of.name), of.shape.clone()));
        let mut values = gradients.collect::<std::result::Result<Vec<Node>, _>>()?;
        values.push(graph.input(LOSS, Shape::scalar())?);
        let weight = self.data.share.whole().weight;
        if weight != 1.0 {
            for value in &mut values {
                *value = graph.scale(*value, weight)?;
            }
        }
        let mut gradients = summed(&mut graph, self.data, vec![values])?;
        let loss = gradients.pop().expect("the loss was added last");
        learn(self.model, &mut graph, loss, &gradients)?;
        Ok((graph, loss))
    }
}

/// Puts a tensor of zeros into memory unless it is there.
pub(super) fn insert(memory: &mut Memory, name: &str, shape: Shape) -> Result<()> {
    if !memory.contains(name) {
        let zeros = vec![0.0; shape.len()];
        memory.insert_as(Role::Scratch, name, Element::Real, shape, Data::F32(&zeros))?;
    }
    Ok(())
}
