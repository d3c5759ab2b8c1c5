//! Models: a recipe, the measurements of the training data, and the network as part of a graph.

mod inputs;
mod method;
mod runge_kutta;

use std::sync::Arc;

use cfo_data::{Description, FieldShape, InputNames};
use cfo_engine::{Graph, Node};
use cfo_numerics::Clock;
use serde::{Deserialize, Serialize};

use crate::error::{CfoError, Result};
use crate::measure::latent::Latent;
use crate::measure::scaling::Scaling;
use crate::measure::selection::Selection;
use crate::measure::{Denoiser, Measured, Question};
use crate::objective::{
    Draw, FlowMatching, Motion, MotionKind, NeuralOde, Objective, ObjectiveConfig, Point, TimeInput, Unit,
};
use crate::operator::{Context, Operator, Setting, StateSpace, parameter_count};
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;
pub(crate) use inputs::numbered;
pub(crate) use method::{Foreign, Method};
pub(crate) use runge_kutta::{StepStart, append_end, append_step, scaled_error};

/// A network with everything needed to train it further or to predict with it, except its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// The recipe of the model.
    pub recipe: Recipe,
    /// Name of the system.
    pub system: String,
    /// Shapes that the network is built for.
    pub setting: StateSpace,
    /// The conversion between the user's units and the network's.
    pub scaling: Scaling,
    /// Removes noise from the training snapshots; `None` if there is no noise to remove.
    pub denoiser: Option<Denoiser>,
    /// Names of the channels; empty when unknown.
    pub channel_names: Vec<String>,
    /// Names of the inputs beside the state that the network takes.
    #[serde(flatten)]
    pub inputs: InputNames,
    /// Smallest and largest value of each PDE parameter in the training data, then of each control.
    #[serde(rename = "parameter_ranges")]
    pub input_ranges: Vec<[f64; 2]>,
    /// Lower and upper end of each space axis of the training data.
    pub domain: Vec<[f64; 2]>,
    /// The user-defined operator and objective, which the recipe cannot describe.
    #[serde(flatten)]
    foreign: Foreign,
    /// Whether the network is being fine-tuned. Checkpoints hold the model of the recipe.
    #[serde(skip)]
    pub(crate) tuning: bool,
}

impl Model {
    /// Creates a model for a data set; its scaling is measured on the training trajectories.
    ///
    /// # Errors
    /// If data and recipe do not fit each other.
    pub fn new(recipe: &Recipe, set: &Trajectories) -> Result<Self> {
        let mut model = Self::unmeasured(&Method::of(recipe), set)?;
        let selections = Selection::of_set(recipe, set)?;
        model.take(&Measured::of(&model.question(), set, &selections, None, None)?);
        Ok(model)
    }

    /// Sets what was measured on the training data.
    pub(crate) fn take(&mut self, measured: &Measured) {
        (self.scaling, self.denoiser) = (measured.scaling.clone(), measured.denoiser.clone());
    }

    /// Creates a model without its scaling, which requires no values.
    pub(crate) fn unmeasured(method: &Method, set: &Trajectories) -> Result<Self> {
        set.check()?;
        let Description { system, shape, periodic, domain, channel_names, .. } = &set.description;
        let recipe = &method.recipe;
        let inputs = inputs::taken(recipe, set)?;
        let conditions = inputs.parameters.len() + inputs.controls.len();
        let statics = inputs.statics.len();
        let states = StateSpace { statics, ..StateSpace::new(*shape, periodic, conditions) };
        let setting = match recipe.latent.latent(&states) {
            Some(latent) => latent.space(&states)?,
            None => states,
        };
        let model = Self {
            recipe: recipe.clone(),
            system: system.clone(),
            setting,
            scaling: Scaling::default(),
            denoiser: None,
            channel_names: channel_names.clone(),
            input_ranges: inputs::ranges(&inputs, set),
            inputs,
            domain: domain.clone(),
            foreign: method.foreign.clone(),
            tuning: method.tuning,
        };
        if model.motion().time_input() == TimeInput::Own && !model.operator().sees_time() {
            let problem = format!(
                "it must be `true`: `{}` passes another time to its network",
                model.objective().name()
            );
            return Err(CfoError::invalid("operator.time", problem));
        }
        model.check_inputs(set)?;
        model.operator().check(&model.operator_setting())?;
        Ok(model)
    }

    /// Returns the shape of a snapshot.
    pub fn shape(&self) -> FieldShape {
        let field = self.setting.field;
        self.latent().map_or(field, |latent| latent.original(field))
    }

