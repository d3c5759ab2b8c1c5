//! Writing VTKHDF: one trajectory as an image over time, with a point array for each channel.
//!
//! The arrays have an axis for the steps and the image's own axes. VTK interprets further axes as components of a vector.

use super::grid::{channel, channel_names, dataset_names, origin_and_spacing};
use super::hdf5::{Hdf5Dataset, Hdf5Group};
use super::{Compression, Head, LayoutOutput, WriteOptions};
use crate::{DataError, Description};

/// Version of the format: the first with images over time.
const VERSION: [i64; 2] = [2, 0];

/// A VTKHDF file that is being written.
pub(crate) struct VtkhdfOutput {
    root: Hdf5Group,
    description: Description,
    compression: Compression,
    /// One array for each channel, after the trajectory was started.
    arrays: Vec<Hdf5Dataset>,
    written: usize,
}

impl VtkhdfOutput {
    pub fn new(root: Hdf5Group, description: &Description, options: &WriteOptions) -> Self {
        let (description, compression) = (description.clone(), options.compression);
        Self { root, description, compression, arrays: Vec::new(), written: 0 }
    }

    fn write_image(&self, root: &Hdf5Group) -> Result<(), DataError> {
        let [depth, height, width] = self.description.shape.grid.padded().map(|points| points as i64 - 1);
        let (origin, spacing) = origin_and_spacing(&self.description);
        root.numbers("Version", &VERSION, &[2])?;
        root.short_text("Type", "ImageData")?;
        let extent = [0, width, 0, height, 0, depth];
        root.numbers("WholeExtent", &extent, &[6])?;
        root.numbers("Origin", &origin, &[3])?;
        root.numbers("Spacing", &spacing, &[3])?;
        root.numbers("Direction", &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], &[9])
    }

    /// Writes the times and the position of their numbers in each array.
    fn write_steps(&self, root: &Hdf5Group, head: &Head<'_>, names: &[String]) -> Result<(), DataError> {
        let count = head.times.len();
        let steps = root.group("Steps")?;
        steps.number("NSteps", count as i64)?;
        steps.dataset("Values", &[count], head.times)?;
        let offsets: Vec<i64> = (0..count as i64).collect();
        let points = steps.group("PointDataOffsets")?;
        for name in names {
            points.dataset(name, &[count], &offsets)?;
        }
        let parameters = &self.description.inputs.parameters;
        if parameters.is_empty() {
            return Ok(());
        }
        // Each parameter has the same single number at all steps.
        let values = root.group("FieldData")?;
        let (first, sizes) = (steps.group("FieldDataOffsets")?, steps.group("FieldDataSizes")?);
        for (name, &value) in dataset_names(parameters, &["Time"]).iter().zip(&head.inputs.parameters) {
            values.dataset(name, &[1], &[value])?;
            first.dataset(name, &[count], &vec![0i64; count])?;
            sizes.dataset(name, &[count, 2], &vec![1i64; 2 * count])?;
        }
        Ok(())
    }
}

impl LayoutOutput for VtkhdfOutput {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        if !self.arrays.is_empty() {
            let needed = "one alone: the layout `vtkhdf` has one list of times";
            return Err(self.root.unfit(1, "another trajectory", needed));
        }
        let mut extent = vec![head.times.len()];
        match self.description.shape.grid.sides() {
            [] => extent.push(1),
            sides => extent.extend(sides),
        }
        let root = self.root.group("VTKHDF")?;
        self.write_image(&root)?;
        let names = dataset_names(&channel_names(&self.description), &[]);
        self.write_steps(&root, head, &names)?;
        let points = root.group("PointData")?;
        for (index, name) in names.iter().enumerate() {
            let array = points.planned::<f32>(name, &extent, self.compression)?;
            if let Some(unit) = self.description.channel_units.get(index).filter(|unit| !unit.is_empty()) {
                array.text("units", unit)?;
            }
            self.arrays.push(array);
        }
        Ok(())
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        let shape = self.description.shape;
        let frames = values.len() / shape.len();
        for (index, array) in self.arrays.iter().enumerate() {
            array.write(self.written, frames, &channel(values, shape.channels, index))?;
        }
        self.written += frames;
        Ok(())
    }
}
