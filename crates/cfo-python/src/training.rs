//! Training with a recipe from files and keywords, and reports on the caller's thread.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use cfo::data::store::TrajectoryFile;
use cfo::proposal::{Machine, Proposal};
use cfo::{CfoError, Device, Observer, Recipe, Run, StepReport, Training, Trajectories};
use pyo3::prelude::*;
use serde_json::Value;

use crate::failure::{WorkFailure, refuse};
use crate::model::PythonModel;
use crate::set::Set;
use crate::task::{self, TaskLine};

/// Arguments of a training.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TrainingOrder {
    /// A recipe as TOML.
    recipe: Option<String>,
    /// A recipe as JSON.
    recipe_json: Option<String>,
    /// Name of the recipe in messages.
    origin: Option<String>,
    /// Pairs of a key and a value, as JSON; later ones have priority.
    assignments: String,
    /// Number of steps given by keyword. A proposed recipe is made for this number.
    steps: Option<u32>,
    device: String,
    out: Option<PathBuf>,
    resume: bool,
    /// Whether to return the latest weights instead of the best.
    latest: bool,
}

/// Trains a model. `hear` is called with `report` or `notice` and a text, and returns whether to continue.
#[pyfunction]
pub fn train(
    py: Python<'_>,
    set: Option<&Set>,
    order: TrainingOrder,
    hear: Py<PyAny>,
) -> PyResult<PythonModel> {
    let data = set.map(|set| (set.shared(), set.file()));
    let work =
        move |line: &TaskLine<PythonModel>| order.train(data.map(|(set, file)| (Set::own(&set), file)), line);
    task::attended(py, work, |py, kind, text| hear.call1(py, (kind, text))?.extract(py))
}

/// The recipe proposed for trajectories, as `cfo init` writes it.
#[pyfunction]
pub fn propose(py: Python<'_>, set: &Set) -> PyResult<String> {
    let (set, file) = (set.shared(), set.file());
    task::interruptible(py, move |_| Ok(proposal(&Set::own(&set), file.as_deref())?.to_toml()?))
}

type Data = Option<(Arc<Trajectories>, Option<PathBuf>)>;

impl TrainingOrder {
    fn train(&self, data: Data, line: &TaskLine<PythonModel>) -> Result<PythonModel, WorkFailure> {
        cfo::ranks::require_joined()?;
        if self.out.is_some() {
            // The folder may belong to a training that continues after Ctrl-C.
            task::settle();
        }
        let device = Device::from_str(&self.device)?;
        let mut recipe = self.recipe(&data, line)?;
        let set = match data {
            None => Arc::new(Trajectories::from_recipe(&recipe, None, &line.interrupt)?),
            Some((set, file)) => {
                if let Some(system) = recipe.data.simulate.take() {
                    line.send(
                        "notice",
                        format!("`data.simulate = \"{system}\"` of the recipe is not used: data were given"),
                    );
                }
                recipe.data.path = file;
                divided(set, &recipe)?
            }
        };
        let mut observer = Reporter(line);
        let mut training = Training::from_recipe(&recipe)
            .device(device)
            .resume(self.resume)
            .latest(self.latest)
            .interrupt(&line.interrupt)
            .observer(&mut observer);
        if let Some(folder) = &self.out {
            training = training.folder(folder);
        }
        Ok(PythonModel::new(training.fit(&set)?))
    }

