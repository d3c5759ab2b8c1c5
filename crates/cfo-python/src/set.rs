//! Trajectories from arrays, files and simulators.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cfo::data::store::{OutputLayout, TrajectoryWriter, WriteOptions};
use cfo::data::{
    DataError, Description, FieldShape, InputNames, Offset, Split, StoredTrajectory, Trajectory, simulate,
};
use cfo::{CfoError, Trajectories, paper};
use numpy::ndarray::ArrayView1;
use numpy::{PyArray1, PyArrayMethods, PyReadonlyArray1};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use serde_json::json;

use crate::arrays::{ControlArrays, GivenInputs, given, single};
use crate::failure::{WorkFailure, refuse};
use crate::task;

/// All or some trajectories of a set. Subsets share the memory of the set.
#[pyclass(frozen, module = "cfo._native")]
pub struct Set {
    set: Arc<Trajectories>,
    /// Positions in the set; `None` for all in order.
    chosen: Option<Vec<usize>>,
    /// The file from which all trajectories come.
    path: Option<PathBuf>,
}

impl Set {
    fn whole(set: Trajectories, path: Option<PathBuf>) -> Self {
        Self { set: Arc::new(set), chosen: None, path }
    }

    /// Converts a selection to a set of its own, without a copy if all are selected. To be called without the
    /// interpreter's lock, because it may copy.
    pub fn own((set, chosen): &(Arc<Trajectories>, Vec<usize>)) -> Arc<Trajectories> {
        match chosen.iter().copied().eq(0..set.trajectories.len()) {
            true => Arc::clone(set),
            false => Arc::new(set.subset(chosen)),
        }
    }

    /// The whole set, and the positions of these trajectories.
    pub fn shared(&self) -> (Arc<Trajectories>, Vec<usize>) {
        (Arc::clone(&self.set), self.positions().collect())
    }

    /// The file, if all of its trajectories are selected.
    pub fn file(&self) -> Option<PathBuf> {
        self.path.clone().filter(|_| self.chosen.is_none())
    }

    /// Position in the set of the trajectory with this index.
    fn position(&self, index: usize) -> PyResult<usize> {
        let known = match &self.chosen {
            None => Some(index).filter(|&index| index < self.set.trajectories.len()),
            Some(chosen) => chosen.get(index).copied(),
        };
        known.ok_or_else(|| PyIndexError::new_err(format!("there is no trajectory {index}")))
    }

    /// Positions of the trajectories in the set.
    fn positions(&self) -> impl Iterator<Item = usize> {
        let all = 0..self.chosen.as_ref().map_or(self.set.trajectories.len(), Vec::len);
        all.map(|index| self.chosen.as_ref().map_or(index, |chosen| chosen[index]))
    }
}

/// Properties of trajectories other than their numbers.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Labels {
    system: String,
    shape: Vec<usize>,
    periodic: Vec<bool>,
    domain: Vec<[f64; 2]>,
    channel_names: Vec<String>,
    channel_units: Vec<String>,
    parameter_names: Vec<String>,
    control_names: Vec<String>,
    static_names: Vec<String>,
}

impl Labels {
    fn description(self) -> Result<Description, WorkFailure> {
        let shape = FieldShape::from_dimensions(&self.shape).filter(|shape| !shape.is_empty());
        let Some(shape) = shape else {
            return Err(refuse(
                format!("snapshots have the shape {:?}", self.shape),
                "a snapshot is `[channels]`, `[points, channels]` or `[rows, columns, channels]`, with sizes above 0",
            ));
        };
        let labels = [&self.channel_names, &self.channel_units];
        let fits = self.periodic.len() == shape.axes()
            && self.domain.len() == shape.axes()
            && labels.iter().all(|names| names.is_empty() || names.len() == shape.channels);
        if !fits {
            return Err(refuse(
                format!(
                    "there are {} channel names, {} units, {} entries of `periodic` and {} of `domain`",
                    labels[0].len(),
                    labels[1].len(),
                    self.periodic.len(),
                    self.domain.len()
                ),
                &format!(
                    "a name and a unit for each of {} channels, an entry for each of {} space axes",
                    shape.channels,
                    shape.axes()
                ),
            ));
        }
        Ok(Description {
            system: self.system,
            shape,
            periodic: self.periodic,
            domain: self.domain,
            channel_names: self.channel_names,
            channel_units: self.channel_units,
            inputs: InputNames {
                parameters: self.parameter_names,
                controls: self.control_names,
                statics: self.static_names,
            },
        })
    }
}

/// Values in the precision of the given array.
#[derive(FromPyObject)]
pub enum Values<'py> {
    Single(PyReadonlyArray1<'py, f32>),
    Double(PyReadonlyArray1<'py, f64>),
}

/// Arrays of a trajectory: times, values, inputs.
type Arrays<'py> = (PyReadonlyArray1<'py, f64>, Values<'py>, GivenInputs<'py>);

