//! Writing files for PDEBench's own loaders: a group for each trajectory of a field with two or three space axes, one
//! `tensor` for scalar fields with one.

use std::path::Path;

use super::grid::{axis_names, centres};
use super::hdf5::{Growing, Hdf5Dataset, Hdf5Group};
use super::{Compression, Head, LayoutOutput, WriteOptions};
use crate::{DataError, Description};

/// A PDEBench file that is being written.
pub(crate) struct PdebenchOutput {
    root: Hdf5Group,
    description: Description,
    compression: Compression,
    count: usize,
    /// The rows of `tensor`, for one space axis.
    tensor: Option<Growing>,
    /// For other fields, the dataset of the last trajectory and its number of snapshots.
    data: Option<(Hdf5Dataset, usize)>,
    times: Vec<f64>,
    /// The first trajectory's parameters, as long as all others are equal.
    parameters: Option<Vec<f64>>,
}

impl PdebenchOutput {
    pub fn new(
        root: Hdf5Group,
        target: &Path,
        description: &Description,
        options: &WriteOptions,
    ) -> Result<Self, DataError> {
        let shape = &description.shape;
        let (axes, channels) = (shape.axes(), shape.channels);
        if axes == 0 || (axes == 1 && channels > 1) {
            let what = format!("{axes} space axes with {channels} channels in the layout `pdebench`");
            return Err(DataError::unsupported(target, what));
        }
        Ok(Self {
            root,
            description: description.clone(),
            compression: options.compression,
            count: 0,
            tensor: None,
            data: None,
            times: Vec::new(),
            parameters: None,
        })
    }

    /// Cell centres along a space axis.
    fn centres(&self, axis: usize) -> Vec<f32> {
        single(&centres(self.description.domain[axis], self.description.shape.grid.sides()[axis]))
    }

    /// Starts `NNNN/data` with its grid and the times of the trajectory.
    fn start_group(&mut self, times: &[f64]) -> Result<(), DataError> {
        let shape = self.description.shape;
        let group = self.root.group(&format!("{:04}", self.count))?;
        let mut extent = vec![times.len()];
        extent.extend(shape.dimensions());
        self.data = Some((group.planned::<f32>("data", &extent, self.compression)?, 0));
        let grid = group.group("grid")?;
        for (axis, name) in axis_names(&shape).iter().enumerate().rev() {
            let points = self.centres(axis);
            grid.dataset(name, &[points.len()], &points)?;
        }
        grid.dataset("t", &[times.len()], &single(times)).map(drop)
    }

    /// Starts a row of `tensor`, which has one list of times.
    fn start_row(&mut self, times: &[f64]) -> Result<(), DataError> {
        if self.count == 0 {
            let row = [times.len(), self.description.shape.grid.width()];
            self.tensor = Some(self.root.growing("tensor", &row, 0f32, false, self.compression)?);
            self.times = times.to_vec();
        } else if times != self.times {
            let needed =
                "the same times for all in the layout `pdebench`; the layout `cfo` has no such limit";
            return Err(self.root.unfit(self.count, "other times than the first", needed));
        }
        self.tensor.as_mut().expect("made with the first row").start(times.len())
    }
}

fn single(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

impl LayoutOutput for PdebenchOutput {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        match self.description.shape.axes() {
            1 => self.start_row(head.times)?,
            _ => self.start_group(head.times)?,
        }
        if self.count == 0 {
            self.parameters = Some(head.inputs.parameters.clone());
        } else if self.parameters.as_ref() != Some(&head.inputs.parameters) {
            self.parameters = None;
        }
        self.count += 1;
        Ok(())
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        match (&mut self.tensor, &mut self.data) {
            (Some(tensor), _) => tensor.write(values),
            (None, Some((data, written))) => {
                let frames = values.len() / self.description.shape.len();
                *written += frames;
                data.write(*written - frames, frames, values)
            }
            (None, None) => Ok(()),
        }
    }

    fn complete(&mut self) -> Result<(), DataError> {
        let root = &self.root;
        if let Some(parameters) = &self.parameters {
            for (name, &value) in self.description.inputs.parameters.iter().zip(parameters) {
                root.number(name, value)?;
            }
        }
        if self.description.shape.axes() > 1 {
            return Ok(());
        }
        let points = self.centres(0);
        root.dataset("x-coordinate", &[points.len()], &points)?;
        // PDEBench's times have one entry more than frames.
        let mut times = self.times.clone();
        let last = times[times.len() - 1];
        let step = if times.len() > 1 { last - times[times.len() - 2] } else { 1.0 };
        times.push(last + step);
        root.dataset("t-coordinate", &[times.len()], &single(&times)).map(drop)
    }
}
