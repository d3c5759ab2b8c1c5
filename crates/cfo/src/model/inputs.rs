//! Inputs of a model's programs: a batch of states or trajectories, with their times and PDE parameters.

use cfo_data::FieldShape;
use cfo_engine::{Data, Element, Graph, Memory, Node, Role, Shape};

use crate::error::Result;
use crate::model::Model;
use crate::objective::{MotionKind, Noise, Point};
use crate::operator::Context;

impl Model {
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
        let conditions = match self.setting.conditions {
            0 => None,
            count => Some(graph.input(&name("conditions"), [batch, count])?),
        };
        let draws = graph.tensor(&name("draws"), Element::Index, [batch, 2])?;
        Ok(Point {
            context: Context { time: graph.input(&name("time"), [batch])?, conditions },
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
        if self.setting.conditions > 0 {
            insert("conditions", [batch, self.setting.conditions].into())?;
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
