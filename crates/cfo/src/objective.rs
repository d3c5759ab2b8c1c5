//! What is trained for: the graph of one whole training step, from drawing the batch to Adam.

use std::ops::Range;

use cfo_engine::{Data, Draw, Element, Graph, Memory, Node, PathData, PathSample, PathTensors};
use rayon::prelude::*;

use crate::checkpoint::fingerprint;
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::recipe::ObjectiveConfig;
use crate::selection::Selection;
use crate::trajectories::TrajectorySet;

/// Stream of the batch sampler under the run's seed.
const BATCHES: u32 = 1;
/// The tensor that counts optimiser steps.
const COUNTER: &str = "train.step";

/// The training trajectories as the sampler wants them: normalised, thinned, one after another. Their values are all
/// here, or stay where they are and are gathered batch by batch.
#[derive(Clone, Debug)]
pub struct TrainingData {
    /// `None` if they stay where they are.
    values: Option<Vec<f32>>,
    /// Which snapshot of which trajectory each row is.
    sources: Vec<(u32, u32)>,
    times: Vec<f64>,
    offsets: Vec<u32>,
    conditions: Vec<f32>,
}

impl TrainingData {
    /// Scales and thins the training part of a set. The values are all read unless the recipe or the set says that they
    /// are streamed.
    ///
    /// # Errors
    /// If a trajectory is too short, or its grid does not suit the objective.
    pub fn new(model: &Model, set: &TrajectorySet) -> Result<Self> {
        let streamed = model.recipe.data.stream.unwrap_or(false) || set.is_in_file();
        if streamed { Self::streamed(model, set) } else { Self::resident(model, set) }
    }

    fn resident(model: &Model, set: &TrajectorySet) -> Result<Self> {
        let mut data = Self::streamed(model, set)?;
        let mut values = vec![0.0; data.rows() * model.shape().len()];
        for trajectory in 0..data.trajectories() {
            data.read(trajectory, model, set, &mut values)?;
        }
        if values.iter().any(|value| !value.is_finite()) {
            return Err(CfoError::BadData {
                problem: "the training data hold a value that is not finite".into(),
                hint: "`cfo inspect` says where".into(),
            });
        }
        data.values = Some(values);
        Ok(data)
    }

    /// The same with values that stay in the set.
    ///
    /// # Errors
    /// As [`TrainingData::new`].
    pub fn streamed(model: &Model, set: &TrajectorySet) -> Result<Self> {
        let mut data = Self {
            values: None,
            sources: Vec::new(),
            times: Vec::new(),
            offsets: vec![0],
            conditions: Vec::new(),
        };
        let mut steps = Vec::new();
        for selection in Selection::of_set(&model.recipe, set)? {
            let (i, trajectory) = (selection.trajectory, &set.trajectories[selection.trajectory]);
            if model.is_autoregressive() {
                let times = &trajectory.times[selection.first..];
                steps.push((i, uniform_step(i, times, model.recipe.data.keep_rate)?));
            }
            for &frame in &selection.frames {
                data.times.push(model.scaling.time(trajectory.times[frame]));
                data.sources.push((i as u32, frame as u32));
            }
            data.offsets.push(data.times.len() as u32);
            for (&value, [mean, deviation]) in trajectory.parameters.iter().zip(&model.scaling.conditions) {
                data.conditions.push(((value - mean) / deviation) as f32);
            }
        }
        check_steps(&steps, set, model.recipe.data.condition)?;
        Ok(data)
    }

    /// Snapshots of all trajectories.
    pub fn rows(&self) -> usize {
        self.times.len()
    }