    /// Returns the latent space that the network works in; `None` if it works in the space of the data.
    pub(crate) fn latent(&self) -> Option<Latent> {
        self.recipe.latent.latent(&self.setting)
    }

    /// Encodes consecutive states in the user's units: converts them to the network's space and units.
    pub(crate) fn encode(&self, states: &[f32]) -> Vec<f32> {
        let mut values = states.to_vec();
        self.encode_in_place(&mut values);
        values
    }

    /// Encodes states in place.
    pub(crate) fn encode_in_place(&self, states: &mut [f32]) {
        if let Some(latent) = self.latent() {
            latent.encode(self.shape(), states);
        }
        self.scaling.normalize_in_place(states);
    }

    /// Decodes consecutive states: converts them to the space and units of the user. The inverse of [`Model::encode`].
    pub(crate) fn decode(&self, states: &[f32]) -> Vec<f32> {
        let mut values = self.scaling.restore(states);
        if let Some(latent) = self.latent() {
            latent.decode(self.shape(), &mut values);
        }
        values
    }

    /// Returns the model for snapshots on another grid, if its weights do not depend on the grid.
    ///
    /// # Errors
    /// If the network works on one grid only, or the snapshots differ in channels or axes.
    pub fn on_grid(&self, found: FieldShape) -> Result<Self> {
        let needed = self.shape();
        if found == needed {
            return Ok(self.clone());
        }
        let free = self.operator().takes_any_grid();
        let kind = |shape: FieldShape| (shape.axes(), shape.grid.extended(), shape.channels);
        if !free || kind(found) != kind(needed) {
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
        let states = StateSpace { field: found, ..self.setting.clone() };
        let setting = self.latent().map_or_else(|| Ok(states.clone()), |latent| latent.space(&states))?;
        let model = Self { setting, ..self.clone() };
        model.operator().check(&model.operator_setting())?;
        Ok(model)
    }

    /// Returns the network.
    pub fn operator(&self) -> &dyn Operator {
        self.foreign.operator(&self.recipe)
    }

    /// Returns the objective.
    pub fn objective(&self) -> &dyn Objective {
        self.foreign.objective(&self.recipe)
    }

    /// Returns the neural ODE that is trained, if the objective of the recipe is one.
    pub(crate) fn neural_ode(&self) -> Option<NeuralOde> {
        match self.recipe.objective {
            ObjectiveConfig::NeuralOde(through) if !self.foreign.has_objective() => {
                Some(NeuralOde { through, flow: FlowMatching::new(&self.recipe.path) })
            }
            _ => None,
        }
    }

    /// Returns how the network predicts.
    pub fn motion(&self) -> Arc<dyn Motion> {
        self.objective().motion()
    }

    /// Sets the user-defined operator and objective, which the recipe cannot describe.
    pub(crate) fn with(mut self, given: &Foreign) -> Result<Self> {
        self.foreign.take_from(given)?;
        Ok(self)
    }

    /// Returns the model with another recipe for the same network.
    pub(crate) fn by(&self, method: &Method) -> Self {
        Self { recipe: method.recipe.clone(), foreign: method.foreign.clone(), tuning: false, ..self.clone() }
    }

    /// Returns the user-defined operator and objective.
    pub(crate) fn foreign(&self) -> &Foreign {
        &self.foreign
    }

    /// Returns the prefix of the names of the weights that are evaluated.
    pub(crate) fn weight_prefix(&self) -> &'static str {
        if self.recipe.train.ema > 0.0 { "ema/" } else { "" }
    }

    /// Returns the measurements that the model needs of the training data.
    pub(crate) fn question(&self) -> Question {
        let (draw, recipe) = (self.objective().draw(), &self.recipe);
        Question {
            path: draw.path(),
            by: draw.by(),
            clock: self.clock(),
            trust: recipe.path.trust.filter(|_| matches!(draw, Draw::PathPoint { .. })),
            smoothing: recipe.path.smoothing,
            normalize: recipe.data.normalize,
            latent: self.latent(),
            unit: self.motion().unit(),
            timed: self.is_timed(),
        }
    }

    /// Returns the clock of the network's time. Only a velocity that depends on time can follow a clock.
    pub(crate) fn clock(&self) -> Clock {
        let follows = self.motion().kind() == MotionKind::Velocity && self.is_timed();
        Clock::of(self.recipe.path.clock.filter(|_| follows))
    }

    /// Returns the shapes that the network is built for.
    pub fn operator_setting(&self) -> Setting {
        let own = self.motion().setting(&self.setting);
        Setting { timed: self.sees_time(), inputs: own.inputs + self.setting.statics, ..own }
    }

