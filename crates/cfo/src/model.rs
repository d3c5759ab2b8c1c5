//! A model: the recipe, what it must know of the data, and the scaling between the user's units and the network's.

use cfo_data::{Description, FieldShape, Normalization, Split, Statistics, Trajectory};
use cfo_engine::{Graph, Memory, Node};
use cfo_numerics::metric::Summary;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::operator::{Operator, OperatorConfig, OperatorInputs, Setting, parameter_count};
use crate::recipe::{ObjectiveConfig, Recipe};
use crate::trajectories::TrajectorySet;

/// Between the user's units and the network's: values to mean 0 and deviation 1, times to [0, 1].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scaling {
    /// Mean of each channel.
    pub mean: Vec<f64>,
    /// Deviation of each channel.
    pub deviation: Vec<f64>,
    /// Deviation of the change between neighbouring snapshots of each channel, in normalised units.
    pub change: Vec<f64>,
    /// Time that becomes 0.
    pub start: f64,
    /// Time between 0 and 1.
    pub span: f64,
    /// Mean time between neighbouring snapshots before any are left out, in the user's units; 0 in runs of earlier versions.
    #[serde(default)]
    pub interval: f64,
    /// Mean and deviation of each PDE parameter.
    pub conditions: Vec<[f64; 2]>,
}

impl Scaling {
    /// From the training trajectories.
    fn measure(set: &TrajectorySet, normalize: bool) -> Result<Self> {
        let channels = set.description.shape.channels;
        let train: Vec<&Trajectory> = set.part(Split::Train).map(|(_, trajectory)| trajectory).collect();
        let start = train.iter().map(|trajectory| trajectory.times[0]).fold(f64::INFINITY, f64::min);
        let ends = train.iter().filter_map(|trajectory| trajectory.times.last().copied());
        let span = ends.fold(f64::NEG_INFINITY, f64::max) - start;
        if train.is_empty() || !(span > 0.0 && span.is_finite()) {
            return Err(CfoError::BadData {
                problem: format!("{} training trajectories span no time", train.len()),
                hint: "`cfo inspect` shows times and splits".into(),
            });
        }
        let lengths: f64 = train.iter().map(|one| one.times[one.times.len() - 1] - one.times[0]).sum();
        let intervals: usize = train.iter().map(|one| one.times.len() - 1).sum();
        let interval = lengths / intervals.max(1) as f64;
        let (mut values, mut changes) = (Statistics::new(channels), Statistics::new(channels));
        let size = set.description.shape.len();
        // One trajectory at a time: those in a file need not all be in memory.
        for (i, _) in set.part(Split::Train) {
            let trajectory = set.values(i)?;
            values.add(&trajectory);
            let later = trajectory.iter().skip(size);
            let change: Vec<f32> =
                later.zip(trajectory.iter()).map(|(after, before)| after - before).collect();
            changes.add(&change);
        }
        let Normalization { mean, deviation } =
            if normalize { values.normalization() } else { Normalization::identity(channels) };
        let roots = changes.root_mean_square().into_iter().zip(&deviation);
        let change = roots.map(|(root, deviation)| if root > 0.0 { root / deviation } else { 1.0 }).collect();
        let conditions = (0..set.description.parameter_names.len())
            .map(|p| {
                let values: Vec<f64> = train.iter().map(|trajectory| trajectory.parameters[p]).collect();
                let Summary { mean, deviation, .. } = Summary::of(&values);
                [mean, if deviation > 0.0 { deviation } else { 1.0 }]
            })
            .collect();
        Ok(Self { mean, deviation, change, start, span, interval, conditions })
    }

    /// A time in the network's units.
    pub fn time(&self, time: f64) -> f64 {
        (time - self.start) / self.span
    }

    /// Values in the network's units.
    pub fn normalize(&self, values: &[f32]) -> Vec<f32> {
        self.each(values, |value, mean, deviation| (value - mean) / deviation)
    }

    /// Values in the user's units.
    pub fn restore(&self, values: &[f32]) -> Vec<f32> {
        self.each(values, |value, mean, deviation| value * deviation + mean)
    }

    /// The same as [`Self::normalize`] into a place of its own.
    pub(crate) fn normalize_into(&self, values: &[f32], to: &mut [f32]) {
        let channels = self.mean.len();
        for (i, (to, &value)) in to.iter_mut().zip(values).enumerate() {
            let channel = i % channels;
            *to = ((f64::from(value) - self.mean[channel]) / self.deviation[channel]) as f32;
        }
    }

    fn each(&self, values: &[f32], map: impl Fn(f64, f64, f64) -> f64) -> Vec<f32> {
        let channels = self.mean.len();
        let scaled = values.iter().enumerate().map(|(i, &value)| {
            let channel = i % channels;
            map(f64::from(value), self.mean[channel], self.deviation[channel]) as f32
        });
        scaled.collect()
    }
}

/// A network with everything needed to train it further or to predict with it, except its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The recipe it was made by.
    pub recipe: Recipe,
    /// Name of the system.
    pub system: String,
    /// Space axes of the data.
    pub axes: usize,
    /// What the network must know of the data.
    pub setting: Setting,
    /// Between the user's units and the network's.
    pub scaling: Scaling,
    /// Names of the channels, for reports.
    pub channel_names: Vec<String>,
}