#[pymethods]
impl Set {
    /// Creates a set from arrays, one entry per trajectory; values are flat.
    #[staticmethod]
    fn from_arrays(
        py: Python<'_>,
        labels: Labels,
        arrays: Vec<Arrays<'_>>,
        splits: Option<Vec<i64>>,
    ) -> PyResult<Self> {
        let mut doubles = Vec::new();
        for (_, values, _) in &arrays {
            if let Values::Double(values) = values {
                doubles.push(values.as_slice()?);
            }
        }
        let offset = Offset::suiting(labels.shape.last().copied().unwrap_or(1), doubles);
        let mut trajectories = Vec::with_capacity(arrays.len());
        let (arrays, inputs): (Vec<_>, Vec<_>) =
            arrays.into_iter().map(|(times, values, inputs)| ((times, values), inputs)).unzip();
        let arrays = arrays.into_iter().zip(given(py, inputs)?);
        for (index, ((times, values), inputs)) in arrays.enumerate() {
            let values = match values {
                Values::Single(values) if offset.is_none() => values.as_slice()?.to_vec(),
                Values::Single(values) => {
                    let mut values = values.as_slice()?.to_vec();
                    Offset::NONE.shift(&offset, &mut values);
                    values
                }
                Values::Double(values) => {
                    single(py, index, values.as_slice()?, &offset, labels.shape.iter().product())?
                }
            };
            trajectories.push(StoredTrajectory { times: times.as_slice()?.to_vec(), values, inputs });
        }
        task::at_once(py, || {
            let set = checked(labels.description()?, trajectories)?.with_offset(offset);
            Ok(Self::whole(
                match splits {
                    None => set,
                    Some(codes) => set.with_splits(codes.into_iter().map(part).collect::<Result<_, _>>()?)?,
                },
                None,
            ))
        })
    }

    /// Opens a file. Its values are read now if `in_memory` is true, otherwise when they are needed.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf, in_memory: bool) -> PyResult<Self> {
        task::interruptible(py, move |_| {
            let mut set = Trajectories::open(&path)?;
            if in_memory {
                set.load(&Split::ALL)?;
            }
            Ok(Self::whole(set, Some(path)))
        })
    }

    /// Simulates trajectories. `options` are fields of the system's configuration, with values as text; the counts of
    /// `split` are those of training, validation and test.
    #[staticmethod]
    fn simulate(
        py: Python<'_>,
        system: String,
        options: Vec<(String, String)>,
        samples: Option<usize>,
        split: Option<[usize; 3]>,
        seed: u64,
    ) -> PyResult<Self> {
        task::interruptible(py, move |line| {
            let equation = simulate::named(&system, &options)?;
            equation.check()?;
            let usual = paper::System::find(equation.name()).map_or([80, 10, 10], |system| system.counts());
            let splits = simulate::parts(samples, split, usual)?;
            let mut trajectories = Vec::new();
            simulate::run(&*equation, splits.len(), seed, &line.interrupt, |_, trajectory| {
                trajectories.push(trajectory);
                Ok::<(), CfoError>(())
            })?;
            let set = Trajectories::new(equation.description(), trajectories)?.with_splits(splits)?;
            Ok(Self::whole(set, None))
        })
    }

    fn __len__(&self) -> usize {
        self.positions().count()
    }

    /// A subset, which shares the memory.
    fn subset(&self, positions: Vec<usize>) -> PyResult<Self> {
        let chosen = positions.into_iter().map(|index| self.position(index)).collect::<PyResult<_>>()?;
        Ok(Self { set: Arc::clone(&self.set), chosen: Some(chosen), path: None })
    }

    /// Times of a trajectory.
    fn times<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyArray1<f64>>> {
        Ok(PyArray1::from_slice(py, &self.set.trajectories[self.position(index)?].times))
    }

    /// Values of a trajectory, flat. This is a read-only view of the set's memory, or an array read from the file, or
    /// an array in double precision if there is an offset.
    #[allow(unsafe_code)]
    fn values<'py>(this: &Bound<'py, Self>, index: usize) -> PyResult<Bound<'py, PyAny>> {
        let (py, own) = (this.py(), this.get());
        let position = own.position(index)?;
        if !own.set.offset().is_none() {
            let set = Arc::clone(&own.set);
            let read = move |_: &task::TaskLine<Vec<f64>>| {
                Ok(set.offset().absolute(&set.trajectory(position)?.values))
            };
            return Ok(PyArray1::from_vec(py, task::interruptible(py, read)?).into_any());
        }
        let held = &own.set.trajectories[position].values;
        if held.is_empty() {
            let set = Arc::clone(&own.set);
            let read = move |_: &task::TaskLine<Vec<f32>>| Ok(set.trajectory(position)?.into_owned().values);
            return Ok(PyArray1::from_vec(py, task::interruptible(py, read)?).into_any());
        }
        // SAFETY: the array keeps `this` alive, which is frozen and holds the set; nothing changes a set.
        let view = unsafe { PyArray1::borrow_from_array(&ArrayView1::from(held), this.clone().into_any()) };
        view.try_readwrite()?.make_nonwriteable();
        Ok(view.into_any())
    }

    /// PDE parameters of a trajectory.
    fn parameters(&self, index: usize) -> PyResult<Vec<f64>> {
        Ok(self.set.trajectories[self.position(index)?].inputs.parameters.clone())
    }

    /// Controls of a trajectory: their times, and the values, flat.
    fn controls(&self, index: usize) -> PyResult<Option<ControlArrays>> {
        let controls = &self.set.trajectories[self.position(index)?].inputs.controls;
        Ok(controls.as_ref().map(|own| (own.times().to_vec(), own.values().to_vec())))
    }

    /// Static fields of a trajectory, flat.
    fn statics<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Option<Bound<'py, PyArray1<f32>>>> {
        let statics = &self.set.trajectories[self.position(index)?].inputs.statics;
        Ok(statics.as_ref().map(|own| PyArray1::from_slice(py, own)))
    }

    /// Number of snapshots of each trajectory.
    #[getter]
    fn lengths(&self) -> Vec<usize> {
        self.positions().map(|position| self.set.trajectories[position].times.len()).collect()
    }

    /// The part of each trajectory: 0 training, 1 validation, 2 test.
    #[getter]
    fn splits(&self) -> Vec<i8> {
        self.positions().map(|position| self.set.splits[position].code()).collect()
    }

    /// Whether a file or the caller gave the split.
    #[getter]
    fn has_splits(&self) -> bool {
        self.set.has_splits()
    }

    /// The shape of a snapshot.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        self.set.description.shape.dimensions()
    }

    /// Warnings about the file.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.set.warnings().to_vec()
    }

    /// The file from which all trajectories come.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.file()
    }

    /// The common description of all trajectories, as JSON.
    #[getter]
    fn labels(&self) -> String {
        let description = &self.set.description;
        json!({
            "system": description.system,
            "shape": description.shape.dimensions(),
            "periodic": description.periodic,
            "domain": description.domain,
            "channel_names": description.channel_names,
            "channel_units": description.channel_units,
            "parameter_names": description.inputs.parameters,
            "control_names": description.inputs.controls,
            "static_names": description.inputs.statics,
        })
        .to_string()
    }

    /// Writes a file: `.npz` if the name ends so, otherwise HDF5.
    fn save(&self, py: Python<'_>, path: PathBuf, force: bool) -> PyResult<()> {
        let (set, chosen) = self.shared();
        task::interruptible(py, move |_| write(&set, &chosen, &path, force))
    }
}

