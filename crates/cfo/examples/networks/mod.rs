//! Training steps of the paper's networks at their sizes, on smooth data.

use cfo::data::Trajectory;
use cfo::numerics::Grid;
use cfo::operator::{Dit, Fno, OperatorConfig};
use cfo::paper::{Edition, System};
use cfo::training::TrainingStep;
use cfo::{Device, Precision, Result, Trajectories};

/// What is trained.
pub struct Setup<'a> {
    pub network: &'a str,
    pub precision: Precision,
    pub batch: usize,
    pub trajectories: usize,
    /// Points along each space axis, if they are not the paper's.
    pub side: Option<usize>,
}

impl Setup<'_> {
    /// Returns the step with its data in memory and initial weights.
    pub fn step(&self, device: Device) -> Result<TrainingStep> {
        let (system, operator) = match self.network {
            "mlp" => ("lorenz", None),
            "unet1d" => ("burgers", None),
            "fno1d" => ("burgers", Some(OperatorConfig::Fno(Fno::default()))),
            "dit" => ("diffusion-reaction", Some(OperatorConfig::Dit(Dit::default()))),
            _ => ("diffusion-reaction", None),
        };
        let system = System::find(system)?;
        let mut recipe = system.recipe(Edition::Paper);
        recipe.operator = operator.unwrap_or(recipe.operator);
        recipe.data.stream = Some(false);
        (recipe.train.precision, recipe.train.batch) = (self.precision, self.batch);
        let mut step = TrainingStep::new(&recipe, &self.data(system)?, device)?;
        step.initialize()?;
        step.upload()?;
        Ok(step)
    }

    /// Returns sines of the time, with a phase for each trajectory and place.
    fn data(&self, system: &System) -> Result<Trajectories> {
        let mut description = system.equation().description();
        description.inputs.parameters.clear();
        let shape = &mut description.shape;
        if let Some(side) = self.side {
            shape.grid = Grid::new(&vec![side; shape.axes()]).expect("as many axes as before");
        }
        let (size, frames) = (shape.len(), if shape.axes() == 2 { 20 } else { 101 });
        let times: Vec<f64> = (0..frames).map(|frame| f64::from(frame) / f64::from(frames - 1)).collect();
        let one = |index: usize| {
            let phase = |place: usize| index as f64 + 0.618 * place as f64;
            let state = |&time: &f64| (0..size).map(move |place| (3.0 * time + phase(place)).sin() as f32);
            let values = times.iter().flat_map(state).collect();
            Trajectory::new(times.clone(), values, vec![]).expect("the times increase")
        };
        Trajectories::new(description, (0..self.trajectories).map(one).collect())
    }
}