impl Model {
    /// A model for a data set.
    ///
    /// # Errors
    /// If the data do not suit the recipe.
    pub fn new(recipe: &Recipe, set: &TrajectorySet) -> Result<Self> {
        let Description { system, shape, periodic, channel_names, parameter_names, .. } = &set.description;
        let conditions = if recipe.data.condition { parameter_names.len() } else { 0 };
        if recipe.data.condition && conditions == 0 {
            return Err(CfoError::BadData {
                problem: "`data.condition` is set, but the data have no parameters".into(),
                hint: "add `/parameters` to the file, or set `data.condition = false`".into(),
            });
        }
        let model = Self {
            recipe: recipe.clone(),
            system: system.clone(),
            axes: shape.axes,
            setting: Setting::new(*shape, periodic, conditions),
            scaling: Scaling::measure(set, recipe.data.normalize)?,
            channel_names: channel_names.clone(),
        };
        model.operator()?;
        Ok(model)
    }

    /// Shape of a snapshot.
    pub fn shape(&self) -> FieldShape {
        let [height, width, channels] = self.setting.field;
        FieldShape { axes: self.axes, height, width, channels }
    }

    /// The same model for snapshots of another grid, if its weights do not depend on the grid: those of a Fourier neural operator.
    ///
    /// # Errors
    /// If the network is bound to its grid, or the snapshots differ in more than that.
    pub fn on_grid(&self, found: FieldShape) -> Result<Self> {
        let needed = self.shape();
        if found == needed {
            return Ok(self.clone());
        }
        let free = matches!(self.recipe.operator, OperatorConfig::Fno(_));
        if !free || found.axes != needed.axes || found.channels != needed.channels {
            return Err(CfoError::BadData {
                problem: format!(
                    "the file has snapshots of shape {:?}, but the model was trained on {:?}",
                    found.dimensions(),
                    needed.dimensions()
                ),
                hint: match free {
                    true => "give data with the axes and channels of the training data; the numbers of points may differ".into(),
                    false => "give data on the grid and with the channels of the training data; only `operator.kind = \"fno\"` takes another grid".into(),
                },
            });
        }
        let field = [found.height, found.width, found.channels];
        let model = Self { setting: Setting { field, ..self.setting.clone() }, ..self.clone() };
        model.operator()?;
        Ok(model)
    }

    /// The network.
    ///
    /// # Errors
    /// If the grid does not suit it.
    pub fn operator(&self) -> Result<Box<dyn Operator>> {
        self.recipe.operator.build(&self.setting)
    }

    /// Whether one step of the network leads to the next snapshot rather than being a velocity.
    pub fn is_autoregressive(&self) -> bool {
        matches!(self.recipe.objective, ObjectiveConfig::Autoregressive { .. })
    }

    /// Shape of a batch of states.
    pub(crate) fn batch_shape(&self, batch: usize) -> [usize; 4] {
        let [height, width, channels] = self.setting.field;
        [batch, height, width, channels]
    }

    /// Appends the network; time is left out where the objective or the recipe says so.
    pub(crate) fn velocity(
        &self,
        graph: &mut Graph,
        [time, state]: [Node; 2],
        conditions: Option<Node>,
    ) -> Result<Node> {
        let timed = self.recipe.operator.time_embedding() && !self.is_autoregressive();
        let inputs = OperatorInputs { time: timed.then_some(time), state, conditions };
        Ok(self.operator()?.velocity(graph, &inputs)?)
    }

    /// Appends the state that follows one of an autoregressive model.
    pub(crate) fn next_state(&self, graph: &mut Graph, state: Node, output: Node) -> Result<Node> {
        match self.recipe.objective {
            ObjectiveConfig::Autoregressive { residual: true } => {
                let change = graph.constant([self.scaling.change.len()], self.scaling.change.clone())?;
                let scaled = graph.multiply(output, change)?;
                Ok(graph.add(state, scaled)?)
            }
            _ => Ok(output),
        }
    }

    /// The network alone, on a batch of states that it puts into memory.
    ///
    /// # Errors
    /// If memory holds other tensors under the names `forward.*`.
    pub fn forward(&self, batch: usize, memory: &mut Memory) -> Result<(Graph, Node)> {
        let mut graph = Graph::new();
        let shape = self.batch_shape(batch);
        let time = graph.input("forward.time", [batch])?;
        let state = graph.input("forward.state", shape)?;
        let wave = |count: usize| (0..count).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
        memory.insert_real("forward.time", [batch], &wave(batch))?;
        memory.insert_real("forward.state", shape, &wave(shape.iter().product()))?;
        let conditions = match self.setting.conditions {
            0 => None,
            count => {
                memory.insert_real("forward.conditions", [batch, count], &wave(batch * count))?;
                Some(graph.input("forward.conditions", [batch, count])?)
            }
        };
        let velocity = self.velocity(&mut graph, [time, state], conditions)?;
        Ok((graph, velocity))
    }

    /// Trainable numbers, a complex weight counted once.
    ///
    /// # Errors
    /// If the grid does not suit the network.
    pub fn parameters(&self) -> Result<usize> {
        let mut graph = Graph::new();
        let time = graph.input("time", [1])?;
        let state = graph.input("state", self.batch_shape(1))?;
        let conditions = match self.setting.conditions {
            0 => None,
            count => Some(graph.input("conditions", [1, count])?),
        };
        self.velocity(&mut graph, [time, state], conditions)?;
        Ok(parameter_count(&graph))
    }
}
