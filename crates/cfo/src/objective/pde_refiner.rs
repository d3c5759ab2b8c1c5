//! PDE-Refiner (Lippe and others, 2023): predicts the next state, then refines it by removing noise of decreasing amplitude.

use std::sync::Arc;

use cfo_engine::{Graph, Node};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::levels::Levels;
use super::uniform_grid::check_uniform;
use super::{Batch, Draw, Motion, MotionKind, NextState, Objective, ObjectiveConfig, Point, TimeInput, Unit};
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::operator::{Setting, StateSpace};
use crate::recipe::{Recipe, require};
use crate::trajectories::Trajectories;

/// PDE-Refiner: one network predicts the next snapshot on a uniform time grid and removes noise from the prediction.
///
/// Its inputs are the snapshot, the prediction to refine, and the number of the refinement in place of time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PdeRefiner {
    /// Number of refinements of a prediction. Each is one more network evaluation.
    pub refinements: usize,
    /// Standard deviation of the noise in the last refinement, in units of the predicted quantity. Refinement k of K has this number to the
    /// power k / K.
    pub deviation: f64,
    /// Whether the network predicts the change (residual), in units of its root mean square, instead of the next state.
    pub residual: bool,
    /// Quantity that the network predicts in a refinement: the `noise`, as in the paper's pseudo-code, or the `velocity` of a diffusion, as
    /// in the authors' program.
    pub form: RefinerForm,
}

/// The quantity that the network of PDE-Refiner predicts in a refinement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RefinerForm {
    /// The noise, as in the paper's pseudo-code: the first step predicts from nothing, each refinement draws new noise around the estimate.
    #[default]
    Noise,
    /// The velocity of a diffusion, as in the authors' program: the first step starts from noise, each refinement mixes the estimate with
    /// what it came from.
    Velocity,
}

impl Default for PdeRefiner {
    fn default() -> Self {
        Self { refinements: 3, deviation: 1e-3, residual: true, form: RefinerForm::Noise }
    }
}

impl PdeRefiner {
    pub(super) const NAME: &'static str = "pde-refiner";

    pub(super) fn check_keys(self) -> Result<()> {
        if self.refinements == 0 {
            let problem =
                "0 must be positive; `objective.kind = \"autoregressive\"` predicts without refinement";
            return Err(CfoError::invalid("objective.refinements", problem));
        }
        let deviation = self.deviation;
        require(deviation > 0.0 && deviation < 1.0, "objective.deviation", deviation, "must lie in (0, 1)")
    }

    fn next_state(self) -> NextState {
        NextState { residual: self.residual }
    }

    /// Returns the factor of the target and the standard deviation of the noise in the network's input, for each level. Level 0 is the
    /// first prediction, without an estimate, if the network predicts noise. It is the last refinement if the network predicts a velocity.
    fn levels(self) -> (Vec<f64>, Vec<f64>) {
        let last = self.refinements;
        let share = |level: usize| level as f64 / last as f64;
        match self.form {
            RefinerForm::Noise => {
                let deviation =
                    |level: usize| if level == 0 { 0.0 } else { self.deviation.powf(share(level)) };
                ((0..=last).map(|level| f64::from(level > 0)).collect(), (0..=last).map(deviation).collect())
            }
            RefinerForm::Velocity => {
                let kept = self.kept();
                (kept.iter().map(|a| a.sqrt()).collect(), kept.iter().map(|a| (1.0 - a).sqrt()).collect())
            }
        }
    }

    /// Returns the variance that each diffusion level adds, from the square of the smallest deviation to 1.
    fn added(self) -> Vec<f64> {
        let last = self.refinements as f64;
        (0..=self.refinements).map(|level| self.deviation.powf(2.0 * (last - level as f64) / last)).collect()
    }

    /// Returns the share of the target's variance that remains at each diffusion level.
    fn kept(self) -> Vec<f64> {
        let mut left = 1.0;
        self.added()
            .iter()
            .map(|added| {
                left *= 1.0 - added;
                left
            })
            .collect()
    }

    /// Appends the network on a snapshot and the noisy estimate; the point's time `[batch]` is that of the refinement.
    fn network(graph: &mut Graph, model: &Model, point: &Point, noised: Node) -> Result<Node> {
        let field = graph.concat(&[point.state, noised], 3)?;
        model.network(graph, field, &point.context)
    }

    fn at_level(
        self,
        graph: &mut Graph,
        model: &Model,
        point: &Point,
        (noised, level): (Node, usize),
    ) -> Result<Node> {
        let time = (graph.var(point.context.time) * 0.0 + level as f64 / self.refinements as f64).node()?;
        Self::network(graph, model, &point.at(time, point.state), noised)
    }

