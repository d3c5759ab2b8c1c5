//! What is trained for: the graph of one whole training step, from drawing the batch to Adam.

use cfo_engine::{Draw, Element, Graph, Node, PathData, PathSample, PathTensors};
use cfo_numerics::{NoiseSchedule, Path, Spline};

use crate::error::Result;
use crate::model::Model;
use crate::recipe::ObjectiveConfig;
use crate::training_data::TrainingData;

/// Stream of the batch sampler under the run's seed.
const BATCHES: u32 = 1;
/// The tensor that counts optimiser steps.
const COUNTER: &str = "train.step";

/// How a model's batches are drawn.
pub(crate) fn draw(model: &Model) -> Result<Draw> {
    let data = match model.recipe.objective {
        ObjectiveConfig::FlowMatching => {
            PathData::Flow { path: model.recipe.path.path()?, noise: model.recipe.path.schedule() }
        }
        ObjectiveConfig::Autoregressive { .. } => PathData::Pair,
    };
    Ok(Draw { data, seed: model.recipe.train.seed, stream: BATCHES, first: 0 })
}

/// The graph that draws a batch, and the batch.
///
/// # Errors
/// If the path is not valid.
pub fn sampler(model: &Model, data: &TrainingData) -> Result<(Graph, PathSample)> {
    let mut graph = Graph::new();
    let (batch, draw) = (model.recipe.train.batch, draw(model)?);
    let tensors = PathTensors {
        values: graph.input("data.values", data.values_shape(model)?)?,
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

/// The graph of one training step: draw the batch, forward, loss, backward, clip, Adam, EMA. Returns the loss; its
/// sum over steps is kept in the tensor `train.loss`.
///
/// # Errors
/// If the network cannot take the data's grid.
pub fn training_step(model: &Model, data: &TrainingData) -> Result<(Graph, Node)> {
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
    let output = model.network(&mut graph, [sample.time, sample.state], conditions)?;
    let target = target(model, &mut graph, &sample)?;
    let [output, target] = balance(model, &mut graph, &sample, [output, target])?;
    let [output, target] = weigh(model, data, &mut graph, [output, target])?;
    let loss = graph.mean_squared_error(output, target)?;
    let total = graph.input("train.loss", cfo_engine::Shape::scalar())?;
    let sum = graph.add(total, loss)?;
    graph.assign(total, sum)?;
    let gradients = graph.parameter_gradients(loss)?;
    graph.adam_step(&gradients, counter, train.adam()?)?;
    Ok((graph, loss))
}

/// Multiplies output and target by what an error counts where noise was taken off: the less is known of the velocity there, the
/// less. A second sampler of the same random numbers reads it off at the times of the batch.
fn weigh(
    model: &Model,
    data: &TrainingData,
    graph: &mut Graph,
    [output, target]: [Node; 2],
) -> Result<[Node; 2]> {
    if data.trust.is_empty() {
        return Ok([output, target]);
    }
    let tensors = PathTensors {
        values: graph.input("data.trust", [data.rows(), 1, 1, model.shape().channels])?,
        times: graph.tensor("data.times", Element::Double, [data.rows()])?,
        offsets: graph.tensor("data.offsets", Element::Index, [data.trajectories() + 1])?,
    };
    let line =
        PathData::Flow { path: Path { spline: Spline::Linear, stencil: 2 }, noise: NoiseSchedule::NONE };
    let Draw { seed, stream, .. } = draw(model)?;
    let counter = graph.counter(COUNTER)?;
    let trust = graph.sample_path(tensors, line, model.recipe.train.batch, (seed, stream), counter)?.state;
    Ok([graph.multiply(output, trust)?, graph.multiply(target, trust)?])
}

/// What the network's output is compared with: the velocity or the change in units of its root mean square, so that a network
/// whose output is 0 has a loss of 1; or the next state.
fn target(model: &Model, graph: &mut Graph, sample: &PathSample) -> Result<Node> {
    let scaled = match model.recipe.objective {
        ObjectiveConfig::FlowMatching => {
            model.velocity_scale(graph, sample.time)?.map(|scale| (sample.target, scale))
        }
        ObjectiveConfig::Autoregressive { residual: true } => {
            let change = graph.subtract(sample.target, sample.state)?;
            let scale = &model.scaling.change;
            Some((change, graph.constant([scale.len()], scale.clone())?))
        }
        ObjectiveConfig::Autoregressive { residual: false } => None,
    };
    match scaled {
        Some((target, scale)) => Ok(graph.divide(target, scale)?),
        None => Ok(sample.target),
    }
}

/// Multiplies output and target by what an error at their time counts, where the recipe balances times: the speed to the power
/// of one less the balance, in units in which a network whose output is 0 has a loss of 1.
fn balance(
    model: &Model,
    graph: &mut Graph,
    sample: &PathSample,
    [output, target]: [Node; 2],
) -> Result<[Node; 2]> {
    let (Some(profile), Some(balance)) = (&model.scaling.profile, model.recipe.path.time_balance) else {
        return Ok([output, target]);
    };
    let power = 1.0 - balance;
    let speed = profile.at(graph, sample.time)?;
    let logarithm = graph.log(speed)?;
    let scaled = graph.scale(logarithm, power)?;
    let weight = graph.exp(scaled)?;
    let mean = profile.power_mean(power);
    let unit = graph.constant([mean.len()], mean)?;
    let weight = graph.divide(weight, unit)?;
    Ok([graph.multiply(output, weight)?, graph.multiply(target, weight)?])
}
