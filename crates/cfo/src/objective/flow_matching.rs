//! Flow matching on a temporal spline: the network learns the path's velocity, which a solver then integrates (the paper's method).

use std::sync::Arc;

use cfo_engine::{Graph, Node};
use cfo_numerics::{DrawBy, NoiseSchedule, Path, Spline};

use super::{Batch, Draw, Motion, Objective, ObjectiveConfig, Unit, Velocity};
use crate::error::Result;
use crate::model::Model;
use crate::recipe::{NoiseConfig, OutputUnit, PathConfig, Recipe};

/// Flow matching: the network learns the velocity of a spline through the snapshots, at random points of the spline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowMatching {
    /// How points of the spline are sampled.
    pub by: DrawBy,
    /// The spline and its stencil.
    pub path: Path,
    /// The noise between snapshots.
    pub noise: NoiseSchedule,
    /// The unit of the network's output and of the loss.
    pub unit: OutputUnit,
}

impl FlowMatching {
    pub(super) const NAME: &'static str = "flow-matching";

    /// Creates the objective from the section `[path]` of a recipe.
    pub fn new(config: &PathConfig) -> Self {
        Self { by: config.draw, path: config.path(), noise: config.schedule(), unit: config.unit }
    }

    /// Creates the objective with a spline and the paper's other settings.
    pub fn on(spline: Spline) -> Self {
        Self::new(&PathConfig { spline, ..PathConfig::default() })
    }

    /// Creates the objective with linear splines.
    pub fn linear() -> Self {
        Self::on(Spline::Linear)
    }

    /// Creates the objective with quintic splines, as in the paper.
    pub fn quintic() -> Self {
        Self::on(Spline::Quintic)
    }

    /// Sets the number of snapshots from which the derivatives at a snapshot are estimated.
    #[must_use]
    pub fn stencil(mut self, points: usize) -> Self {
        self.path.stencil = points;
        self
    }

    /// Sets the amplitude of the noise between snapshots, in normalised units.
    #[must_use]
    pub fn noise(mut self, amplitude: f64) -> Self {
        self.noise.amplitude = amplitude;
        self
    }

    /// Multiplies output and target by the weight of an error at their time: the speed to the power `1 - balance`. Weights are normalised
    /// so that a network whose output is 0 has a loss of 1.
    fn balance(
        &self,
        graph: &mut Graph,
        model: &Model,
        time: Node,
        [output, target]: [Node; 2],
    ) -> Result<[Node; 2]> {
        let (Some(profile), Some(balance)) = (&model.scaling.profile, self.unit.balance()) else {
            return Ok([output, target]);
        };
        let power = 1.0 - balance;
        let speed = profile.at(graph, time)?;
        let mean = profile.power_mean(power);
        let f = graph.formula();
        let weight = (f.var(speed).log() * power).exp() / f.constant([mean.len()], mean);
        Ok([(output * weight).node()?, (target * weight).node()?])
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
        let time = batch.context.time;
        let output = model.network(graph, batch.state, &batch.context)?;
        let target = model.in_units(graph, time, batch.target)?;
        let [output, target] = self.balance(graph, model, time, [output, target])?;
        batch.mean_squared_error(graph, output, target)
    }

    fn motion(&self) -> Arc<dyn Motion> {
        let unit = match self.unit {
            OutputUnit::State => Unit::State,
            OutputUnit::Velocity => Unit::Velocity,
            OutputUnit::AtTime(_) => Unit::VelocityAtTime,
        };
        Arc::new(Velocity { unit })
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        recipe.objective = ObjectiveConfig::FlowMatching;
        recipe.path = PathConfig {
            draw: self.by,
            spline: self.path.spline,
            stencil: self.path.stencil,
            unit: self.unit,
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
