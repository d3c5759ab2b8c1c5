//! The controls of files of layout `cfo` and of archives.

use std::path::Path;

use super::table::{names_of, numbered, taken};
use crate::store::container::array::{Array, Slab, read_row, shape_text};
use crate::store::container::hdf5::Hdf5;
use crate::store::container::zip::Member;
use crate::{Controls, DataError, Place};

/// Checks the shapes of controls and of their times.
pub(super) fn checked_controls(
    controls: Box<dyn Array>,
    times: Box<dyn Array>,
) -> Result<[Box<dyn Array>; 2], DataError> {
    let found = controls.shape();
    let (rows, count) = match *found {
        [rows, count, width] if rows * count * width > 0 => (rows, count),
        [count, width] if count * width > 0 => (1, count),
        _ => {
            return Err(controls
                .origin()
                .unfit(shape_text(found), "[trajectories, control times, controls]"));
        }
    };
    if times.shape() != [count] && times.shape() != [rows, count] {
        let needed = format!("[{count}] or [{rows}, {count}], as in `controls`");
        return Err(times.origin().unfit(shape_text(times.shape()), needed));
    }
    Ok([controls, times])
}

/// Reads a row of controls.
pub(super) fn read_controls(
    path: &Path,
    [controls, times]: &[Box<dyn Array>; 2],
    row: usize,
) -> Result<Controls, DataError> {
    let shape = controls.shape();
    let (count, width) = (shape[shape.len() - 2], shape[shape.len() - 1]);
    let whole = Slab::whole(shape);
    let mut values = controls.read_f64(&if shape.len() == 3 { whole.narrow(0, row, 1) } else { whole })?;
    let mut times = read_row(&**times, row, count)?;
    // Rows are padded with NaN.
    times.truncate(times.iter().rposition(|time| !time.is_nan()).map_or(0, |last| last + 1));
    values.truncate(times.len() * width);
    Controls::new(times, values).map_err(|source| DataError::Misfit {
        path: path.to_owned(),
        place: Box::new(Place::dataset("controls").in_trajectory(row)),
        source,
    })
}

/// Reads all controls of an HDF5 file, and their names.
pub(super) fn controls_of_hdf5(file: &Hdf5) -> Result<(Vec<String>, Vec<Controls>), DataError> {
    let controls = file.dataset("controls")?;
    let names = controls.texts("names")?;
    all_controls(file.path(), Box::new(controls), Box::new(file.dataset("control_times")?), names)
}

/// Reads all controls of an archive, and their names.
pub(super) fn controls_of_npz(
    path: &Path,
    members: Vec<Member>,
) -> Result<(Vec<String>, Vec<Controls>), DataError> {
    let found = names_of(&members);
    let mut members: Vec<Option<Member>> = members.into_iter().map(Some).collect();
    let absent = |name: &str| DataError::Absent {
        path: path.to_owned(),
        name: name.to_string(),
        found: found.clone(),
    };
    let mut take = |name: &str| taken(&mut members, name)?.ok_or_else(|| absent(name));
    let (controls, times) = (take("controls")?, take("control_times")?);
    let names = take("control_names").ok().map(|names| names.texts()).transpose()?;
    all_controls(path, Box::new(controls), Box::new(times), names)
}

fn all_controls(
    path: &Path,
    controls: Box<dyn Array>,
    times: Box<dyn Array>,
    names: Option<Vec<String>>,
) -> Result<(Vec<String>, Vec<Controls>), DataError> {
    let arrays = checked_controls(controls, times)?;
    let shape = arrays[0].shape();
    let (rows, width) = (if shape.len() == 3 { shape[0] } else { 1 }, shape[shape.len() - 1]);
    let names = names.unwrap_or_else(|| numbered("control", width));
    if names.len() != width {
        return Err(arrays[0].origin().unfit(format!("{} names", names.len()), width.to_string()));
    }
    Ok((names, (0..rows).map(|row| read_controls(path, &arrays, row)).collect::<Result<_, _>>()?))
}
