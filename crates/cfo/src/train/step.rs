//! The graph of a training step: sampling, forward pass, loss, backward pass, sum over ranks, clipping, Adam, EMA.

use cfo_data::FieldShape;
use cfo_engine::{BatchDraw, Element, Graph, Node, PathData, PathSample, PathTensors, Shape};
use cfo_numerics::{NoiseSchedule, Path, Spline};

use super::divergence::GRADIENT;
use super::gradients::Gradients;
use super::share::Samples;
use super::training_data::TrainingData;
use crate::error::Result;
use crate::model::Model;
use crate::objective::{self, Batch, Noise};

/// Random stream of the batch sampler, with the run's seed.
const BATCHES: u32 = 1;
pub(super) const COUNTER: &str = "train.step";
/// The tensor that counts the optimiser steps of fine-tuning.
const TUNING_COUNTER: &str = "finetune.step";
/// Largest number of values in a message to other ranks: it keeps the network busy and can be sent during the backward pass.
const LARGEST: usize = 1 << 20;
/// Number of messages for the gradients of a small network on the CPU: all but the last are sent during the backward pass.
const MESSAGES: usize = 4;
/// Smallest number of values in a message, because of its latency.
const LEAST: usize = 1 << 15;

/// Returns how this process's part of a model's batches is drawn.
pub(crate) fn draw(model: &Model, data: &TrainingData) -> BatchDraw {
    let first = data.share.samples().start as u32;
    let data = model.objective().draw().data(data.longest());
    BatchDraw { data, seed: model.recipe.train.seed, stream: BATCHES, first }
}

/// Returns the graph that samples this process's part of a batch, and that part.
///
/// # Errors
/// If the path is not valid.
pub fn sampler(model: &Model, data: &TrainingData) -> Result<(Graph, PathSample)> {
    let mut graph = Graph::new();
    let sample = sampled(&mut graph, model, data, &data.share.whole())?;
    Ok((graph, sample))
}

fn sampled(graph: &mut Graph, model: &Model, data: &TrainingData, samples: &Samples) -> Result<PathSample> {
    let (batch, whole) = (samples.range.len(), data.share.samples());
    let draw = BatchDraw { first: samples.range.start as u32, ..draw(model, data) };
    let values = graph.input("data.values", data.values_shape(model))?;
    let times = graph.tensor("data.times", Element::Double, [data.rows()])?;
    let offsets = graph.tensor("data.offsets", Element::Index, [data.trajectories() + 1])?;
    let tensors = PathTensors { values, times, offsets };
    let counter = graph.counter(COUNTER)?;
    if !data.is_streamed() {
        return Ok(graph.sample_draw(tensors, draw, batch, counter)?);
    }
    // The page holds the snapshots of all samples of this process.
    let window = draw.data.window();
    let values = match whole == samples.range {
        true => values,
        false => graph.slice(values, 0, (samples.range.start - whole.start) * window, batch * window)?,
    };
    Ok(graph.sample_staged(PathTensors { values, ..tensors }, draw, batch, counter)?)
}

/// Appends the drawing of some samples for an objective.
pub(super) fn drawn(
    graph: &mut Graph,
    model: &Model,
    data: &TrainingData,
    samples: &Samples,
) -> Result<Batch> {
    let sample = sampled(graph, model, data, samples)?;
    let counter = graph.counter(COUNTER)?;
    let context = data.inputs.context(graph, model, [sample.time, sample.trajectory])?;
    let trust = trust(model, data, graph, samples)?;
    let PathSample { state, target, window, .. } = sample;
    // Whole trajectories have one axis of points, whatever their grid.
    let target = match model.objective().draw() {
        objective::Draw::Trajectory { frames, .. } => {
            let FieldShape { grid, channels } = model.setting.field;
            graph.reshape(target, [samples.range.len(), frames, grid.points(), channels])?
        }
        _ => target,
    };
    let noise = Noise::of_step(model.recipe.train.seed, counter, samples.range.start as u32);
    Ok(Batch { context, state, target, trust, window, noise, weight: samples.weight })
}

/// Returns the graph of one training step and the loss over the whole batch. The tensor `train.loss` holds the sum of losses over steps.
pub(super) fn step_graph(model: &Model, data: &TrainingData) -> Result<(Graph, Node)> {
    let mut graph = Graph::new();
    let mut parts = Vec::new();
    for samples in &data.share.parts {
        let batch = drawn(&mut graph, model, data, samples)?;
        let (loss, mut values) = Gradients::of(model).append(&mut graph, model, &batch)?;
        values.push(loss);
        parts.push(values);
    }
    let mut gradients = summed(&mut graph, data, parts)?;
    let loss = gradients.pop().expect("the loss was added last");
    learn(model, &mut graph, loss, &gradients)?;
    Ok((graph, loss))
}

