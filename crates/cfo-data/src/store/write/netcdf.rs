//! Writing NetCDF-4 with the CF conventions: HDF5 with coordinates for axes and a variable for each channel.

use super::channels::Channels;
use super::grid::{axis_names, centres, dataset_names};
use super::hdf5::{Hdf5Dataset, Hdf5Group};
use super::table::{TableColumns, WrittenTimes};
use super::{Compression, Head, LayoutOutput, WriteOptions};
use crate::{DataError, Description, Split};

/// Names that channels and parameters must not use.
const TAKEN: [&str; 9] = ["trajectory", "frame", "time", "length", "split", "x", "y", "x_bounds", "y_bounds"];

/// A NetCDF file that is being written.
pub(crate) struct NetcdfOutput {
    root: Hdf5Group,
    description: Description,
    compression: Compression,
    /// Frames of every row, if known in advance; otherwise rows grow.
    frames: Option<usize>,
    channels: Option<Channels>,
    times: WrittenTimes,
    columns: TableColumns,
}

/// Coordinates along the axes of the variables.
struct Scales {
    trajectory: Hdf5Dataset,
    /// Times, if all trajectories share them; otherwise indices of snapshots.
    frame: Hdf5Dataset,
    space: Vec<Hdf5Dataset>,
}

impl NetcdfOutput {
    pub fn new(root: Hdf5Group, description: &Description, options: &WriteOptions) -> Self {
        Self {
            root,
            description: description.clone(),
            compression: options.compression,
            frames: options.frames,
            channels: None,
            times: WrittenTimes::None,
            columns: TableColumns::default(),
        }
    }

    fn write_scales(&self, root: &Hdf5Group) -> Result<Scales, DataError> {
        let count = self.columns.lengths.len();
        let frames = self.frames.unwrap_or(self.columns.longest());
        let numbers = |count: usize| (0..count as i64).collect::<Vec<_>>();
        let trajectory = scale(root, "trajectory", &numbers(count), 0)?;
        trajectory.text("long_name", "trajectory")?;
        let frame = match &self.times {
            WrittenTimes::Shared(times) if times.len() == frames => {
                let time = scale(root, "time", times, 1)?;
                time.text("long_name", "time")?;
                time.text("axis", "T")?;
                time
            }
            _ => scale(root, "frame", &numbers(frames), 1)?,
        };
        let shape = self.description.shape;
        let mut space = Vec::new();
        for (axis, name) in axis_names(&shape).iter().enumerate() {
            let points = centres(self.description.domain[axis], shape.dimensions()[axis]);
            let along = scale(root, name, &points, 2 + axis as i32)?;
            along.text("axis", &name.to_uppercase())?;
            along.text("bounds", &format!("{name}_bounds"))?;
            space.push(along);
        }
        self.write_bounds(root, &space)?;
        Ok(Scales { trajectory, frame, space })
    }

    /// Writes the bounds of each cell; the first and last bounds are those of the domain.
    fn write_bounds(&self, root: &Hdf5Group, space: &[Hdf5Dataset]) -> Result<(), DataError> {
        if space.is_empty() {
            return Ok(());
        }
        let edge = root.dataset("edge", &[2], &[0f32; 2])?;
        // The name that the NetCDF library gives an axis without coordinates.
        edge.make_scale(&format!("This is a netCDF dimension but not a netCDF variable.{:>10}", 2))?;
        edge.number("_Netcdf4Dimid", 4i32)?;
        let shape = self.description.shape;
        for (axis, name) in axis_names(&shape).iter().enumerate() {
            let (points, [low, high]) = (shape.dimensions()[axis], self.description.domain[axis]);
            let at = |index: usize| match index == points {
                true => high,
                false => low + (high - low) * index as f64 / points as f64,
            };
            let bounds: Vec<f64> = (0..points).flat_map(|index| [at(index), at(index + 1)]).collect();
            let dataset = root.dataset(&format!("{name}_bounds"), &[points, 2], &bounds)?;
            dataset.attach(0, &space[axis])?;
            dataset.attach(1, &edge)?;
        }
        Ok(())
    }

