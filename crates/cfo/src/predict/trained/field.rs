//! The learned velocity as a function, and its vector-Jacobian products.

use cfo_engine::{Data, Element, Graph, Memory, Program, Role};

use super::Trained;
use crate::error::{CfoError, Result};
use crate::model::Model;
use crate::objective::MotionKind;
use crate::predict::evaluate::batch;

/// The compiled velocity and vector-Jacobian product for a batch size.
pub(super) struct Field {
    batch: usize,
    velocity: Program,
    vector_jacobian: Program,
}

fn name(batch: usize, what: &str) -> String {
    format!("field.{batch}.{what}")
}

impl Field {
    pub(super) fn new(model: &Model, memory: &mut Memory, batch: usize) -> Result<Self> {
        let (shape, name) = (model.batch_shape(batch), |what: &str| name(batch, what));
        model.insert_point(memory, batch, name, |count| vec![0.0; count])?;
        let zeros = vec![0.0; shape.iter().product()];
        memory.insert_as(Role::Scratch, &name("vector"), Element::Real, shape, Data::F32(&zeros))?;
        let mut graph = Graph::with_prefix(model.weight_prefix());
        let point = model.point(&mut graph, batch, name)?;
        let found = model.moved(&mut graph, &point)?;
        let velocity = Program::compile(&graph, &[found], memory)?;
        let vector = graph.input(&name("vector"), shape)?;
        let total = (graph.var(found) * vector).sum_all().node()?;
        let gradient = graph.gradients(total, &[point.state])?;
        let vector_jacobian = Program::compile(&graph, &gradient, memory)?;
        Ok(Self { batch, velocity, vector_jacobian })
    }

    pub(super) fn batch(&self) -> usize {
        self.batch
    }
}

impl Trained {
    /// Returns the learned right-hand side f at one or several states, in the user's units. There is one time for all states, or one per
    /// state. States are relative to the model's offset, as for [`Trained::predict`].
    ///
    /// # Errors
    /// If the states or the times do not fit, or the model predicts by fixed steps and has no velocity.
    pub fn velocity(&self, states: &[f32], times: &[f64]) -> Result<Vec<f32>> {
        self.in_field(states, times, None)
    }

    /// Returns vector-Jacobian products w^T df/du, with one vector w for each state.
    ///
    /// # Errors
    /// As [`Trained::velocity`], or if the number of vectors is not that of the states.
    pub fn vector_jacobian(&self, states: &[f32], times: &[f64], vectors: &[f32]) -> Result<Vec<f32>> {
        if vectors.len() != states.len() {
            return Err(CfoError::bad_data(
                format!("the vectors have {} values, but the states have {}", vectors.len(), states.len()),
                "give one vector, shaped like a state, for each state",
            ));
        }
        self.in_field(states, times, Some(vectors))
    }

    /// Evaluates the velocity or the products at one time, or at one time per state.
    fn in_field(&self, states: &[f32], times: &[f64], vectors: Option<&[f32]>) -> Result<Vec<f32>> {
        let model = &self.model;
        if model.motion().kind() != MotionKind::Velocity {
            return Err(CfoError::bad_data(
                "the model predicts snapshot after snapshot and has no velocity",
                "train with `objective.kind = \"flow-matching\"` for a model with a velocity",
            ));
        }
        let count = self.states(states)?.len();
        let times = match *times {
            [time] => vec![time; count],
            _ if times.len() == count => times.to_vec(),
            _ => {
                return Err(CfoError::bad_data(
                    format!("{} times for {count} states", times.len()),
                    "give one time for all states, or one time per state",
                ));
            }
        };
        let mut weights = self.lock();
        // Batch sizes are rounded up, so that few programs are compiled for many different numbers of states.
        let most = batch(model, weights.memory(), count).next_power_of_two();
        let (field, memory) = weights.field(model, most)?;
        let mut found = Vec::with_capacity(states.len());
        let size = model.shape().len();
        for (first, times) in (0..).step_by(most * size).zip(times.chunks(most)) {
            let part = first..first + times.len() * size;
            let vectors = vectors.map(|vectors| &vectors[part.clone()]);
            found.extend(self.in_batch((&mut *field, &mut *memory), &states[part], times, vectors)?);
        }
        Ok(found)
    }

    /// Evaluates at most as many states as a program takes; the rest of its batch is filled with zeros.
    fn in_batch(
        &self,
        (field, memory): (&mut Field, &mut Memory),
        states: &[f32],
        times: &[f64],
        vectors: Option<&[f32]>,
    ) -> Result<Vec<f32>> {
        let (model, scaling, count) = (&self.model, &self.model.scaling, field.batch);
        let mut scaled_times: Vec<f64> = times.iter().map(|&time| scaling.time(time)).collect();
        scaled_times.resize(count, 0.0);
        memory.write(&name(count, "time"), Data::F64(&scaled_times))?;
        let mut normalized = model.encode(states);
        normalized.resize(normalized.len() / times.len() * count, 0.0);
        memory.write(&name(count, "state"), Data::F32(&normalized))?;
        self.write_inputs(memory, &scaled_times, times)?;
        // The unit of normalised velocity is one deviation per unit of the network's time.
        let size = normalized.len() / count;
        let rates: Vec<f64> = times.iter().map(|&time| scaling.time_rate(time)).collect();
        let shape = model.shape();
        let decoded = |mut values: Vec<f32>| {
            if let Some(latent) = model.latent() {
                latent.decode(shape, &mut values);
            }
            values
        };
        let deviations = || scaling.deviation.iter().cycle();
        let Some(vectors) = vectors else {
            field.velocity.run(memory)?;
            let found = field.velocity.output_f64(0)?;
            let found = found.iter().zip(deviations()).take(states.len()).enumerate();
            let velocity = found.map(|(i, (v, deviation))| (v * deviation * rates[i / size]) as f32);
            return Ok(decoded(velocity.collect()));
        };
        // The transform is orthogonal, so vectors are transformed as values are.
        let mut vectors = vectors.to_vec();
        if let Some(latent) = model.latent() {
            latent.encode(shape, &mut vectors);
        }
        let scaled = vectors.iter().zip(deviations()).enumerate();
        let mut scaled: Vec<f64> =
            scaled.map(|(i, (&w, deviation))| f64::from(w) * deviation * rates[i / size]).collect();
        scaled.resize(normalized.len(), 0.0);
        memory.write(&name(count, "vector"), Data::F64(&scaled))?;
        field.vector_jacobian.run(memory)?;
        let found = field.vector_jacobian.output_f64(0)?;
        let found = found.iter().zip(deviations()).take(states.len());
        Ok(decoded(found.map(|(g, deviation)| (g / deviation) as f32).collect()))
    }

    /// Writes the inputs of a batch at normalised times, which are those of `times` and then others.
    fn write_inputs(&self, memory: &mut Memory, scaled_times: &[f64], times: &[f64]) -> Result<()> {
        let (model, count) = (&self.model, scaled_times.len());
        let ends = [f64::min, f64::max].map(|end| times.iter().copied().fold(times[0], end));
        model.check_covered(0, &self.inputs, ends)?;
        for (what, values) in
            [("conditions", model.conditions(&self.inputs)), ("statics", model.statics(&self.inputs))]
        {
            if !values.is_empty() {
                memory.write(&name(count, what), Data::F32(&values.repeat(count)))?;
            }
        }
        if let Some(signal) = model.signal(&self.inputs) {
            let controls: Vec<f64> = scaled_times.iter().flat_map(|&time| signal.at(time)).collect();
            memory.write(&name(count, "controls"), Data::F64(&controls))?;
        }
        Ok(())
    }
}
