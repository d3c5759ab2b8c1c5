//! The arrays of layout `cfo` with the inputs beside the state.

use std::path::Path;
use std::sync::Arc;

use super::controls::{checked_controls, read_controls};
use crate::store::container::array::{Array, Slab, shape_text};
use crate::{DataError, TrajectoryInputs};

/// The inputs of the trajectories of a file.
pub(super) struct InputArrays {
    parameters: Option<Box<dyn Array>>,
    /// The controls and their times.
    controls: Option<[Box<dyn Array>; 2]>,
    statics: Option<Box<dyn Array>>,
    /// The static fields that all trajectories share.
    shared: Option<Arc<[f32]>>,
}

impl InputArrays {
    /// Takes the arrays of inputs of `rows` trajectories on a grid. `absent` is the error that an array is missing.
    pub fn open(
        mut take: impl FnMut(&str) -> Option<Box<dyn Array>>,
        absent: impl Fn(&str) -> DataError,
        rows: usize,
        grid: &[usize],
    ) -> Result<Self, DataError> {
        let parameters = take("parameters");
        if let Some(parameters) = &parameters {
            let found = parameters.shape();
            if found.len() != 2 || found[0] != rows {
                return Err(parameters.origin().unfit(shape_text(found), format!("[{rows}, parameters]")));
            }
        }
        let controls = match (take("controls"), take("control_times")) {
            (None, None) => None,
            (Some(controls), Some(times)) => {
                let found = controls.shape();
                if found.len() != 3 || found[0] != rows {
                    let needed = format!("[{rows}, control times, controls]");
                    return Err(controls.origin().unfit(shape_text(found), needed));
                }
                Some(checked_controls(controls, times)?)
            }
            (Some(_), None) => return Err(absent("control_times")),
            (None, Some(_)) => return Err(absent("controls")),
        };
        let statics = take("statics");
        if let Some(statics) = &statics {
            check_statics(&**statics, rows, grid)?;
        }
        let mut arrays = Self { parameters, controls, statics, shared: None };
        if arrays.statics.as_ref().is_some_and(|statics| statics.shape()[0] == 1) {
            arrays.shared = arrays.statics(0)?;
        }
        Ok(arrays)
    }

    /// Numbers of parameters, controls and static fields.
    pub fn counts(&self) -> [usize; 3] {
        let last = |array: Option<&Box<dyn Array>>| {
            array.and_then(|array| array.shape().last().copied()).unwrap_or(0)
        };
        let controls = self.controls.as_ref().map(|[controls, _]| controls);
        [last(self.parameters.as_ref()), last(controls), last(self.statics.as_ref())]
    }

    /// Reads the inputs of a trajectory; `path` is that of the file, for messages.
    pub fn read(&self, path: &Path, trajectory: usize) -> Result<TrajectoryInputs, DataError> {
        let parameters = match &self.parameters {
            Some(all) => all.read_f64(&Slab::whole(all.shape()).narrow(0, trajectory, 1))?,
            None => Vec::new(),
        };
        let statics = match &self.shared {
            Some(shared) => Some(Arc::clone(shared)),
            None => self.statics(trajectory)?,
        };
        let inputs = TrajectoryInputs { statics, ..TrajectoryInputs::from(parameters) };
        match &self.controls {
            Some(arrays) => Ok(inputs.with_controls(read_controls(path, arrays, trajectory)?)),
            None => Ok(inputs),
        }
    }

    /// Reads a row of the static fields.
    fn statics(&self, row: usize) -> Result<Option<Arc<[f32]>>, DataError> {
        let read = |statics: &dyn Array| {
            statics.read_f32(&Slab::whole(statics.shape()).narrow(0, row, 1)).map(Arc::from)
        };
        self.statics.as_ref().map(|statics| read(&**statics)).transpose()
    }
}

/// Checks the shape of static fields on a grid.
fn check_statics(statics: &dyn Array, rows: usize, grid: &[usize]) -> Result<(), DataError> {
    let found = statics.shape();
    let [first, space @ .., count] = found else {
        return Err(statics.origin().unfit(shape_text(found), "[trajectories or 1, (space...,) statics]"));
    };
    if (*first != rows && *first != 1) || space != grid || *count == 0 {
        let sides: Vec<String> = grid.iter().map(|side| format!("{side}, ")).collect();
        let needed = format!("[{rows} or 1, {}statics], on the grid of `values`", sides.concat());
        return Err(statics.origin().unfit(shape_text(found), needed));
    }
    Ok(())
}