    /// The given recipe, the run's recipe when it is resumed, or the proposed one; with the changes of the keywords.
    fn recipe(&self, data: &Data, line: &TaskLine<PythonModel>) -> Result<Recipe, WorkFailure> {
        let own = self.out.as_ref().map(|out| Run::at(out).recipe_path());
        let own = own.filter(|own| self.resume && own.exists());
        let text = match (&self.recipe, &self.recipe_json, own, data) {
            (Some(text), ..) => text.clone(),
            (None, Some(document), ..) => toml_of(document)?,
            (None, None, Some(own), _) => std::fs::read_to_string(own)?,
            (None, None, None, Some((set, file))) => {
                let proposal = proposal(set, file.as_deref())?;
                for warning in proposal.warnings() {
                    line.send("notice", warning.clone());
                }
                let proposal = self.steps.map_or(proposal.clone(), |steps| proposal.for_steps(steps));
                proposal.to_toml()?
            }
            (None, None, None, None) => {
                return Err(refuse(
                    "neither a recipe nor data were given",
                    "give trajectories, or a recipe that names a file or a system",
                ));
            }
        };
        let origin = self.origin.as_deref().unwrap_or("the recipe for the data");
        let overrides = self.overrides()?;
        Recipe::parse(&text, &overrides)
            .map_err(|error| WorkFailure::from(error).context(format!("reading {origin}")))
    }

    /// The assignments as `key=value`, in TOML.
    fn overrides(&self) -> Result<Vec<String>, WorkFailure> {
        let pairs: Vec<(String, Value)> = serde_json::from_str(&self.assignments).map_err(not_a_recipe)?;
        pairs.into_iter().map(|(key, value)| Ok(format!("{key}={}", toml_value(value)?))).collect()
    }
}

/// Sends reports to the waiting thread.
struct Reporter<'a>(&'a TaskLine<PythonModel>);

impl Observer for Reporter<'_> {
    fn report(&mut self, report: &StepReport) -> ControlFlow<()> {
        let text = serde_json::to_string(report).unwrap_or_default();
        if self.0.send("report", text) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }

    fn notice(&mut self, text: &str) {
        self.0.send("notice", text.to_owned());
    }
}

fn proposal(set: &Arc<Trajectories>, file: Option<&Path>) -> Result<Proposal, WorkFailure> {
    let file = match (file, set.is_in_file()) {
        (Some(path), _) => TrajectoryFile::open(path)?,
        (None, false) => TrajectoryFile::held(Arc::clone(set) as _)?,
        (None, true) => {
            let mut held = (**set).clone();
            held.load(&cfo::data::Split::ALL)?;
            TrajectoryFile::held(Arc::new(held))?
        }
    };
    Ok(Proposal::new(&file, Machine::here())?)
}

/// The set, divided as the recipe defines. Values are copied only if that changes the existing division.
fn divided(set: Arc<Trajectories>, recipe: &Recipe) -> Result<Arc<Trajectories>, WorkFailure> {
    let asked = recipe.data.split.is_some() || recipe.data.shuffle;
    let few = set.trajectories.len() <= 2;
    if set.has_splits() && recipe.data.split.is_none() || !asked && !few {
        return Ok(set);
    }
    Ok(Arc::new((*set).clone().divided_by(recipe)?))
}

fn not_a_recipe(error: impl std::fmt::Display) -> WorkFailure {
    CfoError::BadRecipe { problem: error.to_string() }.into()
}

/// Converts a recipe from JSON to TOML.
fn toml_of(document: &str) -> Result<String, WorkFailure> {
    let value = toml_value(serde_json::from_str(document).map_err(not_a_recipe)?)?;
    toml::to_string(&value).map_err(not_a_recipe)
}

/// Converts a value to TOML, which has no `null`: keys without a value are left out.
fn toml_value(value: Value) -> Result<toml::Value, WorkFailure> {
    Ok(match value {
        Value::Null => return Err(not_a_recipe("a value is `None`")),
        Value::Bool(value) => value.into(),
        Value::String(text) => text.into(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(real)) => real.into(),
            (None, None) => return Err(not_a_recipe(format!("{number} is out of range"))),
        },
        Value::Array(values) => {
            toml::Value::Array(values.into_iter().map(toml_value).collect::<Result<_, _>>()?)
        }
        Value::Object(entries) => {
            let kept = entries.into_iter().filter(|(_, value)| !value.is_null());
            toml::Value::Table(
                kept.map(|(key, value)| Ok((key, toml_value(value)?))).collect::<Result<_, WorkFailure>>()?,
            )
        }
    })
}