/// Creates trajectories from numbers after checking them for defects.
fn checked(description: Description, stored: Vec<StoredTrajectory>) -> Result<Trajectories, WorkFailure> {
    if stored.is_empty() {
        return Err(refuse("there are no trajectories", "give at least one"));
    }
    let mut trajectories = Vec::with_capacity(stored.len());
    for (index, one) in stored.into_iter().enumerate() {
        if one.values.len() == one.times.len() * description.shape.len()
            && let Some(defect) = one.defects(&description.shape).first.into_iter().next()
        {
            return Err(DataError::defect(Path::new("values"), defect.in_trajectory(index)).into());
        }
        let StoredTrajectory { times, values, inputs } = one;
        let made = Trajectory::new(times, values, inputs);
        trajectories.push(made.map_err(|error| {
            refuse(
                format!("trajectory {index}: {error}"),
                &error.hint().unwrap_or_else(|| "remove the trajectory".into()),
            )
        })?);
    }
    Ok(Trajectories::new(description, trajectories)?)
}

fn part(code: i64) -> Result<Split, WorkFailure> {
    let unknown = || {
        refuse(
            format!("`split` holds {code}"),
            "use 0 for training, 1 for validation and 2 for test, or the words `train`, `validation` and `test`",
        )
    };
    Split::from_code(code).ok_or_else(unknown)
}

fn write(set: &Trajectories, chosen: &[usize], path: &Path, force: bool) -> Result<(), WorkFailure> {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
    let layout = match extension.as_deref() {
        Some("npz") => OutputLayout::Npz,
        Some("h5" | "hdf5" | "hdf" | "he5") => OutputLayout::Cfo,
        _ => {
            return Err(refuse(
                format!("the name of the output file is `{}`", path.display()),
                "choose a name that ends with `.h5`, `.hdf5` or `.npz`",
            ));
        }
    };
    let lengths = || chosen.iter().map(|&index| set.trajectories[index].times.len());
    let (frames, offset) = (lengths().max(), set.offset().clone());
    let options = WriteOptions { layout, force, frames, offset, ..WriteOptions::default() };
    let mut writer = TrajectoryWriter::create(path, &set.description, options)?;
    for &index in chosen {
        let split = set.has_splits().then(|| set.splits[index]);
        writer.push(&*set.trajectory(index)?, split)?;
    }
    Ok(writer.finish()?)
}
