//! Inputs of a model's programs: a batch of states or trajectories, with their times, PDE parameters and controls.

use cfo_data::{FieldShape, InputNames, Split, TrajectoryInputs};
use cfo_engine::{Data, Element, Graph, Memory, Node, Role, Shape};
use cfo_numerics::Signal;

use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::objective::{MotionKind, Noise, Point};
use crate::operator::Context;
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// Returns the names of the inputs of a set that a network takes.
pub(super) fn taken(recipe: &Recipe, set: &Trajectories) -> Result<InputNames> {
    let InputNames { parameters, controls, statics } = set.description.inputs.clone();
    if recipe.data.condition && parameters.is_empty() {
        return Err(CfoError::BadData {
            problem: "`data.condition` is set, but the data have no parameters".into(),
            hint: "add `/parameters` to the file, or set `data.condition = false`".into(),
        });
    }
    let of = |names: Vec<String>, are_taken: bool| if are_taken { names } else { Vec::new() };
    let has_controls = recipe.data.controls.interpolation().is_some();
    Ok(InputNames {
        parameters: of(parameters, recipe.data.condition),
        controls: of(controls, has_controls),
        statics: of(statics, recipe.data.statics),
    })
}

/// Returns the smallest and largest value in training of each PDE parameter, then of each control.
pub(super) fn ranges(names: &InputNames, set: &Trajectories) -> Vec<[f64; 2]> {
    let mut ranges = vec![[f64::INFINITY, f64::NEG_INFINITY]; names.parameters.len() + names.controls.len()];
    for (_, trajectory) in set.part(Split::Train) {
        for (i, value) in numbered(names, &trajectory.inputs) {
            ranges[i] = [ranges[i][0].min(value), ranges[i][1].max(value)];
        }
    }
    ranges
}

/// Returns all values of the inputs that a network takes, each with the number of its input: parameters, then controls.
pub(crate) fn numbered<'i>(
    names: &InputNames,
    inputs: &'i TrajectoryInputs,
) -> impl Iterator<Item = (usize, f64)> + 'i {
    let (parameters, width) = (names.parameters.len(), names.controls.len());
    let controls = inputs.controls.iter().filter(move |_| width > 0).flat_map(|own| own.values());
    let controls = controls.enumerate().map(move |(place, &value)| (parameters + place % width, value));
    inputs.parameters.iter().copied().take(parameters).enumerate().chain(controls)
}

impl Model {
    /// Returns the shape of a batch of static fields.
    pub(crate) fn statics_shape(&self, batch: usize) -> [usize; 4] {
        FieldShape { channels: self.inputs.statics.len(), ..self.setting.field }.tensor(batch)
    }

    /// Checks that the objective can take the inputs, and that the controls of the trajectories for training and validation cover their
    /// times.
    pub(super) fn check_inputs(&self, set: &Trajectories) -> Result<()> {
        let InputNames { controls, statics, .. } = &self.inputs;
        if controls.is_empty() && statics.is_empty() {
            return Ok(());
        }
        if !statics.is_empty() && self.latent().is_some() {
            return Err(CfoError::BadData {
                problem: "a network in a latent space cannot take static fields".into(),
                hint: "leave `latent.wavelet` out, or set `data.statics = false`".into(),
            });
        }
        if let MotionKind::Trajectory { .. } = self.motion().kind() {
            return Err(CfoError::BadData {
                problem: format!(
                    "`{}` generates whole trajectories, and its network cannot take controls or static fields",
                    self.objective().name()
                ),
                hint: "use `objective.kind = \"flow-matching\"`, or set `data.controls = \"none\"` and `data.statics = false`".into(),
            });
        }
        for (index, trajectory) in set.part(Split::Train).chain(set.part(Split::Validation)) {
            let ends = [trajectory.times[0], trajectory.times[trajectory.times.len() - 1]];
            self.check_covered(set.number(index), &trajectory.inputs, ends)?;
        }
        Ok(())
    }

    /// Checks that there are the inputs that the network takes, and that its controls cover an interval, in either direction.
    pub(crate) fn check_covered(
        &self,
        trajectory: usize,
        inputs: &TrajectoryInputs,
        interval: [f64; 2],
    ) -> Result<()> {
        let (found, needed) = (inputs.parameters.len(), self.inputs.parameters.len());
        if needed > 0 && found != needed {
            return Err(CfoError::BadData {
                problem: format!(
                    "trajectory {trajectory} has {found} PDE parameters; the model takes {needed}"
                ),
                hint: "give those of the training data, in their order".into(),
            });
        }
        let needed = self.statics_shape(1).iter().product::<usize>();
        let found = inputs.statics.as_ref().map_or(0, |own| own.len());
        if needed > 0 && found != needed {
            return Err(CfoError::BadData {
                problem: format!(
                    "trajectory {trajectory} has {found} values of static fields; the model takes {needed}: `{}` at each point",
                    self.inputs.statics.join("`, `")
                ),
                hint: "give the static fields of the training data, on the grid of the state".into(),
            });
        }
        let needed = self.inputs.controls.len();
        let controls = inputs.controls.as_deref();
        let found = controls.map_or(0, cfo_data::Controls::channels);
        if needed > 0 && found != needed {
            return Err(CfoError::BadData {
                problem: format!(
                    "trajectory {trajectory} has {found} controls; the model takes {needed}: `{}`",
                    self.inputs.controls.join("`, `")
                ),
                hint: "give the controls of the training data, with their times".into(),
            });
        }
        let Some(controls) = controls.filter(|_| needed > 0) else { return Ok(()) };
        let Some(time) = controls.uncovered(interval) else { return Ok(()) };
        let ([first, last], [from, to]) = (controls.range(), interval);
        let place = if time == from && !(first..=last).contains(&from) { "at" } else { "beyond" };
        Err(CfoError::BadData {
            problem: format!(
                "the controls of trajectory {trajectory} are known from time {first} to {last}, but needed from {from} to {to}: they are missing {place} {time}"
            ),
            hint: "give controls for the whole interval, or choose other times".into(),
        })
    }

