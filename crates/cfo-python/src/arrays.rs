//! Values and inputs of trajectories from arrays.

use std::collections::HashMap;
use std::sync::Arc;

use cfo::data::{Controls, Offset, TrajectoryInputs};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::failure::refuse;

/// Times and values of controls, flat.
pub type ControlArrays = (Vec<f64>, Vec<f64>);

/// Inputs of a trajectory or of a state: PDE parameters, controls, static fields, flat.
pub type GivenInputs<'py> = (Vec<f64>, Option<ControlArrays>, Option<PyReadonlyArray1<'py, f32>>);

/// Creates the inputs of several trajectories or states. Those with the same array of static fields share one copy.
pub fn given(py: Python<'_>, all: Vec<GivenInputs<'_>>) -> PyResult<Vec<TrajectoryInputs>> {
    let mut known: HashMap<*const f32, Arc<[f32]>> = HashMap::new();
    let mut made = Vec::with_capacity(all.len());
    for (parameters, controls, statics) in all {
        let mut inputs = TrajectoryInputs::from(parameters);
        if let Some(statics) = &statics {
            let values = statics.as_slice()?;
            let shared = known.entry(values.as_ptr()).or_insert_with(|| values.into());
            inputs = inputs.with_statics(Arc::clone(shared));
        }
        if let Some((times, values)) = controls {
            let controls = Controls::new(times, values)
                .map_err(|error| refuse(error.to_string(), &error.hint().unwrap_or_default()).raise(py))?;
            inputs = inputs.with_controls(controls);
        }
        made.push(inputs);
    }
    Ok(made)
}

/// Converts a trajectory's values to single precision relative to an offset. Values beyond its range are an error.
pub fn single(
    py: Python<'_>,
    trajectory: usize,
    values: &[f64],
    offset: &Offset,
    size: usize,
) -> PyResult<Vec<f32>> {
    let mut single = vec![0.0; values.len()];
    offset.relative(values, &mut single);
    let beyond =
        single.iter().zip(values).position(|(single, value)| single.is_infinite() && value.is_finite());
    match beyond {
        None => Ok(single),
        Some(position) => Err(refuse(
            format!(
                "`values` of trajectory {trajectory} has {:e} at time {}, beyond the range of float32",
                values[position],
                position / size.max(1)
            ),
            "use other units for the channel, in which its values are below 1e38",
        )
        .raise(py)),
    }
}
