//! The graphs of training through a solver: drawing, one step forward, one step back, the loss, the optimiser.

use cfo_engine::{Data, Element, Graph, Memory, Node, Precision, Role, Shape};

use crate::error::Result;
use crate::model::Model;
use crate::model::{StepStart, append_step, scaled_error};
use crate::objective::{Noise, Point, advanced};
use crate::recipe::ThroughSolver;
use crate::train::input_tables::InputTables;
use crate::train::step::{COUNTER, drawn, learn, summed};
use crate::train::training_data::TrainingData;

pub(super) const STATE: &str = "solve.state";
pub(super) const SLOPE: &str = "solve.slope";
pub(super) const TIME: &str = "solve.time";
pub(super) const LENGTH: &str = "solve.length";
pub(super) const LENGTHS: &str = "solve.lengths";
pub(super) const WANTED: &str = "solve.wanted";
pub(super) const COTANGENT: &str = "solve.cotangent";
pub(super) const KEEP: &str = "solve.keep";
const PREFIX: &str = "solve";
const TOLERANCE: &str = "solve.tolerance";
const LOSS: &str = "solve.loss";

/// Returns the name of the tensor of the snapshots after an interval.
pub(super) fn target(interval: usize) -> String {
    format!("solve.target.{interval}")
}

pub(super) fn slot(number: usize) -> String {
    format!("solve.slot.{number}")
}

fn gradient(parameter: &str) -> String {
    format!("solve.gradient/{parameter}")
}

pub(super) struct SolverGraphs<'a> {
    pub(super) model: &'a Model,
    pub(super) data: &'a TrainingData,
    pub(super) through: ThroughSolver,
}

