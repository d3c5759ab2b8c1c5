//! A model: the recipe, what it must know of the data, and how its network enters a graph.

use cfo_data::{Description, FieldShape, Split};
use cfo_engine::{Graph, Memory, Node};
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::operator::{Operator, OperatorConfig, OperatorInputs, Setting, parameter_count};
use crate::recipe::{ObjectiveConfig, Recipe};
use crate::scaling::Scaling;
use crate::selection::Selection;
use crate::smoothing::Denoiser;
use crate::survey::Survey;
use crate::trajectories::TrajectorySet;

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
    /// What takes the noise off the training snapshots, where the recipe asks for it and there is any.
    #[serde(default)]
    pub denoiser: Option<Denoiser>,
    /// Names of the channels; empty when unknown.
    pub channel_names: Vec<String>,
    /// Names of the PDE parameters of the training data; empty in runs of earlier versions.
    #[serde(default)]
    pub parameter_names: Vec<String>,
    /// Least and greatest value of each PDE parameter in training; empty in runs of earlier versions.
    #[serde(default)]
    pub parameter_ranges: Vec<[f64; 2]>,
    /// Lower and upper end of each space axis of the training data; empty in runs of earlier versions.
    #[serde(default)]
    pub domain: Vec<[f64; 2]>,
}

impl Model {
    /// A model for a data set.
    ///
    /// # Errors
    /// If the data do not suit the recipe.
    pub fn new(recipe: &Recipe, set: &TrajectorySet) -> Result<Self> {
        let mut model = Self::unmeasured(recipe, set)?;
        let selections = Selection::of_set(recipe, set)?;
        model.denoiser = Denoiser::new(recipe.path.smoothing, set, &selections)?;
        let survey = Survey::new(recipe, (set, model.denoiser.as_ref()), &selections, None)?;
        model.scaling = Scaling::new(recipe, set, &selections, &survey, model.is_timed());
        Ok(model)
    }

    /// The same before its units are measured, which costs no look at the values.
    pub(crate) fn unmeasured(recipe: &Recipe, set: &TrajectorySet) -> Result<Self> {
        let Description { system, shape, periodic, domain, channel_names, parameter_names, .. } =
            &set.description;
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
            scaling: Scaling::default(),
            denoiser: None,
            channel_names: channel_names.clone(),
            parameter_names: parameter_names.clone(),
            parameter_ranges: parameter_ranges(set),
            domain: domain.clone(),
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

    /// Whether the network is told the time.
    pub fn is_timed(&self) -> bool {
        self.recipe.operator.time_embedding() && !self.is_autoregressive()
    }

    /// Whether the loss is relative: 1 for a network whose output is 0, which predicts that nothing changes.
    pub fn has_relative_loss(&self) -> bool {
        match self.recipe.objective {
            ObjectiveConfig::FlowMatching => !self.scaling.velocity.is_empty(),
            ObjectiveConfig::Autoregressive { residual } => residual,
        }
    }

    /// Shape of a batch of states.
    pub(crate) fn batch_shape(&self, batch: usize) -> [usize; 4] {
        let [height, width, channels] = self.setting.field;
        [batch, height, width, channels]
    }

    /// Appends the network; time is left out where the objective or the recipe says so.
    pub(crate) fn network(
        &self,
        graph: &mut Graph,
        [time, state]: [Node; 2],
        conditions: Option<Node>,
    ) -> Result<Node> {
        let time = self.is_timed().then_some(time);
        Ok(self.operator()?.velocity(graph, &OperatorInputs { time, state, conditions })?)
    }

    /// Appends the network with its output in the units of the normalised state a unit of time. An autoregressive
    /// network's output is left as it is.
    pub(crate) fn velocity(
        &self,
        graph: &mut Graph,
        [time, state]: [Node; 2],
        conditions: Option<Node>,
    ) -> Result<Node> {
        let output = self.network(graph, [time, state], conditions)?;
        match self.velocity_scale(graph, time)? {
            Some(scale) => Ok(graph.multiply(output, scale)?),
            None => Ok(output),
        }
    }

    /// Appends what the network's output is multiplied by at times `[batch]`, if it is.
    pub(crate) fn velocity_scale(&self, graph: &mut Graph, time: Node) -> Result<Option<Node>> {
        let Scaling { velocity, profile, .. } = &self.scaling;
        if velocity.is_empty() {
            return Ok(None);
        }
        let scale = graph.constant([velocity.len()], velocity.clone())?;
        Ok(Some(match profile {
            Some(profile) => {
                let speed = profile.at(graph, time)?;
                graph.multiply(speed, scale)?
            }
            None => scale,
        }))
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
        Ok(parameter_count(&self.graph()?))
    }

    /// The graph of the network on one state.
    pub(crate) fn graph(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let time = graph.input("time", [1])?;
        let state = graph.input("state", self.batch_shape(1))?;
        let conditions = match self.setting.conditions {
            0 => None,
            count => Some(graph.input("conditions", [1, count])?),
        };
        self.velocity(&mut graph, [time, state], conditions)?;
        Ok(graph)
    }
}

/// Least and greatest value of each PDE parameter in training.
fn parameter_ranges(set: &TrajectorySet) -> Vec<[f64; 2]> {
    let range = |p: usize| {
        let values = set.part(Split::Train).map(|(_, trajectory)| trajectory.parameters[p]);
        values.fold([f64::INFINITY, f64::NEG_INFINITY], |[least, greatest], value| {
            [least.min(value), greatest.max(value)]
        })
    };
    (0..set.description.parameter_names.len()).map(range).collect()
}
