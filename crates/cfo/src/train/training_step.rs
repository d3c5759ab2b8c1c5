//! A training step with its data and memory, for `cfo train`, dry runs and `cfo bench`.

use std::sync::Arc;

use cfo_device::Device;
use cfo_engine::{Data, Element, Graph, Memory, Node, Program, Role, Shape};

use super::collective;
use super::compiled::{CompiledStep, Kind};
use super::divergence::GRADIENT;
use super::gradients::Gradients;
use super::phase::Phase;
use super::solve::{self, SolverStep};
use super::step::step_graph;
use super::training_data::{TrainingData, VALUES};
use super::weights;
use super::witness::Witness;
use crate::error::{CfoError, Result};
use crate::model::{Method, Model};
use crate::operator::parameter_count;
use crate::recipe::Recipe;
use crate::trajectories::Trajectories;

/// A model, its training data and the graph of a training step, with the memory that holds their tensors.
pub struct TrainingStep {
    /// The model, measured on its data.
    pub model: Arc<Model>,
    /// The training data.
    pub data: TrainingData,
    /// The graph of a step; for training through an adaptive solver only the part that changes the weights.
    pub graph: Graph,
    /// The loss.
    pub loss: Node,
    /// The memory that holds the tensors.
    pub memory: Memory,
    pub(super) fingerprint: String,
    is_refined: bool,
}

impl TrainingStep {
    /// Reads, measures and scales the training part of a set in one pass, and builds the graph of a step.
    ///
    /// # Errors
    /// If recipe and data do not fit each other, or the device has an error.
    pub fn new(recipe: &Recipe, set: &Trajectories, device: Device) -> Result<Self> {
        Self::of(&Phase::all(&Method::of(recipe), set)?[0], set, device, None)
    }

    /// Builds the step of a phase, with the scaling of an existing model if there is one.
    pub(super) fn of(
        phase: &Phase,
        set: &Trajectories,
        device: Device,
        known: Option<&Model>,
    ) -> Result<Self> {
        let recipe = &phase.method.recipe;
        let mut memory = Memory::new(device, recipe.train.precision_on(device))?
            .with_determinism(recipe.train.deterministic)
            .with_collective(collective());
        let (model, data, fingerprint) = TrainingData::load(phase, set, &mut memory, known)?;
        // The file must not have changed between the passes.
        Witness::new(recipe, set, &fingerprint).read(|| Ok(()))?;
        Self::build(model, data, memory, fingerprint)
    }

    /// Builds the step of the next phase, with the data that are in memory.
    pub(super) fn followed_by(&mut self, phase: &Phase, set: &Trajectories) -> Result<Self> {
        if self.is_refined {
            // The next phase uses snapshots alone.
            let device = Device::of(&self.memory)?;
            let _ = self.memory.take(|name| name == VALUES);
            return Self::of(phase, set, device, Some(&self.model));
        }
        let memory = self.memory.take(|name| self.data.is_kept(name));
        let (model, data) = self.data.again(phase, set, &memory, &self.model);
        Self::build(model, data, memory, self.fingerprint.clone())
    }

    fn build(model: Model, data: TrainingData, memory: Memory, fingerprint: String) -> Result<Self> {
        let (graph, loss) = match Gradients::of(&model) {
            Gradients::AdaptiveSteps(through) => solve::update(&model, &data, through)?,
            _ => step_graph(&model, &data)?,
        };
        Ok(Self { model: Arc::new(model), data, graph, loss, memory, fingerprint, is_refined: false })
    }

    /// Replaces the data by data with filled states; all else stays. Returns the compiled step the first time.
    pub(super) fn refined(
        &mut self,
        data: TrainingData,
        values: &[f32],
        is_first: bool,
    ) -> Result<Option<CompiledStep>> {
        self.data = data;
        if is_first {
            let names = self.memory.names_where(|role| role.is_network() || role == Role::Optimizer);
            let kept: Vec<String> = names.chain([GRADIENT]).map(str::to_owned).collect();
            self.memory = self.memory.take(|name| kept.iter().any(|kept| kept == name));
            (self.graph, self.loss) = step_graph(&self.model, &self.data)?;
            self.is_refined = true;
        }
        self.memory.insert_real(VALUES, self.data.values_shape(&self.model), values)?;
        self.data.upload(&self.model, &mut self.memory)?;
        let refuse = |error| CfoError::of_step(error, self.model.recipe.train.batch);
        let compile = || Program::compile(&self.graph, &[], &self.memory).map_err(refuse);
        Ok(if is_first { Some(compile()?.into()) } else { None })
    }

