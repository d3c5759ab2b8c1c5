//! Trained models: loading, prediction, evaluation, saving.

use std::path::PathBuf;
use std::str::FromStr;

use cfo::data::FieldShape;
use cfo::rollout::{Excursion, RolloutDivergence};
use cfo::{CfoError, Device, Request, SolverOptions, Trained, Watch};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::aligned::Aligned;
use crate::arrays::{GivenInputs, given};
use crate::failure::{WorkFailure, internal, refuse};
use crate::set::{Set, Values};
use crate::task::{self, TaskLine};

/// A trained model.
#[pyclass(frozen, name = "Model", module = "cfo._native")]
pub struct PythonModel {
    trained: Trained,
}

impl PythonModel {
    pub fn new(trained: Trained) -> Self {
        Self { trained }
    }

    /// Converts a user's states to values relative to the model's offset.
    fn relative(&self, states: &Values<'_>) -> PyResult<Vec<f32>> {
        let scaling = &self.trained.model().scaling;
        Ok(match states {
            Values::Single(states) if scaling.offset.is_empty() => states.as_slice()?.to_vec(),
            Values::Single(states) => {
                let states: Vec<f64> = states.as_slice()?.iter().map(|&value| f64::from(value)).collect();
                scaling.relative(&states)
            }
            Values::Double(states) => scaling.relative(states.as_slice()?),
        })
    }

    /// The model on a grid of this shape.
    fn on_grid(&self, dimensions: &[usize]) -> Result<Trained, WorkFailure> {
        let own = self.trained.model().shape();
        let shape = FieldShape::from_dimensions(dimensions).filter(|shape| {
            !shape.is_empty() && (shape.axes(), shape.channels) == (own.axes(), own.channels)
        });
        let Some(shape) = shape else {
            return Err(refuse(
                format!("states have the shape {dimensions:?}, those of the model {:?}", own.dimensions()),
                "a state has the space axes and channels of the training data; several states have a batch axis in front",
            ));
        };
        Ok(self.trained.on_grid(shape)?)
    }
}

/// Predicted states.
enum States {
    Single(Aligned),
    /// States in double precision, for a model with an offset.
    Double(Vec<f64>),
}

/// Options of a rollout's integration.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Integration {
    solver: Option<String>,
    steps: Option<usize>,
    nfe: Option<usize>,
    rtol: Option<f64>,
    atol: Option<f64>,
}

impl From<Integration> for SolverOptions {
    fn from(Integration { solver, steps, nfe, rtol, atol }: Integration) -> Self {
        Self { solver, steps, nfe, rtol, atol }
    }
}

fn json_text(py: Python<'_>, value: serde_json::Result<Value>) -> PyResult<String> {
    value.map(|value| value.to_string()).map_err(|error| internal(py, &error.to_string()))
}

#[pymethods]
impl PythonModel {
    /// Loads a checkpoint of a run. Returns a warning about the run's folder if there is one.
    #[staticmethod]
    fn load(
        py: Python<'_>,
        run: PathBuf,
        checkpoint: Option<String>,
        device: String,
    ) -> PyResult<(Self, Option<String>)> {
        task::interruptible(py, move |_| {
            let mut loader = Trained::loader(run).device(Device::from_str(&device)?);
            if let Some(name) = checkpoint {
                loader = loader.checkpoint(name);
            }
            Ok((Self::new(loader.load()?), loader.warning()))
        })
    }

    /// Saves the model as the folder of a run.
    fn save(&self, py: Python<'_>, run: PathBuf) -> PyResult<()> {
        let trained = self.trained.clone();
        task::interruptible(py, move |_| Ok(trained.save(run)?))
    }