    /// Writes the per-trajectory data other than snapshots; returns their names.
    fn write_columns(&self, root: &Hdf5Group, trajectory: &Hdf5Dataset) -> Result<Vec<String>, DataError> {
        let TableColumns { lengths, splits, .. } = &self.columns;
        let (count, mut beside) = (lengths.len(), Vec::new());
        let mut push = |name: &str, dataset: Hdf5Dataset| {
            beside.push(name.to_string());
            dataset.attach(0, trajectory)
        };
        if self.columns.are_ragged(self.frames.unwrap_or(self.columns.longest())) {
            let dataset = root.dataset("length", &[count], lengths)?;
            dataset.text("long_name", "number of snapshots")?;
            push("length", dataset)?;
        }
        if !splits.is_empty() {
            let dataset = root.dataset("split", &[count], splits)?;
            dataset.numbers("flag_values", &Split::ALL.map(Split::code))?;
            dataset.text("flag_meanings", "train validation test")?;
            push("split", dataset)?;
        }
        let own = &self.description.inputs.parameters;
        let mut taken: Vec<&str> = TAKEN.to_vec();
        let channels = self.channels.iter().flat_map(|channels| &channels.rows);
        taken.extend(channels.map(|(name, _)| name.as_str()));
        for (index, name) in dataset_names(own, &taken).iter().enumerate() {
            let dataset = root.dataset(name, &[count], &self.columns.parameter(index, own.len()))?;
            dataset.text("long_name", &own[index])?;
            push(name, dataset)?;
        }
        Ok(beside)
    }
}

/// Coordinates along an axis, with NetCDF's index of the axis.
fn scale<T: rust_hdf5::H5Type>(
    root: &Hdf5Group,
    name: &str,
    points: &[T],
    number: i32,
) -> Result<Hdf5Dataset, DataError> {
    let dataset = root.dataset(name, &[points.len()], points)?;
    dataset.make_scale(name)?;
    dataset.number("_Netcdf4Dimid", number)?;
    Ok(dataset)
}

impl LayoutOutput for NetcdfOutput {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        let frames = self.frames.unwrap_or(head.times.len());
        let root = &self.root;
        if self.channels.is_none() {
            let rows = (frames, self.frames.is_none());
            self.channels = Some(Channels::create(root, &self.description, &TAKEN, rows, self.compression)?);
        }
        self.times.push(root, "time", head.times, self.columns.lengths.len(), self.frames)?;
        self.columns.push(head);
        self.channels.as_mut().map_or(Ok(()), |channels| channels.start(head))
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        self.channels.as_mut().map_or(Ok(()), |channels| channels.write(values))
    }

    fn complete(&mut self) -> Result<(), DataError> {
        let root = &self.root;
        root.text("Conventions", "CF-1.11")?;
        root.text("title", &self.description.system)?;
        if self.description.shape.axes() > 0 {
            let periodic: Vec<i64> = self.description.periodic.iter().map(|&flag| i64::from(flag)).collect();
            root.numbers("periodic", &periodic, &[periodic.len()])?;
        }
        let scales = self.write_scales(root)?;
        let mut beside = self.write_columns(root, &scales.trajectory)?;
        if let WrittenTimes::Rows(rows) = &self.times {
            rows.dataset.text("long_name", "time")?;
            rows.dataset.numbers("_FillValue", &[f64::NAN])?;
            rows.dataset.attach(0, &scales.trajectory)?;
            rows.dataset.attach(1, &scales.frame)?;
            beside.insert(0, "time".to_string());
        }
        for (_, row) in self.channels.iter().flat_map(|channels| &channels.rows) {
            let axes = [&scales.trajectory, &scales.frame].into_iter().chain(&scales.space);
            axes.enumerate().try_for_each(|(axis, scale)| row.dataset.attach(axis, scale))?;
            row.dataset.numbers("_FillValue", &[f32::NAN])?;
            if !beside.is_empty() {
                row.dataset.text("coordinates", &beside.join(" "))?;
            }
        }
        Ok(())
    }
}
