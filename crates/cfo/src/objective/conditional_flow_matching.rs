//! Conditional flow matching: generates a whole trajectory from noise, given its first snapshot. Time is one more axis of the field.

use std::sync::Arc;

use cfo_data::FieldShape;
use cfo_engine::{Graph, Node};
use cfo_numerics::{Grid, Path};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::uniform_grid::seen;
use super::{Batch, Draw, Motion, MotionKind, Objective, ObjectiveConfig, Point, TimeInput, Unit};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::operator::{Setting, StateSpace};
use crate::recipe::{Recipe, below_one, not_negative, require};
use crate::trajectories::Trajectories;

/// The keys of conditional flow matching.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConditionalFlowKeys {
    /// Number of equally spaced times, from the first to the last of a trajectory, at which states are generated.
    pub frames: usize,
    /// Share of the training samples without the first snapshot as an input, for classifier-free guidance.
    pub drop_rate: f64,
    /// Weight w of classifier-free guidance: v = v(without first snapshot) + w (v(with) - v(without)). With 1 only the velocity with the
    /// snapshot is evaluated, which halves the number of network evaluations.
    pub guidance: f64,
}

impl Default for ConditionalFlowKeys {
    fn default() -> Self {
        Self { frames: 32, drop_rate: 0.1, guidance: 1.5 }
    }
}

impl ConditionalFlowKeys {
    pub(super) fn check(self) -> Result<()> {
        let Self { frames, drop_rate, guidance } = self;
        require(frames > 1, "objective.frames", frames, "must be 2 or more")?;
        below_one("objective.drop_rate", drop_rate)?;
        not_negative("objective.guidance", guidance)?;
        let trained = drop_rate > 0.0 || guidance == 1.0;
        require(trained, "objective.guidance", guidance, "needs `objective.drop_rate` above 0")
    }
}

/// Conditional flow matching: the network learns the velocity of lines from noise to whole trajectories, given their first snapshot.
///
/// For data with one space axis, the field of the network is a plane (frames by points). For ODE systems it is a line of frames. For data
/// with two or three space axes it has the grid of the data, and its channels are the frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConditionalFlowMatching {
    /// The spline that interpolates the snapshots at the frames, and the frames at the output times.
    pub path: Path,
    /// The keys of the recipe.
    pub keys: ConditionalFlowKeys,
}

/// The layout of trajectories `[batch, frames, points, channels]` in a network's field.
#[derive(Clone, Copy)]
struct Arrangement {
    frames: usize,
    field: FieldShape,
}

impl Arrangement {
    /// Returns the grid: frames by points, a line of frames, or a plane of points whose channels are the frames.
    fn grid(self) -> Grid {
        match (self.has_frames_as_channels(), self.field.grid.width()) {
            (true, _) => self.field.grid,
            (false, 1) => Grid::line(self.frames),
            (false, width) => Grid::plane(self.frames, width),
        }
    }

    fn has_frames_as_channels(self) -> bool {
        self.field.grid.rows() > 1
    }

    /// Returns the axes of a batch of fields with some channels.
    fn tensor(self, batch: usize, channels: usize) -> [usize; 4] {
        FieldShape { grid: self.grid(), channels }.tensor(batch)
    }

    /// Returns the number of channels of a trajectory in the field.
    fn channels(self) -> usize {
        self.field.channels * if self.has_frames_as_channels() { self.frames } else { 1 }
    }

    fn arrange(self, graph: &mut Graph, x: Node, batch: usize) -> Result<Node> {
        let x = if self.has_frames_as_channels() { graph.permute(x, &[0, 2, 1, 3])? } else { x };
        Ok(graph.reshape(x, self.tensor(batch, self.channels()))?)
    }

    /// Appends the inverse of [`Arrangement::arrange`].
    fn restore(self, graph: &mut Graph, field: Node, batch: usize) -> Result<Node> {
        let (points, channels) = (self.field.grid.points(), self.field.channels);
        if self.has_frames_as_channels() {
            let field = graph.reshape(field, [batch, points, self.frames, channels])?;
            return Ok(graph.permute(field, &[0, 2, 1, 3])?);
        }
        Ok(graph.reshape(field, [batch, self.frames, points, channels])?)
    }

    fn spread(self, graph: &mut Graph, snapshot: Node, batch: usize) -> Result<Node> {
        match self.has_frames_as_channels() {
            true => Ok(snapshot),
            false => Ok(graph.broadcast(snapshot, self.tensor(batch, self.field.channels))?),
        }
    }

    /// Appends the time of each frame, from -1 to 1; `None` if frames are channels.
    fn clock(self, graph: &mut Graph, batch: usize) -> Result<Option<Node>> {
        if self.has_frames_as_channels() {
            return Ok(None);
        }
        let when = |frame: usize| 2.0 * frame as f64 / (self.frames - 1) as f64 - 1.0;
        let shape =
            if self.field.grid.width() == 1 { [1, 1, self.frames, 1] } else { [1, self.frames, 1, 1] };
        let clock = graph.formula().constant(shape, (0..self.frames).map(when).collect());
        Ok(Some(clock.broadcast(self.tensor(batch, 1)).node()?))
    }
}

impl ConditionalFlowMatching {
    pub(super) const NAME: &'static str = "conditional-flow-matching";

