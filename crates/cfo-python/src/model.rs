//! A trained model: loaded, asked, evaluated, saved.

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use cfo::data::FieldShape;
use cfo::recipe::EvaluateConfig;
use cfo::rollout::Divergence;
use cfo::{Budget, CfoError, Device, Request, Solver, Trained, Watch};
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::aligned::Aligned;
use crate::failure::{Failure, internal, refuse};
use crate::set::Set;
use crate::task::{self, Line};

/// Grids besides that of the training data that a model is kept ready for.
const MOST_GRIDS: usize = 4;

/// A trained model.
#[pyclass(frozen, module = "cfo._native")]
pub struct Model {
    trained: Trained,
    /// The same for other grids, the last used last.
    grids: Mutex<Vec<(FieldShape, Trained)>>,
}

impl Model {
    pub fn new(trained: Trained) -> Self {
        Self { trained, grids: Mutex::new(Vec::new()) }
    }

    /// For states of this shape.
    fn on_grid(&self, dimensions: &[usize]) -> Result<Trained, Failure> {
        let own = self.trained.model().shape();
        let shape = FieldShape::from_dimensions(dimensions)
            .filter(|shape| !shape.is_empty() && (shape.axes, shape.channels) == (own.axes, own.channels));
        let Some(shape) = shape else {
            return Err(refuse(
                format!("states have the shape {dimensions:?}, those of the model {:?}", own.dimensions()),
                "a state has the space axes and channels of the training data, a batch of states one axis more in front",
            ));
        };
        if shape == own {
            return Ok(self.trained.clone());
        }
        let mut grids = self.grids.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match grids.iter().position(|(known, _)| *known == shape) {
            Some(place) => grids.remove(place),
            None => (shape, self.trained.on_grid(shape)?),
        };
        if grids.len() == MOST_GRIDS {
            grids.remove(0);
        }
        let found = known.1.clone();
        grids.push(known);
        Ok(found)
    }
}

/// How a rollout is integrated, as a user says it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Integration {
    solver: Option<String>,
    steps: Option<usize>,
    nfe: Option<usize>,
    rtol: Option<f64>,
    atol: Option<f64>,
}

impl Integration {
    /// The solver that this describes; what is not said is the recipe's.
    fn solver(&self, trained: &Trained) -> Result<Solver, Failure> {
        let defaults = &trained.recipe().evaluate;
        let tableau = match &self.solver {
            Some(name) => Solver::method(name)?,
            None => trained.solver().tableau,
        };
        let adaptive = self.rtol.is_some() || self.atol.is_some();
        let bad = |key: &str, problem: String| CfoError::InvalidKey { key: key.into(), problem };
        if adaptive && (self.steps.is_some() || self.nfe.is_some()) {
            let problem = "tolerances choose the steps; a number of steps does too".into();
            return Err(bad("evaluate.rtol", problem).into());
        }
        if adaptive {
            let (rtol, atol) = (self.rtol.unwrap_or(defaults.rtol), self.atol.unwrap_or(defaults.atol));
            return Ok(Solver::adaptive(tableau, rtol, atol)?);
        }
        let evaluations = match (self.steps, self.nfe) {
            (Some(0), _) => return Err(refuse("`steps` is 0", "a rollout takes one step at least")),
            (Some(steps), _) => Some(steps.saturating_mul(tableau.stages())),
            (None, nfe) => nfe,
        };
        match (&self.solver, evaluations) {
            (None, None) => Ok(trained.solver()),
            (_, nfe) => {
                let config = EvaluateConfig { solver: tableau, nfe: nfe.unwrap_or(0), ..defaults.clone() };
                Ok(Solver::from_config(&config)?)
            }
        }
    }
}

/// A recipe's budget of evaluations is for the horizon of the training data: a part of it takes a part.
fn per_horizon(solver: Solver) -> Solver {
    match solver.budget {
        Budget::Evaluations(nfe) => Solver { budget: Budget::EvaluationsPerHorizon(nfe), ..solver },
        _ => solver,
    }
}

fn json_text(py: Python<'_>, value: serde_json::Result<Value>) -> PyResult<String> {
    value.map(|value| value.to_string()).map_err(|error| internal(py, &error.to_string()))
}

#[pymethods]
impl Model {
    /// Loads a checkpoint of a run.
    #[staticmethod]
    fn load(py: Python<'_>, run: PathBuf, checkpoint: Option<String>, device: String) -> PyResult<Self> {
        task::interruptible(py, move |_| {
            let mut loader = Trained::loader(run).device(Device::from_str(&device)?);
            if let Some(name) = checkpoint {
                loader = loader.checkpoint(name);
            }
            Ok(Self::new(loader.load()?))
        })
    }

    /// Writes the folder of a run.
    fn save(&self, py: Python<'_>, run: PathBuf) -> PyResult<()> {
        let trained = self.trained.clone();
        task::interruptible(py, move |_| Ok(trained.save(run)?))
    }