    /// Predicts states at times, flat, trajectory by trajectory, with NaN after the end of a trajectory that ended
    /// early. Also returns messages about these trajectories and other notes. States are in double precision if the
    /// model has an offset.
    #[allow(clippy::too_many_arguments)]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        states: Values<'py>,
        shape: Vec<usize>,
        start: Vec<f64>,
        times: PyReadonlyArray1<'py, f64>,
        inputs: Vec<GivenInputs<'py>>,
        integration: Integration,
    ) -> PyResult<Found<'py>> {
        let (states, times, count) = (self.relative(&states)?, times.as_slice()?, start.len().max(1));
        let size: usize = shape.iter().product::<usize>().max(1);
        let request = Request {
            states: states.chunks(size).map(<[f32]>::to_vec).collect(),
            times: times.chunks((times.len() / count).max(1)).map(<[f64]>::to_vec).collect(),
            inputs: given(py, inputs)?,
            start,
        };
        let trained = task::at_once(py, || self.on_grid(&shape))?;
        let offset = trained.model().scaling.offset();
        let roll = move |line: &TaskLine<Predicted>| {
            let options = integration.into();
            let trained = trained.with_options(&options)?;
            let watch = Watch::default().with_interrupt(&line.interrupt);
            let mut found = trained.predict_each(&request, &watch)?;
            let ended = found.diverged.iter().map(|&one| CfoError::from(one).to_string()).collect();
            let asked = request.times.concat();
            let beyond = trained.model().beyond_times(&request.start, &asked);
            let notes = Excursion::warning(trained.model(), &found.excursions);
            let notes = beyond.into_iter().chain(notes).chain(trained.ignores(&options)).collect();
            for one in &found.diverged {
                let trajectory = one.trajectory;
                let (asked, reached) = (&request.times[trajectory], &found.times[trajectory]);
                found.states[trajectory] = padded(&found.states[trajectory], asked, reached, size);
            }
            let states = match offset.is_none() {
                true => States::Single(Aligned::concat(found.states.iter().map(Vec::as_slice))),
                false => States::Double(offset.absolute(&found.states.concat())),
            };
            Ok(Predicted { states, ended, notes })
        };
        let Predicted { states, ended, notes } = task::interruptible(py, roll)?;
        let states = match states {
            States::Single(states) => states.into_array(py)?.into_any(),
            States::Double(states) => PyArray1::from_vec(py, states).into_any(),
        };
        Ok((states, ended, notes))
    }

    /// The velocity at states, flat, at one time or at one time per state.
    fn velocity<'py>(
        &self,
        py: Python<'py>,
        states: Values<'py>,
        shape: Vec<usize>,
        times: Vec<f64>,
        inputs: GivenInputs<'py>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (states, inputs) = (self.relative(&states)?, given(py, vec![inputs])?.remove(0));
        let found = task::at_once(py, || {
            Ok(self.on_grid(&shape)?.with_inputs(&inputs).velocity(&states, &times)?)
        })?;
        Aligned::concat([found.as_slice()]).into_array(py)
    }

    /// The product of one vector per state with the derivative of the velocity.
    fn vector_jacobian<'py>(
        &self,
        py: Python<'py>,
        states: Values<'py>,
        shape: Vec<usize>,
        times: Vec<f64>,
        vectors: PyReadonlyArray1<'py, f32>,
        inputs: GivenInputs<'py>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (states, vectors) = (self.relative(&states)?, vectors.as_slice()?);
        let inputs = given(py, vec![inputs])?.remove(0);
        let found = task::at_once(py, || {
            let trained = self.on_grid(&shape)?.with_inputs(&inputs);
            Ok(trained.vector_jacobian(&states, &times, vectors)?)
        })?;
        Aligned::concat([found.as_slice()]).into_array(py)
    }

    /// Errors of rollouts, as JSON, and notes for the user.
    fn evaluate(
        &self,
        py: Python<'_>,
        set: &Set,
        integration: Integration,
        metrics: bool,
    ) -> PyResult<(String, Vec<String>)> {
        let (trained, (set, chosen)) = (self.trained.clone(), set.shared());
        let compare = move |line: &TaskLine<(serde_json::Result<Value>, Vec<String>)>| {
            if chosen.is_empty() {
                return Err(refuse("there are no trajectories to evaluate", "give a set that is not empty"));
            }
            let options = integration.into();
            let trained = trained.with_options(&options)?;
            let part = set.chosen(&chosen);
            let notes = cfo::Alignment::new(trained.model(), &set.description, set.offset())?.notes;
            let watch = Watch::default().with_interrupt(&line.interrupt);
            let report = trained.evaluate_each(&part, metrics, watch)?;
            let watch = Watch::default().with_interrupt(&line.interrupt);
            let shorter = trained.shorter_steps(&part, &report, watch)?;
            let too_long = shorter.as_ref().and_then(cfo::ShorterSteps::problem);
            let too_long =
                too_long.map(|problem| format!("{problem}; `solver=\"tsit5\"` chooses shorter steps"));
            let warnings = report.warnings(trained.model());
            let notes: Vec<String> =
                notes.into_iter().chain(warnings).chain(too_long).chain(trained.ignores(&options)).collect();
            Ok((document(&trained, &report, shorter.as_ref(), &notes), notes))
        };
        let (document, notes) = task::interruptible(py, compare)?;
        Ok((json_text(py, document)?, notes))
    }

    /// The recipe, as JSON.
    #[getter]
    fn recipe(&self, py: Python<'_>) -> PyResult<String> {
        json_text(py, serde_json::to_value(self.trained.recipe()))
    }

    /// The reports of the training, as JSON.
    #[getter]
    fn history(&self, py: Python<'_>) -> PyResult<String> {
        json_text(py, serde_json::to_value(self.trained.history()))
    }

    /// Further facts about the model, as JSON.
    #[getter]
    fn facts(&self, py: Python<'_>) -> PyResult<String> {
        let trained = &self.trained;
        let facts = task::at_once(py, || {
            let (model, scaling) = (trained.model(), &trained.model().scaling);
            Ok(json!({
                "system": model.system,
                "shape": model.shape().dimensions(),
                "channel_names": model.channel_names,
                "parameter_names": model.inputs.parameters,
                "control_names": model.inputs.controls,
                "static_names": model.inputs.statics,
                "first_time": scaling.start,
                "last_time": scaling.last(),
                "parameters": model.parameters()?,
                "steps": trained.weights_step(),
                "warnings": trained.warnings(),
                "device": trained.device()?.to_string(),
                "precision": trained.precision().to_string(),
                "solver": trained.solver().tableau.name,
                "double": !scaling.offset.is_empty(),
            }))
        })?;
        Ok(facts.to_string())
    }
}