impl SolverGraphs<'_> {
    /// Returns the number of samples that this process draws.
    pub(super) fn batch(&self) -> usize {
        self.data.share.samples().len()
    }

    /// Appends the inputs of all later graphs: states and times `[batch]`.
    fn point(&self, graph: &mut Graph) -> Result<Point> {
        let batch = self.batch();
        let time = graph.input(TIME, [batch])?;
        let state = graph.input(STATE, self.model.batch_shape(batch))?;
        let context = self.data.inputs.kept_context(graph, self.model, time, PREFIX)?;
        let counter = graph.counter(COUNTER)?;
        let first = self.data.share.samples().start as u32;
        let noise = Noise::of_step(self.model.recipe.train.seed, counter, first);
        Ok(Point { context, state, given: None, noise })
    }

    /// Appends an accepted step: the point at its start and the state at its end.
    fn accepted(&self, graph: &mut Graph) -> Result<(Point, Node)> {
        let start = self.point(graph)?;
        let length = graph.input(LENGTH, [self.batch()])?;
        let end = advanced(graph, self.model, &self.through.tableau(), (start, length))?;
        Ok((start, end))
    }

    fn parameters(&self) -> Result<Vec<(String, Shape)>> {
        let graph = self.model.graph()?;
        Ok(graph.parameters().iter().map(|of| (of.name.clone(), of.shape.clone())).collect())
    }

    pub(super) fn insert(&self, memory: &mut Memory) -> Result<()> {
        let batch = self.batch();
        let (intervals, field) = (self.through.window, Shape::from(self.model.batch_shape(batch)));
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
        tensors.extend(self.data.inputs.kept(batch, PREFIX));
        tensors.extend(self.parameters()?.into_iter().map(|(name, shape)| (gradient(&name), shape)));
        for (name, shape) in tensors {
            insert(memory, &name, shape)?;
        }
        let controller = self.through.solver.controller();
        memory.write(TOLERANCE, Data::F64(&[controller.rtol, controller.atol]))?;
        memory.write(KEEP, Data::F64(&[f64::from(u8::from(self.through.through_time))]))?;
        Ok(())
    }

    /// Returns the graph that draws a batch of windows and resets loss, cotangent and gradients.
    pub(super) fn draw(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let batch = drawn(&mut graph, self.model, self.data, &self.data.share.whole())?;
        let count = self.batch();
        let mut pairs = vec![(STATE.to_owned(), batch.state), (TIME.to_owned(), batch.context.time)];
        for interval in 0..self.through.window {
            pairs.push((target(interval), batch.snapshot(&mut graph, interval + 1)?));
        }
        pairs.extend(InputTables::rows_of(&batch.context, PREFIX));
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
            graph.var(tensor).mask(none).assign_to(tensor)?;
        }
        Ok(graph)
    }

    /// Returns the graph of the slope at the start and of the norms that determine the first step: of the state, of the slope, and of the
    /// slope's change over a short step, relative to it.
    pub(super) fn start(&self) -> Result<(Graph, Vec<Node>)> {
        let mut graph = Graph::new();
        let point = self.point(&mut graph)?;
        let batch = self.batch();
        let slope = self.model.moved(&mut graph, &point)?;
        let kept = graph.input(SLOPE, self.model.batch_shape(batch))?;
        graph.assign(kept, slope)?;
        let states = [point.state; 2];
        let f = graph.formula();
        let [of_state, of_slope] =
            [point.state, slope].map(|value| scaled_error(f, TOLERANCE, states, value));
        // As in `cfo_numerics::ode::first_step`: a hundredth of the time over which the state changes by its own norm.
        let least = f.constant([1], vec![1e-5]);
        let longest = f.input(LENGTHS, [self.through.window, batch]).slice(0, 0, 1).reshape([batch]);
        let usual = of_state.minimum(of_slope).at_least(least);
        let ratio = (of_state / of_slope * 0.01).mask(usual);
        let guess = (ratio + usual.affine(-1e-6, 1e-6)).minimum(longest);
        let state = (point.state + guess.reshape([batch, 1, 1, 1]) * slope).node()?;
        let time = (point.context.time + guess).node()?;
        let (guess, of_state, of_slope) = (guess.node()?, of_state.node()?, of_slope.node()?);
        let next = self.model.moved(&mut graph, &point.at(time, state))?;
        let f = graph.formula();
        let change = scaled_error(f, TOLERANCE, states, f.var(next) - slope);
        let rate = (change / guess).node()?;
        Ok((graph, vec![of_state, of_slope, rate]))
    }

    /// Returns the graph of an attempted step of every sample, and its errors. Samples whose error is within the tolerances move. The last
    /// slope is carried over if it is the first slope of the next step.
    pub(super) fn attempt(&self, precision: Precision) -> Result<(Graph, Node)> {
        let mut graph = Graph::new();
        let (batch, tableau) = (self.batch(), self.through.tableau());
        let shape = self.model.batch_shape(batch);
        let point = self.point(&mut graph)?;
        let length = graph.input(LENGTH, [batch])?;
        let carried = match tableau.first_same_as_last {
            true => Some(graph.input(SLOPE, shape)?),
            false => None,
        };
        let start = StepStart { state: point.state, time: point.context.time, length };
        let made = append_step(&mut graph, &tableau, start, carried, |graph, time, state| {
            self.model.moved(graph, &point.at(time, state))
        })?;
        let error = made.error(&mut graph, &tableau, TOLERANCE)?;
        // The largest number below 1, so that the device moves the samples that the host accepts.
        let below = match precision {
            Precision::F64 => 1.0 - f64::EPSILON / 2.0,
            _ => f64::from(1.0 - f32::EPSILON / 2.0),
        };
        let f = graph.formula();
        let accepted = f.constant([1], vec![below]).at_least(error);
        let [accepted, rejected] = [accepted, 1.0 - accepted].map(|mark| mark.reshape([batch, 1, 1, 1]));
        let carried = carried.map(|slope| (slope, made.slopes[made.slopes.len() - 1]));
        for (old, new) in [(point.state, made.end)].into_iter().chain(carried) {
            (f.var(new).mask(accepted) + f.var(old).mask(rejected)).assign_to(old)?;
        }
        Ok((graph, error))
    }

    /// Returns the graph that repeats an accepted step.
    pub(super) fn replay(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let (start, end) = self.accepted(&mut graph)?;
        graph.assign(start.state, end)?;
        Ok(graph)
    }

    /// Returns the graph of the step's backward pass: from the cotangent of the state at its end to that at its start, adding to the
    /// gradients of the parameters.
    pub(super) fn back(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let (start, end) = self.accepted(&mut graph)?;
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
            (graph.var(sum) + found).assign_to(sum)?;
        }
        Ok(graph)
    }

    /// Returns the graph that adds the mismatch of states and snapshots to the loss, and its cotangent to that of later intervals.
    pub(super) fn compare(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let shape = self.model.batch_shape(self.batch());
        let [found, wanted, later] = [STATE, WANTED, COTANGENT].map(|name| graph.input(name, shape));
        let (found, wanted, later) = (found?, wanted?, later?);
        let mismatch = self.model.mismatch(&mut graph, [found, wanted])?;
        let share = graph.scale(mismatch, 1.0 / self.through.window as f64)?;
        let own = graph.gradients(share, &[found])?[0];
        let f = graph.formula();
        let keep = f.input(KEEP, Shape::scalar());
        (f.var(later).mask(keep) + own).assign_to(later)?;
        let loss = f.input(LOSS, Shape::scalar());
        (loss + share).assign_to(loss)?;
        Ok(graph)
    }

    /// Returns the graph of the optimiser's step with the accumulated gradients, and the loss.
    pub(super) fn update(&self) -> Result<(Graph, Node)> {
        let mut graph = Graph::new();
        let point = self.point(&mut graph)?;
        // This defines the parameters; none of its operations run.
        self.model.moved(&mut graph, &point)?;
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

/// Inserts a tensor of zeros into memory unless it exists.
pub(super) fn insert(memory: &mut Memory, name: &str, shape: Shape) -> Result<()> {
    if !memory.contains(name) {
        let zeros = vec![0.0; shape.len()];
        memory.insert_as(Role::Scratch, name, Element::Real, shape, Data::F32(&zeros))?;
    }
    Ok(())
}