    /// States at times: those of the first trajectory, then of the next, flat; and network evaluations of one trajectory.
    #[allow(clippy::too_many_arguments)]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        states: PyReadonlyArray1<'py, f32>,
        shape: Vec<usize>,
        start: Vec<f64>,
        times: PyReadonlyArray1<'py, f64>,
        conditions: Vec<Vec<f64>>,
        integration: Integration,
    ) -> PyResult<(Bound<'py, PyArray1<f32>>, usize)> {
        let (states, times, count) = (states.as_slice()?.to_vec(), times.as_slice()?, start.len().max(1));
        let size: usize = shape.iter().product::<usize>().max(1);
        let request = Request {
            states: states.chunks(size).map(<[f32]>::to_vec).collect(),
            times: times.chunks((times.len() / count).max(1)).map(<[f64]>::to_vec).collect(),
            conditions,
            start,
        };
        let trained = task::at_once(py, || self.on_grid(&shape))?;
        let roll = move |line: &Line<(Aligned, usize)>| {
            let solver = integration.solver(&trained)?;
            let asked = integration.steps.or(integration.nfe).is_some();
            let trained = trained.with_solver(if asked { solver } else { per_horizon(solver) });
            let watch = Watch::default().with_interrupt(&line.interrupt);
            let found = trained.predict_each(&request, &watch)?;
            match found.diverged.first() {
                Some(&divergence) => Err(CfoError::from(divergence).into()),
                None => {
                    let states = found.states.iter().map(Vec::as_slice);
                    Ok((Aligned::concat(states), found.evaluations))
                }
            }
        };
        let (values, evaluations) = task::interruptible(py, roll)?;
        Ok((values.into_array(py)?, evaluations))
    }

    /// The velocity at states, flat, at one time or at one for each.
    fn velocity<'py>(
        &self,
        py: Python<'py>,
        states: PyReadonlyArray1<'py, f32>,
        shape: Vec<usize>,
        times: Vec<f64>,
        conditions: Vec<f64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let states = states.as_slice()?;
        let found = task::at_once(py, || {
            Ok(self.on_grid(&shape)?.with_parameters(&conditions).velocity_each(states, &times)?)
        })?;
        Aligned::concat([found.as_slice()]).into_array(py)
    }

    /// Vectors, one for each state, applied to the derivative of the velocity.
    fn vector_jacobian<'py>(
        &self,
        py: Python<'py>,
        states: PyReadonlyArray1<'py, f32>,
        shape: Vec<usize>,
        times: Vec<f64>,
        vectors: PyReadonlyArray1<'py, f32>,
        conditions: Vec<f64>,
    ) -> PyResult<Bound<'py, PyArray1<f32>>> {
        let (states, vectors) = (states.as_slice()?, vectors.as_slice()?);
        let found = task::at_once(py, || {
            let trained = self.on_grid(&shape)?.with_parameters(&conditions);
            Ok(trained.vector_jacobian_each(states, &times, vectors)?)
        })?;
        Aligned::concat([found.as_slice()]).into_array(py)
    }

    /// Errors of rollouts, as JSON, and what a user should know besides.
    fn evaluate(
        &self,
        py: Python<'_>,
        set: &Set,
        integration: Integration,
        metrics: bool,
    ) -> PyResult<(String, Vec<String>)> {
        let (trained, (set, chosen)) = (self.trained.clone(), set.shared());
        let compare = move |line: &Line<(serde_json::Result<Value>, Vec<String>)>| {
            if chosen.is_empty() {
                return Err(refuse("there is no trajectory to evaluate", "give a part that has some"));
            }
            let trained = trained.with_solver(integration.solver(&trained)?);
            let part = set.chosen(&chosen);
            let notes = cfo::Alignment::new(trained.model(), &set.description)?.notes;
            let watch = Watch::default().with_interrupt(&line.interrupt);
            let report = trained.evaluate_each(&part, metrics, watch)?;
            let watch = Watch::default().with_interrupt(&line.interrupt);
            let shorter = trained.shorter_steps(&part, &report, watch)?;
            let too_long = shorter.as_ref().and_then(cfo::ShorterSteps::problem);
            let too_long = too_long.map(|problem| format!("{problem}; `solver=\"tsit5\"` chooses its steps"));
            let strange = |(index, text): &(usize, String)| {
                format!("trajectory {index}: {text}; beyond that it extrapolates")
            };
            let strangers = report.strangers.iter().map(strange);
            let notes = notes.into_iter().chain(strangers).chain(too_long).collect();
            Ok((document(&trained, &report, shorter.as_ref()), notes))
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

    /// What is known besides, as JSON.
    #[getter]
    fn facts(&self, py: Python<'_>) -> PyResult<String> {
        let trained = &self.trained;
        let facts = task::at_once(py, || {
            let (model, scaling) = (trained.model(), &trained.model().scaling);
            Ok(json!({
                "system": model.system,
                "shape": model.shape().dimensions(),
                "channel_names": model.channel_names,
                "conditions": model.setting.conditions,
                "parameter_names": model.parameter_names,
                "parameter_ranges": model.parameter_ranges,
                "first_time": scaling.start,
                "last_time": scaling.last(),
                "parameters": model.parameters()?,
                "steps": trained.steps(),
                "device": trained.device()?.to_string(),
                "precision": trained.precision().to_string(),
                "solver": trained.solver().tableau.name,
            }))
        })?;
        Ok(facts.to_string())
    }
}

/// What `cfo evaluate --json` prints, but for the names of files.
fn document(
    trained: &Trained,
    report: &cfo::Report,
    shorter: Option<&cfo::ShorterSteps>,
) -> serde_json::Result<Value> {
    let diverged = |one: &Divergence| json!({ "trajectory": one.trajectory, "time": one.time, "reason": one.halt.to_string() });
    let mut document = serde_json::to_value(report)?;
    let entries = [
        ("solver", json!(trained.solver().tableau.name)),
        ("precision", json!(trained.precision().to_string())),
        ("trajectories", json!(report.relative_l2.indices.len())),
        ("diverged", report.diverged.iter().map(diverged).collect()),
    ];
    if let Some(document) = document.as_object_mut() {
        document.extend(entries.map(|(key, value)| (key.to_owned(), value)));
        document.extend(shorter.map(|shorter| ("shorter_steps".to_owned(), json!(shorter))));
    }
    Ok(document)
}
