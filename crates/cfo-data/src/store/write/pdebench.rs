//! Writing what PDEBench's own loaders read: a group for each trajectory of a field with two space axes, one `tensor`
//! for scalar fields with one.

use std::path::{Path, PathBuf};

use super::hdf5::{Growing, Hdf5Output};
use super::{Compression, Output, WriteOptions};
use crate::{DataError, Description, Place, Split, Trajectory};

/// A PDEBench file that is being written.
pub(crate) struct PdebenchOutput {
    file: Hdf5Output,
    temporary: PathBuf,
    target: PathBuf,
    description: Description,
    compression: Compression,
    count: usize,
    /// The rows of `tensor`, for one space axis.
    tensor: Option<Growing>,
    times: Vec<f64>,
    /// The first trajectory's parameters, as long as all others have the same.
    parameters: Option<Vec<f64>>,
}

impl PdebenchOutput {
    pub fn create(
        temporary: &Path,
        target: &Path,
        description: &Description,
        options: &WriteOptions,
    ) -> Result<Self, DataError> {
        let shape = &description.shape;
        if shape.axes == 0 || (shape.axes == 1 && shape.channels > 1) {
            let (axes, channels) = (shape.axes, shape.channels);
            let what = format!("{axes} space axes with {channels} channels in the layout `pdebench`");
            return Err(DataError::Unsupported { path: target.to_owned(), what });
        }
        Ok(Self {
            file: Hdf5Output::create(temporary, target)?,
            temporary: temporary.to_owned(),
            target: target.to_owned(),
            description: description.clone(),
            compression: options.compression,
            count: 0,
            tensor: None,
            times: Vec::new(),
            parameters: None,
        })
    }

    /// Cell centres along a space axis.
    fn centres(&self, axis: usize, points: usize) -> Vec<f32> {
        let [low, high] = self.description.domain[axis];
        let step = (high - low) / points as f64;
        (0..points).map(|index| (low + (index as f64 + 0.5) * step) as f32).collect()
    }

    /// `NNNN/data` with its grid: times of its own for each trajectory.
    fn push_group(&mut self, trajectory: &Trajectory) -> Result<(), DataError> {
        let shape = self.description.shape;
        let group = self.file.group(&format!("{:04}", self.count))?;
        let mut extent = vec![trajectory.times.len()];
        extent.extend(shape.dimensions());
        group.dataset("data", &extent, &trajectory.values, self.compression)?;
        let grid = group.group("grid")?;
        let times = single(&trajectory.times);
        for (name, points) in
            [("x", self.centres(1, shape.width)), ("y", self.centres(0, shape.height)), ("t", times)]
        {
            grid.dataset(name, &[points.len()], &points, Compression::None)?;
        }
        Ok(())
    }

    /// A row of `tensor`, which has one list of times.
    fn push_row(&mut self, trajectory: &Trajectory) -> Result<(), DataError> {
        if self.count == 0 {
            let row = [trajectory.times.len(), self.description.shape.width];
            self.tensor = Some(self.file.growing("tensor", &row, 0f32, false, self.compression)?);
            self.times = trajectory.times.to_vec();
        } else if *trajectory.times != self.times {
            return Err(DataError::Unfit {
                path: self.target.clone(),
                place: Box::new(Place::trajectory(self.count)),
                found: "other times than the first".to_string(),
                needed: "the same times for all in the layout `pdebench`; the layout `cfo` has no such limit"
                    .to_string(),
            });
        }
        self.tensor
            .as_mut()
            .expect("made with the first row")
            .push(trajectory.times.len(), &trajectory.values)
    }

    fn write_coordinates(&self) -> Result<(), DataError> {
        if let Some(parameters) = &self.parameters {
            for (name, &value) in self.description.parameter_names.iter().zip(parameters) {
                self.file.number(name, value)?;
            }
        }
        if self.description.shape.axes == 2 {
            return Ok(());
        }
        let points = self.centres(0, self.description.shape.width);
        self.file.dataset("x-coordinate", &[points.len()], &points)?;
        // PDEBench's times have one entry more than frames.
        let mut times = self.times.clone();
        let last = times[times.len() - 1];
        let step = if times.len() > 1 { last - times[times.len() - 2] } else { 1.0 };
        times.push(last + step);
        self.file.dataset("t-coordinate", &[times.len()], &single(&times))
    }
}

fn single(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

impl Output for PdebenchOutput {
    fn push(&mut self, trajectory: &Trajectory, _split: Option<Split>) -> Result<(), DataError> {
        match self.description.shape.axes {
            1 => self.push_row(trajectory)?,
            _ => self.push_group(trajectory)?,
        }
        if self.count == 0 {
            self.parameters = Some(trajectory.parameters.clone());
        } else if self.parameters.as_ref() != Some(&trajectory.parameters) {
            self.parameters = None;
        }
        self.count += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        if let Err(error) = self.write_coordinates() {
            self.abandon();
            return Err(error);
        }
        let Self { file, tensor, .. } = *self;
        drop(tensor);
        file.close()
    }

    fn abandon(self: Box<Self>) {
        let Self { file, temporary, tensor, .. } = *self;
        drop(tensor);
        file.abandon(&temporary);
    }
}