    /// Appends a first prediction and its refinements: each adds new noise to the estimate and subtracts the predicted noise.
    fn by_noise(self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let shape = graph.shape(point.state).axes().to_vec();
        let nothing = graph.constant(shape.clone(), vec![0.0; shape.iter().product()])?;
        let mut estimate = self.at_level(graph, model, point, (nothing, 0))?;
        let (_, deviations) = self.levels();
        for (level, &deviation) in deviations.iter().enumerate().skip(1) {
            let noise = point.noise.normal(graph, &shape, level as u32)?;
            let noised = (estimate + graph.var(noise) * deviation).node()?;
            let found = self.at_level(graph, model, point, (noised, level))?;
            estimate = (noised - graph.var(found) * deviation).node()?;
        }
        Ok(estimate)
    }

    /// Appends the denoising of random numbers through all diffusion levels. Each level mixes the estimate with the input of that level.
    fn by_velocity(self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let shape = graph.shape(point.state).axes().to_vec();
        let (added, kept) = (self.added(), self.kept());
        let mut state = point.noise.normal(graph, &shape, 0)?;
        for level in (0..=self.refinements).rev() {
            let velocity = self.at_level(graph, model, point, (state, level))?;
            let f = graph.formula();
            let rest = 1.0 - kept[level];
            let estimate = (f.var(state) * kept[level].sqrt() - f.var(velocity) * rest.sqrt()).node()?;
            if level == 0 {
                return Ok(estimate);
            }
            let noise = point.noise.normal(graph, &shape, 1 + level as u32)?;
            let f = graph.formula();
            let before = kept[level - 1];
            let share = f.var(estimate) * (before.sqrt() * added[level] / rest);
            let old = f.var(state) * ((1.0 - added[level]).max(0.0).sqrt() * (1.0 - before) / rest);
            let noise = f.var(noise) * (added[level] * (1.0 - before) / rest).max(1e-20).sqrt();
            state = (share + old + noise).node()?;
        }
        Ok(state)
    }
}

impl Objective for PdeRefiner {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn draw(&self) -> Draw {
        Draw::Neighbours
    }

    /// Appends the mean squared error at a random level per sample. If the network predicts noise, the target is the state itself at level
    /// 0 and the noise at the others. Otherwise it is the diffusion's velocity.
    fn loss(&self, graph: &mut Graph, model: &Model, batch: &Batch) -> Result<Node> {
        // The network gets another time than that of the data.
        let batch = &Batch { context: batch.context.settled(graph)?, ..*batch };
        let target = self.next_state().target(graph, model, batch)?;
        let shape = graph.shape(target).axes().to_vec();
        let (parts, deviations) = self.levels();
        let levels = Levels::draw(graph, &batch.noise, (shape[0], parts.len()), 0)?;
        let noise = batch.noise.normal(graph, &shape, 1)?;
        let (part, deviation) = (levels.pick(graph, &parts)?, levels.pick(graph, &deviations)?);
        let f = graph.formula();
        let noised = (f.var(target) * part + f.var(noise) * deviation).node()?;
        let times: Vec<f64> = (0..parts.len()).map(|level| level as f64 / self.refinements as f64).collect();
        let time = levels.pick(graph, &times)?;
        let time = graph.reshape(time, [shape[0]])?;
        let found = Self::network(graph, model, &batch.at(time, batch.state), noised)?;
        let [part, deviation] = graph.formula().vars([part, deviation]);
        let wanted = match self.form {
            RefinerForm::Noise => {
                let rest = 1.0 - part;
                noise * part + target * rest
            }
            RefinerForm::Velocity => noise * part - target * deviation,
        };
        let wanted = wanted.node()?;
        batch.mean_squared_error(graph, found, wanted)
    }

    fn motion(&self) -> Arc<dyn Motion> {
        Arc::new(*self)
    }

    /// Checks that all steps are equal. They may differ between trajectories if the step is a parameter.
    fn check(&self, data: &Trajectories, recipe: &Recipe) -> Result<()> {
        check_uniform(Self::NAME, data, recipe)
    }

    fn describe(&self, recipe: &mut Recipe) -> bool {
        recipe.objective = ObjectiveConfig::PdeRefiner(*self);
        true
    }
}

impl Motion for PdeRefiner {
    fn kind(&self) -> MotionKind {
        MotionKind::Step
    }

    fn unit(&self) -> Unit {
        self.next_state().unit()
    }

    fn append(&self, graph: &mut Graph, model: &Model, point: &Point) -> Result<Node> {
        let point = &Point { context: point.context.settled(graph)?, ..*point };
        let found = match self.form {
            RefinerForm::Noise => self.by_noise(graph, model, point)?,
            RefinerForm::Velocity => self.by_velocity(graph, model, point)?,
        };
        self.next_state().next(graph, model, point, found)
    }

    fn evaluations(&self) -> usize {
        self.refinements + 1
    }

    fn setting(&self, states: &StateSpace) -> Setting {
        let own = Setting::of(states);
        Setting { inputs: 2 * own.outputs, ..own }
    }

    fn time_input(&self) -> TimeInput {
        TimeInput::Own
    }
}
