//! What is trained for: the graph of one whole training step, from drawing the batch to Adam.

use cfo_data::{Split, thin};
use cfo_engine::{Data, Element, Graph, Memory, Node, PathData, PathSample, PathTensors};

use crate::checkpoint::fingerprint;
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::recipe::ObjectiveConfig;
use crate::trajectories::TrajectorySet;

/// Stream of the batch sampler under the run's seed.
const BATCHES: u32 = 1;
/// The tensor that counts optimiser steps.
const COUNTER: &str = "train.step";

/// The training trajectories as the sampler wants them: normalised, thinned, one after another.
#[derive(Clone, Debug)]
pub struct TrainingData {
    values: Vec<f32>,
    times: Vec<f64>,
    offsets: Vec<u32>,
    conditions: Vec<f32>,
}

impl TrainingData {
    /// Scales and thins the training part of a set.
    ///
    /// # Errors
    /// If a trajectory is too short, or its grid does not suit the objective.
    pub fn new(model: &Model, set: &TrajectorySet) -> Result<Self> {
        let size = model.shape().len();
        let (config, seed) = (&model.recipe.data, model.recipe.train.seed);
        let mut data =
            Self { values: Vec::new(), times: Vec::new(), offsets: vec![0], conditions: Vec::new() };
        let mut step: Option<f64> = None;
        for (i, trajectory) in set.part(Split::Train) {
            let first = usize::from(config.drop_first);
            let frames = trajectory.times.len().saturating_sub(first);
            if frames < 2 {
                return Err(CfoError::BadData {
                    problem: format!("trajectory {i} has {frames} snapshots; training needs at least 2"),
                    hint: "leave it out, or set `data.drop_first = false`".into(),
                });
            }
            if model.is_autoregressive() {
                check_uniform(i, &trajectory.times[first..], &mut step, config.keep_rate)?;
            }
            for kept in thin::kept(frames, config.keep_rate, seed, i) {
                let frame = first + kept;
                data.times.push(model.scaling.time(trajectory.times[frame]));
                data.values
                    .extend(model.scaling.normalize(&trajectory.values[frame * size..(frame + 1) * size]));
            }
            data.offsets.push(data.times.len() as u32);
            for (&value, [mean, deviation]) in trajectory.parameters.iter().zip(&model.scaling.conditions) {
                data.conditions.push(((value - mean) / deviation) as f32);
            }
        }
        if data.values.iter().any(|value| !value.is_finite()) {
            return Err(CfoError::BadData {
                problem: "the training data hold a value that is not finite".into(),
                hint: "`cfo inspect` says where".into(),
            });
        }
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

    /// Hash of everything in it, to notice that a run is resumed on other data.
    pub fn fingerprint(&self) -> String {
        let values: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let times: Vec<u8> = self.times.iter().flat_map(|time| time.to_le_bytes()).collect();
        let offsets: Vec<u8> = self.offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        fingerprint([values.as_slice(), &times, &offsets].into_iter())
    }

    /// Puts the data into memory under the names that [`training_step`] reads.
    ///
    /// # Errors
    /// If memory holds other data under these names.
    pub fn upload(&self, model: &Model, memory: &mut Memory) -> Result<()> {
        let [_, height, width, channels] = model.batch_shape(1);
        memory.insert_real("data.values", [self.rows(), height, width, channels], &self.values)?;
        memory.insert("data.times", Element::Double, [self.rows()], Data::F64(&self.times))?;
        memory.insert("data.offsets", Element::Index, [self.offsets.len()], Data::Index(&self.offsets))?;
        if model.setting.conditions > 0 {
            let shape = [self.trajectories(), model.setting.conditions];
            memory.insert_real("data.conditions", shape, &self.conditions)?;
        }
        Ok(())
    }
}

/// An autoregressive model needs one step size throughout.
fn check_uniform(index: usize, times: &[f64], step: &mut Option<f64>, keep_rate: f64) -> Result<()> {
    let expected = *step.get_or_insert(times[1] - times[0]);
    let uneven = times.windows(2).find(|pair| ((pair[1] - pair[0]) / expected - 1.0).abs() > 1e-3);
    match uneven {
        None if keep_rate >= 1.0 => Ok(()),
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

/// The graph that draws a batch, and the batch.
///
/// # Errors
/// If the path is not valid.
pub fn sampler(model: &Model, data: &TrainingData) -> Result<(Graph, PathSample)> {
    let mut graph = Graph::new();
    let train = &model.recipe.train;
    let [_, height, width, channels] = model.batch_shape(1);
    let tensors = PathTensors {
        values: graph.input("data.values", [data.rows(), height, width, channels])?,
        times: graph.tensor("data.times", Element::Double, [data.rows()])?,
        offsets: graph.tensor("data.offsets", Element::Index, [data.trajectories() + 1])?,
    };
    let counter = graph.counter(COUNTER)?;
    let drawn = match model.recipe.objective {
        ObjectiveConfig::FlowMatching => {
            PathData::Flow { path: model.recipe.path.path()?, noise: model.recipe.path.schedule() }
        }
        ObjectiveConfig::Autoregressive { .. } => PathData::Pair,
    };
    let sample = graph.sample_path(tensors, drawn, train.batch, (train.seed, BATCHES), counter)?;
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
    let channels = model.shape().channels;
    let conditions = match model.setting.conditions {
        0 => None,
        count => {
            let table = graph.input("data.conditions", [data.trajectories(), count])?;
            Some(graph.gather(table, sample.trajectory)?)
        }
    };
    let output = model.velocity(&mut graph, [sample.time, sample.state], conditions)?;
    let target = match model.recipe.objective {
        ObjectiveConfig::Autoregressive { residual: true } => {
            let change = graph.constant([channels], model.scaling.change.clone())?;
            let difference = graph.subtract(sample.target, sample.state)?;
            graph.divide(difference, change)?
        }
        _ => sample.target,
    };
    let loss = graph.mean_squared_error(output, target)?;
    let total = graph.input("train.loss", cfo_engine::Shape::scalar())?;
    let sum = graph.add(total, loss)?;
    graph.assign(total, sum)?;
    graph.adam(loss, counter, train.adam()?)?;
    Ok((graph, loss))
}