/// States, messages about trajectories that ended early, and other notes.
type Found<'py> = (Bound<'py, PyAny>, Vec<String>, Vec<String>);

/// Result of a prediction.
struct Predicted {
    states: States,
    /// Messages about trajectories that ended early.
    ended: Vec<String>,
    /// Other notes for the user.
    notes: Vec<String>,
}

/// The states of a trajectory at all requested times, NaN at times that were not reached. Both lists of times have the
/// same order.
fn padded(states: &[f32], asked: &[f64], reached: &[f64], size: usize) -> Vec<f32> {
    let mut padded = vec![f32::NAN; asked.len() * size];
    let mut found = reached.iter().zip(states.chunks_exact(size)).peekable();
    for (time, place) in asked.iter().zip(padded.chunks_exact_mut(size)) {
        if let Some((_, state)) = found.next_if(|(reached, _)| *reached == time) {
            place.copy_from_slice(state);
        }
    }
    padded
}

/// The document that `cfo evaluate --json` prints, without file names.
fn document(
    trained: &Trained,
    report: &cfo::Report,
    shorter: Option<&cfo::ShorterSteps>,
    notes: &[String],
) -> serde_json::Result<Value> {
    let diverged = |one: &RolloutDivergence| json!({ "trajectory": one.trajectory, "time": one.time, "reason": one.halt.to_string() });
    let mut document = serde_json::to_value(report)?;
    let entries = [
        ("solver", json!(trained.solver().tableau.name)),
        ("precision", json!(trained.precision().to_string())),
        ("trajectories", json!(report.relative_l2.indices.len())),
        ("diverged", report.diverged.iter().map(diverged).collect()),
        ("warnings", json!(notes)),
    ];
    if let Some(document) = document.as_object_mut() {
        document.extend(entries.map(|(key, value)| (key.to_owned(), value)));
        document.extend(shorter.map(|shorter| ("shorter_steps".to_owned(), json!(shorter))));
    }
    Ok(document)
}
