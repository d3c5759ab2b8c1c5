//! Writing files for The Well's `WellDataset`: each channel a scalar field, each parameter a scalar.

use std::path::Path;

use super::channels::Channels;
use super::grid::{axis_names, centres, dataset_names};
use super::hdf5::Hdf5Group;
use super::table::{TableColumns, WrittenTimes};
use super::{Compression, Head, LayoutOutput, WriteOptions};
use crate::{DataError, Description};

/// A file of The Well that is being written.
pub(crate) struct TheWellOutput {
    root: Hdf5Group,
    description: Description,
    compression: Compression,
    dimensions: Hdf5Group,
    fields: Hdf5Group,
    channels: Option<Channels>,
    /// Snapshots of each trajectory: the number of the first one.
    frames: usize,
    times: WrittenTimes,
    columns: TableColumns,
}

impl TheWellOutput {
    pub fn new(
        root: Hdf5Group,
        target: &Path,
        description: &Description,
        options: &WriteOptions,
    ) -> Result<Self, DataError> {
        if description.shape.axes() == 0 {
            let what = "a system without space axes in the layout `the-well`";
            return Err(DataError::unsupported(target, what));
        }
        Ok(Self {
            description: description.clone(),
            compression: options.compression,
            dimensions: root.group("dimensions")?,
            fields: root.group("t0_fields")?,
            root,
            channels: None,
            frames: 0,
            times: WrittenTimes::None,
            columns: TableColumns::default(),
        })
    }

    fn write_dimensions(&self) -> Result<(), DataError> {
        let shape = self.description.shape;
        let names = axis_names(&shape);
        let texts: Vec<String> = names.iter().map(ToString::to_string).collect();
        self.dimensions.texts("spatial_dims", &texts)?;
        let points = shape.dimensions();
        for (axis, name) in names.iter().enumerate() {
            let centres = centres(self.description.domain[axis], points[axis]);
            let dataset = self.dimensions.dataset(name, &[points[axis]], &centres)?;
            dataset.flag("sample_varying", false)?;
            dataset.flag("time_varying", false)?;
        }
        match &self.times {
            WrittenTimes::Shared(times) => {
                self.dimensions.dataset("time", &[times.len()], times)?.flag("sample_varying", false)
            }
            WrittenTimes::Rows(rows) => rows.dataset.flag("sample_varying", true),
            WrittenTimes::None => Ok(()),
        }
    }

    /// Writes boundary conditions for periodic axes. Other axes have none, which means open.
    fn write_boundaries(&self, group: &Hdf5Group) -> Result<(), DataError> {
        let shape = self.description.shape;
        let axes = axis_names(&shape).iter().zip(shape.dimensions()).zip(&self.description.periodic);
        for ((name, points), _) in axes.filter(|(_, periodic)| **periodic) {
            let boundary = group.group(&format!("{name}_periodic"))?;
            boundary.texts("associated_dims", &[name.to_string()])?;
            boundary.texts("associated_fields", &[])?;
            boundary.text("bc_type", "PERIODIC")?;
            boundary.flag("sample_varying", false)?;
            boundary.flag("time_varying", false)?;
            let mask: Vec<bool> = (0..points).map(|index| index == 0 || index + 1 == points).collect();
            boundary.flags("mask", &mask)?;
        }
        Ok(())
    }

    fn write_parameters(&self, group: &Hdf5Group) -> Result<(), DataError> {
        let names = dataset_names(&self.description.inputs.parameters, &[]);
        group.texts("field_names", &names)?;
        for (index, name) in names.iter().enumerate() {
            let column = self.columns.parameter(index, names.len());
            let dataset = group.dataset(name, &[column.len()], &column)?;
            dataset.flag("sample_varying", true)?;
            dataset.flag("time_varying", false)?;
        }
        Ok(())
    }
}

impl LayoutOutput for TheWellOutput {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        let frames = head.times.len();
        let count = self.columns.lengths.len();
        if count == 0 {
            let rows = (frames, false);
            self.frames = frames;
            self.channels =
                Some(Channels::create(&self.fields, &self.description, &[], rows, self.compression)?);
        }
        if frames != self.frames {
            let limit = "in the layout `the-well`; the layout `cfo` has no such limit";
            let needed = format!("{}, as many as the first, {limit}", self.frames);
            return Err(self.root.unfit(count, format!("{frames} snapshots"), needed));
        }
        self.times.push(&self.dimensions, "time", head.times, count, Some(frames))?;
        self.columns.push(head);
        self.channels.as_mut().map_or(Ok(()), |channels| channels.start(head))
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        self.channels.as_mut().map_or(Ok(()), |channels| channels.write(values))
    }

    fn complete(&mut self) -> Result<(), DataError> {
        let root = &self.root;
        let shape = self.description.shape;
        root.text("dataset_name", &self.description.system)?;
        root.text("grid_type", "cartesian")?;
        root.number("n_spatial_dims", shape.axes() as i64)?;
        root.number("n_trajectories", self.columns.lengths.len() as i64)?;
        root.texts("simulation_parameters", &[])?;
        self.write_dimensions()?;
        self.write_boundaries(&root.group("boundary_conditions")?)?;
        self.write_parameters(&root.group("scalars")?)?;
        if let Some(channels) = &self.channels {
            for (_, row) in &channels.rows {
                row.dataset.flags("dim_varying", &vec![true; shape.axes()])?;
                row.dataset.flag("sample_varying", true)?;
                row.dataset.flag("time_varying", true)?;
            }
            let names: Vec<String> = channels.rows.iter().map(|(name, _)| name.clone()).collect();
            self.fields.texts("field_names", &names)?;
        }
        for order in ["t1_fields", "t2_fields"] {
            root.group(order)?.texts("field_names", &[])?;
        }
        Ok(())
    }
}