    /// Returns whether the time of the data is an input of the network.
    pub fn is_timed(&self) -> bool {
        self.operator().sees_time() && self.motion().time_input() == TimeInput::Data
    }

    /// Returns whether a time is an input of the network.
    fn sees_time(&self) -> bool {
        self.operator().sees_time() && self.motion().time_input() != TimeInput::None
    }

    /// Returns whether the loss is relative: 1 for a network that predicts no change.
    pub fn has_relative_loss(&self) -> bool {
        if let Draw::Window { intervals, .. } = self.objective().draw() {
            // The mismatch is that of a snapshot, in units of the change over one interval.
            return intervals == 1;
        }
        match self.motion().unit() {
            Unit::State => false,
            Unit::Change => true,
            Unit::Velocity | Unit::VelocityAtTime => !self.scaling.velocity.is_empty(),
        }
    }

    /// Returns the shape of a batch of states.
    pub(crate) fn batch_shape(&self, batch: usize) -> [usize; 4] {
        self.setting.field.tensor(batch)
    }

    /// Appends the network on a field `[batch, rows, width, inputs]` without the static fields, which are in the context.
    ///
    /// # Errors
    /// If the network cannot take the field.
    pub fn network(&self, graph: &mut Graph, field: Node, context: &Context) -> Result<Node> {
        self.foreign.check()?;
        let context = context.settled(graph)?;
        let field = match context.statics {
            Some(statics) => graph.concat(&[field, statics], 3)?,
            None => field,
        };
        self.operator().apply(graph, &self.operator_setting(), field, &context)
    }

    /// Appends a target at times `[batch]` in the unit of the network's output.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn in_units(&self, graph: &mut Graph, time: Node, target: Node) -> Result<Node> {
        match self.unit(graph, time)? {
            Some(scale) => Ok(graph.divide(target, scale)?),
            None => Ok(target),
        }
    }

    /// Appends a network's output at times `[batch]` in normalised units: the inverse of [`Model::in_units`].
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn of_units(&self, graph: &mut Graph, time: Node, output: Node) -> Result<Node> {
        match self.unit(graph, time)? {
            Some(scale) => Ok(graph.multiply(output, scale)?),
            None => Ok(output),
        }
    }

    /// Appends the prediction for a state, by the model's [`Motion`].
    ///
    /// # Errors
    /// If the network cannot take the state.
    pub fn moved(&self, graph: &mut Graph, point: &Point) -> Result<Node> {
        self.motion().append(graph, self, point)
    }

    /// Appends the mismatch of predicted and true snapshots, a scalar: the mean squared error in units of the change between snapshots, for
    /// each channel. Over one interval, a prediction of no change has mismatch 1. In a latent space, errors have the weights that they have
    /// in the space of the data.
    ///
    /// # Errors
    /// If they have different shapes.
    pub fn mismatch(&self, graph: &mut Graph, [found, wanted]: [Node; 2]) -> Result<Node> {
        let unit = self.scaling.change.clone();
        let unit = graph.constant([unit.len()], unit)?;
        let [found, wanted] = [graph.divide(found, unit)?, graph.divide(wanted, unit)?];
        Ok(graph.mean_squared_error(found, wanted)?)
    }

    /// Appends the factor of the network's output at times `[batch]`; `None` if there is none.
    fn unit(&self, graph: &mut Graph, time: Node) -> Result<Option<Node>> {
        let Scaling { velocity, change, profile, .. } = &self.scaling;
        let scale = match self.motion().unit() {
            Unit::State => return Ok(None),
            Unit::Velocity | Unit::VelocityAtTime if velocity.is_empty() => return Ok(None),
            Unit::Velocity | Unit::VelocityAtTime => graph.constant([velocity.len()], velocity.clone())?,
            Unit::Change => graph.constant([change.len()], change.clone())?,
        };
        Ok(Some(match profile {
            Some(profile) => {
                let speed = profile.at(graph, time)?;
                graph.multiply(speed, scale)?
            }
            None => scale,
        }))
    }

    /// Returns the number of trainable parameters; a complex weight counts once.
    ///
    /// # Errors
    /// If the network cannot be built for the grid.
    pub fn parameters(&self) -> Result<usize> {
        Ok(parameter_count(&self.graph()?))
    }

    /// Returns the graph of one prediction of one state.
    pub(crate) fn graph(&self) -> Result<Graph> {
        let mut graph = Graph::new();
        let point = self.point(&mut graph, 1, str::to_owned)?;
        self.moved(&mut graph, &point)?;
        Ok(graph)
    }
}