    /// Returns the PDE parameters that the network takes, in its units.
    pub(crate) fn conditions(&self, inputs: &TrajectoryInputs) -> Vec<f32> {
        match self.inputs.parameters.is_empty() {
            true => Vec::new(),
            false => self.scaling.conditions(&inputs.parameters),
        }
    }

    /// Returns the static fields that the network takes, in its units.
    pub(crate) fn statics(&self, inputs: &TrajectoryInputs) -> Vec<f32> {
        let taken = inputs.statics.iter().filter(|_| !self.inputs.statics.is_empty());
        let units = self.scaling.statics.iter().cycle();
        let scaled =
            |(&value, [mean, deviation]): (&f32, &[f64; 2])| ((f64::from(value) - mean) / deviation) as f32;
        taken.flat_map(|own| own.iter()).zip(units).map(scaled).collect()
    }

    /// Returns the controls as functions of time, in the network's units; `None` if the network takes none.
    pub(crate) fn signal(&self, inputs: &TrajectoryInputs) -> Option<Signal> {
        let interpolation = self.recipe.data.controls.interpolation()?;
        let controls = inputs.controls.as_ref().filter(|_| !self.inputs.controls.is_empty())?;
        let value = |control: usize, value: f64| {
            let [mean, deviation] = self.scaling.controls[control];
            (value - mean) / deviation
        };
        Some(controls.signal(interpolation, |time| self.scaling.time(time), value))
    }

    /// Returns the shape of a batch of integrated values: states, or whole trajectories.
    pub(crate) fn moving_shape(&self, batch: usize) -> [usize; 4] {
        let FieldShape { grid, channels } = self.setting.field;
        match self.motion().kind() {
            MotionKind::Trajectory { frames } => [batch, frames, grid.points(), channels],
            MotionKind::Velocity | MotionKind::Step => self.batch_shape(batch),
        }
    }

    /// Appends the input tensors of a batch of predictions and returns the point that they form. `name` maps an input to the name of its
    /// tensor.
    pub(crate) fn point(
        &self,
        graph: &mut Graph,
        batch: usize,
        name: impl Fn(&str) -> String,
    ) -> Result<Point> {
        let given = match self.motion().kind() {
            MotionKind::Trajectory { .. } => Some(graph.input(&name("given"), self.batch_shape(batch))?),
            MotionKind::Velocity | MotionKind::Step => None,
        };
        let InputNames { parameters, controls, statics } = &self.inputs;
        let conditions = match parameters.len() {
            0 => None,
            count => Some(graph.input(&name("conditions"), [batch, count])?),
        };
        let draws = graph.tensor(&name("draws"), Element::Index, [batch, 2])?;
        let mut context = Context { conditions, ..Context::at(graph.input(&name("time"), [batch])?) };
        if !controls.is_empty() {
            let controls = graph.input(&name("controls"), [batch, controls.len()])?;
            context = context.with_conditions(graph, controls)?;
        }
        if !statics.is_empty() {
            context.statics = Some(graph.input(&name("statics"), self.statics_shape(batch))?);
        }
        Ok(Point {
            context,
            state: graph.input(&name("state"), self.moving_shape(batch))?,
            given,
            noise: Noise::of_samples(draws),
        })
    }

    /// Inserts the tensors of [`Model::point`] into memory. `fill` returns the content of a tensor for its number of elements.
    pub(crate) fn insert_point(
        &self,
        memory: &mut Memory,
        batch: usize,
        name: impl Fn(&str) -> String,
        fill: impl Fn(usize) -> Vec<f32>,
    ) -> Result<()> {
        let mut insert = |what: &str, shape: Shape| {
            let values = fill(shape.len());
            memory.insert_as(Role::Scratch, &name(what), Element::Real, shape, Data::F32(&values))
        };
        insert("time", [batch].into())?;
        insert("state", self.moving_shape(batch).into())?;
        for (what, names) in [("conditions", &self.inputs.parameters), ("controls", &self.inputs.controls)] {
            if !names.is_empty() {
                insert(what, [batch, names.len()].into())?;
            }
        }
        if !self.inputs.statics.is_empty() {
            insert("statics", self.statics_shape(batch).into())?;
        }
        if let MotionKind::Trajectory { .. } = self.motion().kind() {
            insert("given", self.batch_shape(batch).into())?;
        }
        let zeros = vec![0; 2 * batch];
        memory.insert_as(Role::Scratch, &name("draws"), Element::Index, [batch, 2], Data::Index(&zeros))?;
        Ok(())
    }

    /// Returns the graph of one prediction of a batch, and its output. The inputs are inserted into memory.
    ///
    /// # Errors
    /// If memory holds other tensors under the names `forward.*`.
    pub fn forward(&self, batch: usize, memory: &mut Memory) -> Result<(Graph, Node)> {
        let mut graph = Graph::new();
        let wave = |count: usize| (0..count).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<f32>>();
        let name = |what: &str| format!("forward.{what}");
        self.insert_point(memory, batch, name, wave)?;
        let point = self.point(&mut graph, batch, name)?;
        let moved = self.moved(&mut graph, &point)?;
        Ok((graph, moved))
    }
}