    /// Initialises the weights that are not in memory yet.
    ///
    /// # Errors
    /// If the network does not fit into memory.
    pub fn initialize(&mut self) -> Result<()> {
        let refuse = |error| CfoError::of_network(error, parameter_count(&self.graph));
        self.memory.initialize(&self.graph, self.model.recipe.train.seed).map_err(refuse)
    }

    /// Returns the weights, their EMA and the optimiser's tensors, without the data.
    pub(crate) fn into_weights(self) -> Result<Memory> {
        weights::copied(&self.memory, &self.memory, |role| role.is_network() || role == Role::Optimizer)
    }

    /// Copies the remaining data into memory.
    ///
    /// # Errors
    /// If the device has an error.
    pub fn upload(&mut self) -> Result<()> {
        let zero = Data::F32(&[0.0]);
        self.memory.insert_as(Role::Optimizer, "train.loss", Element::Real, Shape::scalar(), zero)?;
        let zero = Data::F32(&[0.0]);
        self.memory.insert_as(Role::Scratch, GRADIENT, Element::Real, Shape::scalar(), zero)?;
        self.data.upload(&self.model, &mut self.memory)
    }

    /// Copies the remaining data into memory and compiles the step. Through an adaptive solver, its output is the loss.
    ///
    /// # Errors
    /// If the step does not fit into memory.
    pub fn compile(&mut self, outputs: &[Node]) -> Result<CompiledStep> {
        self.upload()?;
        let batch = self.model.recipe.train.batch;
        let refuse = |error| CfoError::of_step(error, batch);
        match Gradients::of(&self.model) {
            Gradients::Whole | Gradients::EqualSteps(_) => {
                let program = Program::compile(&self.graph, outputs, &self.memory).map_err(refuse)?;
                Ok(program.into())
            }
            Gradients::AdaptiveSteps(through) => {
                let step = SolverStep::compile(&self.model, &self.data, through, &mut self.memory);
                let step = step.map_err(|error| match error {
                    CfoError::Engine(error) => refuse(error),
                    other => other,
                })?;
                Ok(CompiledStep(Kind::Solved(Box::new(step))))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cfo_data::{Description, FieldShape, InputNames, Trajectory};

    use super::*;

    fn set(of: impl Fn(f64) -> f64) -> Trajectories {
        let times: Vec<f64> = (0..9).map(|i| f64::from(i) / 8.0).collect();
        let one = |shift: usize| {
            let values = times.iter().map(|&time| of(time + shift as f64) as f32).collect();
            Trajectory::new(times.clone(), values, vec![]).unwrap()
        };
        let description = Description {
            system: String::new(),
            shape: FieldShape::system(1),
            periodic: vec![],
            domain: vec![],
            channel_names: vec![],
            channel_units: vec![],
            inputs: InputNames::default(),
        };
        Trajectories::new(description, (0..10).map(one).collect()).unwrap()
    }

    /// Checks that fine-tuning uses the values in memory, even if the set has changed.
    #[test]
    fn a_later_part_of_a_training_reads_nothing_again() {
        let keys = ["operator.kind=mlp", "operator.hidden=[4]", "finetune.steps=1", "finetune.window=2"];
        let keys = keys.map(String::from);
        for stream in [false, true] {
            let mut recipe = Recipe::parse("", &keys).unwrap();
            recipe.data.stream = Some(stream);
            let (phases, device) = (Phase::all(&Method::of(&recipe), &set(f64::sin)).unwrap(), Device::Cpu);
            let mut first = TrainingStep::of(&phases[0], &set(f64::sin), device, None).unwrap();
            first.initialize().unwrap();
            first.compile(&[]).unwrap();
            let known = first.model.clone();
            let expected = TrainingStep::of(&phases[1], &set(f64::sin), device, Some(&known)).unwrap();
            let mut next = first.followed_by(&phases[1], &set(f64::exp)).unwrap();
            assert_eq!(next.model, expected.model);
            assert_eq!(next.fingerprint, expected.fingerprint);
            assert_eq!(first.memory.contains("data.values"), stream, "the values moved");
            if !stream {
                assert_eq!(
                    next.memory.read("data.values").unwrap(),
                    expected.memory.read("data.values").unwrap()
                );
            }
            next.initialize().unwrap();
            next.compile(&[]).unwrap();
        }
    }
}