    fn arrangement(&self, model: &Model) -> Arrangement {
        Arrangement { frames: self.keys.frames, field: model.setting.field }
    }

    /// Appends the network's velocity at a point. The network gets the snapshot where `told` `[batch, 1, 1, 1]` is 1.
    fn velocity(&self, graph: &mut Graph, model: &Model, point: &Point, told: Node) -> Result<Node> {
        let (arrangement, batch) = (self.arrangement(model), graph.shape(told).axes()[0]);
        let mut parts = vec![arrangement.arrange(graph, point.state, batch)?];
        let given = point.given.ok_or_else(|| {
            CfoError::bad_data(
                "the first snapshot of a trajectory is missing",
                "set `Point::given` to the initial snapshots",
            )
        })?;
        let given = graph.multiply(given, told)?;
        parts.push(arrangement.spread(graph, given, batch)?);
        parts.push(graph.broadcast(told, arrangement.tensor(batch, 1))?);
        parts.extend(arrangement.clock(graph, batch)?);
        let field = graph.concat(&parts, 3)?;
        let found = model.network(graph, field, &point.context)?;
        arrangement.restore(graph, found, batch)
    }
}

impl Objective for ConditionalFlowMatching {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::Trajectory { path: self.path, frames: self.keys.frames }
    }

    /// Appends the mean squared error of the velocity at a uniformly random time on the line from noise to a trajectory.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let shape = graph.shape(batch.target).axes().to_vec();
        let source = batch.noise.normal(graph, &shape, 0)?;
        let time = batch.noise.uniform(graph, &shape[..1], 1)?;
        let told = batch.noise.uniform(graph, &[shape[0], 1, 1, 1], 2)?;
        let f = graph.formula();
        let told = f.var(told).at_least(self.keys.drop_rate).node()?;
        let velocity = f.var(batch.target) - source;
        let state = (source + velocity * f.var(time).reshape([shape[0], 1, 1, 1])).node()?;
        let velocity = velocity.node()?;
        let point = Point { given: Some(batch.state), ..batch.at(time, state) };
        let found = self.velocity(graph, model, &point, told)?;
        batch.mean_squared_error(graph, found, velocity)
    }

    fn motion(&self) -> Arc<dyn Motion> {
        Arc::new(*self)
    }

    /// Checks that all trajectories have equal lengths, so that the time between frames is equal.
    fn check(&self, data: &Trajectories, recipe: &Recipe) -> Result<()> {
        let first = usize::from(recipe.data.drop_first);
        let lengths = seen(data, recipe).filter_map(|(index, trajectory)| {
            let times = trajectory.times.get(first..).filter(|times| times.len() > 1)?;
            Some((index, times[times.len() - 1] - times[0]))
        });
        let lengths: Vec<(usize, f64)> = lengths.collect();
        let Some(&(one, expected)) = lengths.first() else { return Ok(()) };
        match lengths.iter().find(|(_, length)| (length / expected - 1.0).abs() > 1e-3) {
            None => Ok(()),
            Some((other, length)) => Err(CfoError::bad_data(
                format!(
                    "trajectory {one} has length {expected}, trajectory {other} {length}, but `{}` makes trajectories of one length",
                    Self::NAME
                ),
                "cut them to one length, or use `objective.kind = \"flow-matching\"`, which takes any",
            )),
        }
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        recipe.objective = ObjectiveConfig::ConditionalFlowMatching(self.keys);
        (recipe.path.spline, recipe.path.stencil) = (self.path.spline, self.path.stencil);
        true
    }
}

impl Motion for ConditionalFlowMatching {
    fn kind(&self) -> MotionKind {
        MotionKind::Trajectory { frames: self.keys.frames }
    }

    fn unit(&self) -> Unit {
        Unit::State
    }

    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let batch = graph.shape(point.state).axes()[0];
        let mut told = |told: f64| graph.constant([batch, 1, 1, 1], vec![told; batch]);
        let (with, without) = (told(1.0)?, told(0.0)?);
        let given = self.velocity(graph, model, point, with)?;
        if self.keys.guidance == 1.0 {
            return Ok(given);
        }
        let free = self.velocity(graph, model, point, without)?;
        Ok((free + (graph.var(given) - free) * self.keys.guidance).node()?)
    }

    fn evaluations(&self) -> usize {
        if self.keys.guidance == 1.0 { 1 } else { 2 }
    }

    fn setting(&self, space: &StateSpace) -> Setting {
        let arrangement = Arrangement { frames: self.keys.frames, field: space.field };
        let (outputs, periodic) = (arrangement.channels(), space.periodic);
        // The trajectory, the snapshot, whether the snapshot is given, and the frames' times unless frames are channels.
        let inputs = outputs + space.field.channels + 1 + usize::from(!arrangement.has_frames_as_channels());
        let periodic = match arrangement.has_frames_as_channels() {
            true => periodic,
            false => [false, false, periodic[2] && space.field.grid.width() > 1],
        };
        let (grid, conditions) = (arrangement.grid(), space.conditions);
        Setting { grid, inputs, outputs, periodic, conditions, timed: true }
    }

    fn time_input(&self) -> TimeInput {
        TimeInput::Own
    }
}