    /// Trajectories.
    pub fn trajectories(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Whether batches are gathered one by one.
    pub fn is_streamed(&self) -> bool {
        self.values.is_none()
    }

    /// The normalised snapshots of some rows, which belong to one trajectory, one after another.
    fn gather(&self, rows: Range<usize>, model: &Model, set: &TrajectorySet, to: &mut [f32]) -> Result<()> {
        let Some(&(trajectory, _)) = self.sources.get(rows.start) else { return Ok(()) };
        let frames = |rows: Range<usize>| -> Vec<usize> {
            self.sources[rows].iter().map(|&(_, frame)| frame as usize).collect()
        };
        let trajectory = trajectory as usize;
        let Some(denoiser) = &model.denoiser else {
            model.scaling.normalize_into(&set.frames(trajectory, &frames(rows))?, to);
            return Ok(());
        };
        // What one snapshot is without its noise depends on all the others of its trajectory.
        let after = self.offsets.partition_point(|&offset| offset as usize <= rows.start);
        let (first, last) = (self.offsets[after - 1] as usize, self.offsets[after] as usize);
        let whole = Selection { trajectory, first: 0, frames: frames(first..last) };
        let snapshots = whole.snapshots(set, Some(denoiser))?;
        let size = model.shape().len();
        model.scaling.normalize_into(&snapshots[(rows.start - first) * size..(rows.end - first) * size], to);
        Ok(())
    }

    /// All rows of a trajectory into their place among all.
    fn read(&self, trajectory: usize, model: &Model, set: &TrajectorySet, values: &mut [f32]) -> Result<()> {
        let size = model.shape().len();
        let rows = self.offsets[trajectory] as usize..self.offsets[trajectory + 1] as usize;
        let place = &mut values[rows.start * size..rows.end * size];
        self.gather(rows, model, set, place)
    }

    /// Fills a page with the snapshots that the batch of a step is made of.
    ///
    /// # Errors
    /// If they cannot be read.
    pub(crate) fn fill(&self, step: u32, model: &Model, set: &TrajectorySet, page: &mut [f32]) -> Result<()> {
        let (draw, size) = (draw(model)?, model.shape().len());
        let window = size * draw.data.window();
        page.par_chunks_mut(window).enumerate().try_for_each(|(sample, place)| {
            let rows = draw.rows(sample, step, &self.times, &self.offsets);
            let filled = &mut place[..rows.len() * size];
            self.gather(rows, model, set, filled)
        })
    }

    /// Hash of everything in it, to notice that a run is resumed on other data.
    ///
    /// # Errors
    /// If the values cannot be read.
    pub fn fingerprint(&self, model: &Model, set: &TrajectorySet) -> Result<String> {
        let size = model.shape().len();
        let mut failed = None;
        let values = (0..self.trajectories()).map(|trajectory| {
            let rows = self.offsets[trajectory] as usize..self.offsets[trajectory + 1] as usize;
            let mut read = vec![0.0; rows.len() * size];
            match &self.values {
                Some(values) => read.copy_from_slice(&values[rows.start * size..rows.end * size]),
                None => failed = self.gather(rows, model, set, &mut read).err().or(failed.take()),
            }
            read.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>()
        });
        let times = self.times.iter().flat_map(|time| time.to_le_bytes()).collect();
        let offsets = self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let found = fingerprint(values.chain([times, offsets]));
        failed.map_or(Ok(found), Err)
    }

    /// Puts the data into memory under the names that [`training_step`] reads; of streamed values only the room for a
    /// batch.
    ///
    /// # Errors
    /// If memory holds other data under these names.
    pub fn upload(&self, model: &Model, memory: &mut Memory) -> Result<()> {
        let [_, height, width, channels] = model.batch_shape(1);
        match &self.values {
            Some(values) => {
                memory.insert_real("data.values", [self.rows(), height, width, channels], values)?;
            }
            None => {
                let shape = self.values_shape(model)?;
                memory.insert_real("data.values", shape, &vec![0.0; shape.iter().product()])?;
            }
        }
        memory.insert("data.times", Element::Double, [self.rows()], Data::F64(&self.times))?;
        memory.insert("data.offsets", Element::Index, [self.offsets.len()], Data::Index(&self.offsets))?;
        if model.setting.conditions > 0 {
            let shape = [self.trajectories(), model.setting.conditions];
            memory.insert_real("data.conditions", shape, &self.conditions)?;
        }
        Ok(())
    }

    /// Shape of the values that the sampler reads: all snapshots, or those of a batch.
    fn values_shape(&self, model: &Model) -> Result<[usize; 4]> {
        let rows = match self.is_streamed() {
            true => model.recipe.train.batch * draw(model)?.data.window(),
            false => self.rows(),
        };
        Ok(model.batch_shape(rows))
    }
}

/// How a model's batches are drawn.
fn draw(model: &Model) -> Result<Draw> {
    let data = match model.recipe.objective {
        ObjectiveConfig::FlowMatching => {
            PathData::Flow { path: model.recipe.path.path()?, noise: model.recipe.path.schedule() }
        }
        ObjectiveConfig::Autoregressive { .. } => PathData::Pair,
    };
    Ok(Draw { data, seed: model.recipe.train.seed, stream: BATCHES, first: 0 })
}

/// Steps that differ by less than this share are equal: times may be rounded.
const EQUAL: f64 = 1e-3;

/// The step of a trajectory for an autoregressive model, which needs all of its steps to be equal.
fn uniform_step(index: usize, times: &[f64], keep_rate: f64) -> Result<f64> {
    let expected = times[1] - times[0];
    let uneven = times.windows(2).find(|pair| ((pair[1] - pair[0]) / expected - 1.0).abs() > EQUAL);
    match uneven {
        None if keep_rate >= 1.0 => Ok(expected),
        None => Err(CfoError::InvalidKey {
            key: "data.keep_rate".into(),
            problem: format!("{keep_rate} leaves irregular times, and `autoregressive` needs a uniform grid"),
        }),
        Some(pair) => Err(CfoError::BadData {
            problem: format!(
                "trajectory {index} steps by {} after time {}, but `autoregressive` needs steps of {expected} throughout",
                pair[1] - pair[0],
                pair[0]
            ),
            hint: "use `objective.kind = \"flow-matching\"`, which takes irregular times".into(),
        }),
    }
}

/// An autoregressive model must know by how much it steps: by the same in all trajectories, or it is told, by a parameter
/// that is the step.
fn check_steps(steps: &[(usize, f64)], set: &TrajectorySet, told: bool) -> Result<()> {
    let Some(&(first, expected)) = steps.first() else { return Ok(()) };
    let same = |found: f64, expected: f64| (found / expected - 1.0).abs() <= EQUAL;
    let Some(&(index, step)) = steps.iter().find(|(_, step)| !same(*step, expected)) else { return Ok(()) };
    let is_step = |p: usize| steps.iter().all(|&(i, step)| same(set.trajectories[i].parameters[p], step));
    if told && (0..set.description.parameter_names.len()).any(is_step) {
        return Ok(());
    }
    Err(CfoError::BadData {
        problem: format!(
            "trajectory {first} steps by {expected} and trajectory {index} by {step}, which `autoregressive` must be told"
        ),
        hint: "store each trajectory's step among the `/parameters` and set `data.condition = true`, or use `objective.kind = \"flow-matching\"`".into(),
    })
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
    let loss = graph.mean_squared_error(output, target)?;
    let total = graph.input("train.loss", cfo_engine::Shape::scalar())?;
    let sum = graph.add(total, loss)?;
    graph.assign(total, sum)?;
    let gradients = graph.parameter_gradients(loss)?;
    graph.adam_step(&gradients, counter, train.adam()?)?;
    Ok((graph, loss))
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