/// Appends the updates of a step: the sum of losses, the weights, the counter, the norm of clipped gradients.
pub(super) fn learn(model: &Model, graph: &mut Graph, loss: Node, gradients: &[Node]) -> Result<()> {
    let total = graph.input("train.loss", Shape::scalar())?;
    (graph.var(total) + loss).assign_to(total)?;
    let (counter, adam) = (graph.counter(COUNTER)?, model.recipe.train.adam()?);
    let norm = match model.tuning {
        false => graph.adam_step(gradients, counter, adam)?,
        true => {
            // The count of batches continues; the optimiser and its schedule start anew.
            graph.advance(counter)?;
            let own = graph.counter(TUNING_COUNTER)?;
            graph.adam_step(gradients, own, adam)?
        }
    };
    if let Some(norm) = norm {
        let latest = graph.input(GRADIENT, Shape::scalar())?;
        graph.assign(latest, norm)?;
    }
    Ok(())
}

/// Appends the sums of each part's values over all parts of all ranks. Values that are computed one after another share a message,
/// which is sent while later values are still computed.
pub(super) fn summed(graph: &mut Graph, data: &TrainingData, mut parts: Vec<Vec<Node>>) -> Result<Vec<Node>> {
    if !data.share.summed && data.share.shards.is_none() {
        return Ok(parts.swap_remove(0));
    }
    let mut order: Vec<usize> = (0..parts[0].len()).collect();
    order.sort_by_key(|&value| parts.iter().map(|part| part[value].index()).max());
    let mut sums = parts[0].clone();
    for bucket in buckets(graph, &parts[0], &order, data.share.launched) {
        let chosen = |part: &Vec<Node>| bucket.iter().map(|&value| part[value]).collect::<Vec<Node>>();
        let reduced = match data.share.shards {
            None => graph.all_reduce_each(&chosen(&parts[0]))?,
            Some(shards) => graph.all_reduce_shards(shards, &parts.iter().map(chosen).collect::<Vec<_>>())?,
        };
        bucket.iter().zip(reduced).for_each(|(&value, sum)| sums[value] = sum);
    }
    Ok(sums)
}

/// Divides values, in the given order, into messages. On a GPU, messages are as large as possible because each launch is expensive.
fn buckets(graph: &Graph, values: &[Node], order: &[usize], launched: bool) -> Vec<Vec<usize>> {
    let count = |value: usize| graph.shape(values[value]).len();
    let total: usize = order.iter().map(|&value| count(value)).sum();
    let room = if launched { LARGEST } else { total.div_ceil(MESSAGES).clamp(LEAST, LARGEST) };
    let (mut all, mut held): (Vec<Vec<usize>>, usize) = (Vec::new(), 0);
    for &value in order {
        if all.is_empty() || held + count(value) > room {
            held = 0;
            all.push(Vec::new());
        }
        held += count(value);
        all.last_mut().expect("one was begun").push(value);
    }
    all
}

/// Appends the weights of errors at the times of the samples, if noise was removed or `path.trust` is set. A second sampler with the same
/// random numbers reads them.
fn trust(model: &Model, data: &TrainingData, graph: &mut Graph, samples: &Samples) -> Result<Option<Node>> {
    if data.trust.is_empty() {
        return Ok(None);
    }
    let tensors = PathTensors {
        values: graph.input("data.trust", [data.rows(), 1, 1, model.setting.field.channels])?,
        times: graph.tensor("data.times", Element::Double, [data.rows()])?,
        offsets: graph.tensor("data.offsets", Element::Index, [data.trajectories() + 1])?,
    };
    let draw = draw(model, data);
    let PathData::Flow { by, .. } = draw.data else { return Ok(None) };
    let line =
        PathData::Flow { by, path: Path { spline: Spline::Linear, stencil: 2 }, noise: NoiseSchedule::NONE };
    let draw = BatchDraw { data: line, first: samples.range.start as u32, ..draw };
    let counter = graph.counter(COUNTER)?;
    Ok(Some(graph.sample_draw(tensors, draw, samples.range.len(), counter)?.state))
}

#[cfg(test)]
mod tests {
    use cfo_engine::Initial;

    use super::*;

    #[test]
    fn small_networks_sum_in_several_messages_where_they_are_cheap() {
        let messages = |counts: &[usize], launched: bool| -> Vec<Vec<usize>> {
            let mut graph = Graph::new();
            let values: Vec<Node> = (0..counts.len())
                .map(|i| graph.parameter(&format!("w{i}"), [counts[i]], Initial::ZEROS).unwrap())
                .collect();
            buckets(&graph, &values, &(0..counts.len()).rev().collect::<Vec<_>>(), launched)
        };
        // As many numbers as the U-Net 1D has parameters: some leave before the last are there.
        let network = [60_000; 10];
        let cut = messages(&network, false);
        assert!((MESSAGES..=2 * MESSAGES).contains(&cut.len()), "{cut:?}");
        assert_eq!(cut.concat(), (0..10).rev().collect::<Vec<_>>());
        assert_eq!(messages(&network, true).len(), 1);
        assert_eq!(messages(&[100, 20_000, 7], false).len(), 1);
        assert_eq!(messages(&[LARGEST, 1, LARGEST, 5], true), [vec![3], vec![2], vec![1], vec![0]]);
    }
}
