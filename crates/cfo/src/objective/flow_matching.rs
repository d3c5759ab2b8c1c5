//! Flow matching on a temporal spline: the network learns the path's velocity, which a solver then integrates (the paper's method).

use cfo_engine::{Graph, Node};
use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};

use super::{Batch, Draw, Objective, ObjectiveConfig, Unit};
use crate::error::Result;
use crate::model::Model;
use crate::recipe::{NoiseConfig, PathConfig, Recipe};

/// To match the velocity of a spline through the snapshots, at random points of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowMatching {
    /// Which points of the spline are drawn alike.
    pub by: DrawBy,
    /// The spline and its stencil.
    pub path: Path,
    /// The noise between snapshots.
    pub noise: NoiseSchedule,
    /// Whether the network's output is in units of the velocity's root mean square, channel by channel.
    pub scale_velocity: bool,
    /// Where set, the output is also in units of the speed at each time, and the loss counts an error in units of that speed to this
    /// power: 0 counts errors alike at all times, 1 relative to the speed at their time.
    pub time_balance: Option<f64>,
}

impl FlowMatching {
    pub(super) const NAME: &'static str = "flow-matching";

    /// As a recipe's section describes it.
    pub fn new(config: &PathConfig) -> Self {
        let PathConfig { scale_velocity, time_balance, .. } = *config;
        Self { by: config.draw, path: config.path(), noise: config.schedule(), scale_velocity, time_balance }
    }

    /// On another spline than the paper's.
    pub fn on(spline: Spline) -> Self {
        Self::new(&PathConfig { spline, ..PathConfig::default() })
    }

    /// On lines from snapshot to snapshot.
    pub fn linear() -> Self {
        Self::on(Spline::Linear)
    }

    /// On quintic splines, the paper's.
    pub fn quintic() -> Self {
        Self::on(Spline::Quintic)
    }

    /// The same with so many snapshots estimating the derivatives at each.
    #[must_use]
    pub fn stencil(mut self, points: usize) -> Self {
        self.path.stencil = points;
        self
    }

    /// The same with another amplitude of the noise between snapshots, in normalised units.
    #[must_use]
    pub fn noise(mut self, amplitude: f64) -> Self {
        self.noise.amplitude = amplitude;
        self
    }

    /// The same with any interval or any snapshot drawn alike rather than any time.
    #[must_use]
    pub fn drawn_by(mut self, by: DrawBy) -> Self {
        self.by = by;
        self
    }

    /// Multiplies output and target by what an error at their time counts: the speed to the power of one less the balance, in units in
    /// which a network whose output is 0 has a loss of 1.
    fn balance(
        &self,
        graph: &mut Graph,
        model: &Model,
        time: Node,
        [output, target]: [Node; 2],
    ) -> Result<[Node; 2]> {
        let (Some(profile), Some(balance)) = (&model.scaling.profile, self.time_balance) else {
            return Ok([output, target]);
        };
        let power = 1.0 - balance;
        let speed = profile.at(graph, time)?;
        let logarithm = graph.log(speed)?;
        let scaled = graph.scale(logarithm, power)?;
        let weight = graph.exp(scaled)?;
        let mean = profile.power_mean(power);
        let unit = graph.constant([mean.len()], mean)?;
        let weight = graph.divide(weight, unit)?;
        Ok([graph.multiply(output, weight)?, graph.multiply(target, weight)?])
    }
}

impl Default for FlowMatching {
    fn default() -> Self {
        Self::quintic()
    }
}

impl Objective for FlowMatching {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::PathPoint { by: self.by, path: self.path, noise: self.noise }
    }

    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        let output = model.network(graph, batch.time, batch.state, batch.conditions)?;
        let target = model.in_units(graph, batch.time, batch.target)?;
        let [output, target] = self.balance(graph, model, batch.time, [output, target])?;
        batch.mean_squared_error(graph, output, target)
    }

    fn unit(&self) -> Unit {
        match self {
            Self { time_balance: Some(_), scale_velocity: true, .. } => Unit::VelocityAtTime,
            Self { scale_velocity: true, .. } => Unit::Velocity,
            _ => Unit::State,
        }
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        recipe.objective = ObjectiveConfig::FlowMatching;
        recipe.path = PathConfig {
            draw: self.by,
            spline: self.path.spline,
            stencil: self.path.stencil,
            scale_velocity: self.scale_velocity,
            time_balance: self.time_balance,
            noise: NoiseConfig {
                amplitude: self.noise.amplitude,
                exponent: self.noise.exponent,
                decay: self.noise.decay,
            },
            ..recipe.path.clone()
        };
        true
    }
}
