//! The graph of one whole training step: draw the batch, forward, loss, backward, clip, Adam, EMA.

use cfo_engine::{Draw, Element, Graph, Node, PathData, PathSample, PathTensors, Shape};
use cfo_numerics::{NoiseSchedule, Path, Spline};

use crate::error::Result;
use crate::model::Model;
use crate::objective::{self, Batch, Noise};
use crate::training_data::TrainingData;

/// Stream of the batch sampler under the run's seed.
const BATCHES: u32 = 1;
/// The tensor that counts optimiser steps.
pub(super) const COUNTER: &str = "train.step";
/// The tensor that counts the optimiser steps of fine-tuning.
const TUNING_COUNTER: &str = "finetune.step";

/// How a model's batches are drawn.
pub(crate) fn draw(model: &Model, data: &TrainingData) -> Draw {
    let data = model.objective().draw().data(data.longest());
    Draw { data, seed: model.recipe.train.seed, stream: BATCHES, first: 0 }
}

/// The graph that draws a batch, and the batch.
///
/// # Errors
/// If the path is not valid.
pub fn sampler(model: &Model, data: &TrainingData) -> Result<(Graph, PathSample)> {
    let mut graph = Graph::new();
    let (batch, draw) = (model.recipe.train.batch, draw(model, data));
    let tensors = PathTensors {
        values: graph.input("data.values", data.values_shape(model))?,
        times: graph.tensor("data.times", Element::Double, [data.rows()])?,
        offsets: graph.tensor("data.offsets", Element::Index, [data.trajectories() + 1])?,
    };
    let counter = graph.counter(COUNTER)?;
    let sample = match data.is_streamed() {
        true => graph.sample_staged(tensors, draw, batch, counter)?,
        false => graph.sample_path(tensors, draw.data, batch, (draw.seed, draw.stream), counter)?,
    };
    Ok((graph, sample))
}

/// The graph that draws a batch for an objective, and the batch.
///
/// # Errors
/// If the path is not valid.
pub(super) fn drawn(model: &Model, data: &TrainingData) -> Result<(Graph, Batch)> {
    let (mut graph, sample) = sampler(model, data)?;
    let train = &model.recipe.train;
    let counter = graph.counter(COUNTER)?;
    let conditions = match model.setting.conditions {
        0 => None,
        count => {
            let table = graph.input("data.conditions", [data.trajectories(), count])?;
            Some(graph.gather(table, sample.trajectory)?)
        }
    };
    let trust = trust(model, data, &mut graph)?;
    let PathSample { time, state, target, window, .. } = sample;
    // What is drawn whole is a trajectory of points, whatever their grid.
    let target = match model.objective().draw() {
        objective::Draw::Trajectory { frames, .. } => {
            let [batch, height, width, channels] = model.batch_shape(train.batch);
            graph.reshape(target, [batch, frames, height * width, channels])?
        }
        _ => target,
    };
    let noise = Noise::of_step(train.seed, counter, draw(model, data).first);
    Ok((graph, Batch { time, state, target, conditions, trust, window, noise }))
}

/// The graph of one training step. Returns the loss; its sum over steps is kept in the tensor `train.loss`.
///
/// # Errors
/// If the network cannot take the data's grid.
pub fn training_step(model: &Model, data: &TrainingData) -> Result<(Graph, Node)> {
    let (mut graph, batch) = drawn(model, data)?;
    let (loss, gradients) = model.objective().loss_and_gradients(&mut graph, model, &batch)?;
    learn(model, &mut graph, loss, &gradients)?;
    Ok((graph, loss))
}

/// Appends what a loss and its gradients change: the sum of losses, the weights, the counter.
pub(super) fn learn(model: &Model, graph: &mut Graph, loss: Node, gradients: &[Node]) -> Result<()> {
    let total = graph.input("train.loss", Shape::scalar())?;
    let sum = graph.add(total, loss)?;
    graph.assign(total, sum)?;
    let (counter, adam) = (graph.counter(COUNTER)?, model.recipe.train.adam()?);
    match model.tuning {
        false => graph.adam_step(gradients, counter, adam)?,
        true => {
            // Batches go on being counted; the optimiser and its schedule begin anew.
            graph.advance(counter)?;
            let own = graph.counter(TUNING_COUNTER)?;
            graph.adam_step(gradients, own, adam)?
        }
    };
    Ok(())
}

/// What an error counts: channel by channel in a space of the network's own, and at the times of the batch where noise was taken off, read by a second sampler of the same random numbers.
fn trust(model: &Model, data: &TrainingData, graph: &mut Graph) -> Result<Option<Node>> {
    let weights = match model.channel_weights() {
        None => None,
        Some(weights) => Some(graph.constant([1, 1, 1, weights.len()], weights)?),
    };
    if data.trust.is_empty() {
        return Ok(weights);
    }
    let tensors = PathTensors {
        values: graph.input("data.trust", [data.rows(), 1, 1, model.setting.field[2]])?,
        times: graph.tensor("data.times", Element::Double, [data.rows()])?,
        offsets: graph.tensor("data.offsets", Element::Index, [data.trajectories() + 1])?,
    };
    let line =
        PathData::Flow { path: Path { spline: Spline::Linear, stencil: 2 }, noise: NoiseSchedule::NONE };
    let Draw { seed, stream, .. } = draw(model, data);
    let counter = graph.counter(COUNTER)?;
    let trust = graph.sample_path(tensors, line, model.recipe.train.batch, (seed, stream), counter)?.state;
    Ok(Some(match weights {
        Some(weights) => graph.multiply(trust, weights)?,
        None => trust,
    }))
}
