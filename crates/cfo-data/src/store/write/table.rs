//! Writing the layout `cfo` in HDF5.

use std::path::{Path, PathBuf};

use super::hdf5::{Growing, Hdf5Output};
use super::{Compression, Output, WriteOptions};
use crate::store::layout::table::{FORMAT, LABELS_CHECKSUM, VERSION, labels_checksum};
use crate::{DataError, Description, Split, Trajectory};

/// A file of layout `cfo` that is being written.
pub(crate) struct TableOutput {
    file: Hdf5Output,
    temporary: PathBuf,
    description: Description,
    /// Frames of every row, when announced; otherwise rows grow.
    frames: Option<usize>,
    compression: Compression,
    values: Option<Growing>,
    times: Times,
    columns: Columns,
}

/// The times of all trajectories: one list as long as they agree, a row for each from the first that differs.
enum Times {
    None,
    Shared(Vec<f64>),
    Rows(Growing),
}

/// What is a few bytes for each trajectory, kept until the end.
#[derive(Default)]
pub(crate) struct Columns {
    pub lengths: Vec<i64>,
    pub splits: Vec<i8>,
    pub parameters: Vec<f64>,
}

impl Columns {
    pub fn push(&mut self, trajectory: &Trajectory, split: Option<Split>) {
        self.lengths.push(trajectory.times.len() as i64);
        self.splits.extend(split.map(Split::code));
        self.parameters.extend(&trajectory.parameters);
    }

    /// Whether trajectories differ in length from rows of `frames`.
    pub fn are_ragged(&self, frames: usize) -> bool {
        self.lengths.iter().any(|&length| length != frames as i64)
    }
}

impl TableOutput {
    pub fn create(
        temporary: &Path,
        target: &Path,
        description: &Description,
        options: &WriteOptions,
    ) -> Result<Self, DataError> {
        let file = Hdf5Output::create(temporary, target)?;
        let output = Self {
            file,
            temporary: temporary.to_owned(),
            description: description.clone(),
            frames: options.frames,
            compression: options.compression,
            values: None,
            times: Times::None,
            columns: Columns::default(),
        };
        match output.write_labels() {
            Ok(()) => Ok(output),
            Err(error) => {
                Box::new(output).abandon();
                Err(error)
            }
        }
    }

    fn write_labels(&self) -> Result<(), DataError> {
        let Description { system, shape, periodic, domain, channel_names, channel_units, .. } =
            &self.description;
        self.file.text("format", FORMAT)?;
        self.file.integer("version", VERSION)?;
        self.file.text("system", system)?;
        if shape.axes > 0 {
            self.file.flags("periodic", periodic)?;
            self.file.pairs("domain", domain)?;
        }
        for (name, texts) in [("channel_names", channel_names), ("channel_units", channel_units)] {
            if !texts.is_empty() {
                self.file.texts(name, texts)?;
            }
        }
        let checksum =
            labels_checksum(system, [channel_names, channel_units, &self.description.parameter_names]);
        self.file.integer(LABELS_CHECKSUM, checksum)
    }

    fn push_values(&mut self, trajectory: &Trajectory) -> Result<(), DataError> {
        let frames = trajectory.times.len();
        if self.values.is_none() {
            let mut row = vec![self.frames.unwrap_or(frames)];
            row.extend(self.description.shape.dimensions());
            let grows = self.frames.is_none();
            self.values = Some(self.file.growing("values", &row, f32::NAN, grows, self.compression)?);
        }
        self.values.as_mut().expect("made above").push(frames, &trajectory.values)
    }

    fn push_times(&mut self, times: &[f64]) -> Result<(), DataError> {
        match &mut self.times {
            Times::None => self.times = Times::Shared(times.to_vec()),
            Times::Shared(shared) if shared == times => {}
            Times::Shared(shared) => {
                let row = [self.frames.unwrap_or(shared.len())];
                let grows = self.frames.is_none();
                let mut rows = self.file.growing("times", &row, f64::NAN, grows, self.compression)?;
                for _ in 0..self.columns.lengths.len() {
                    rows.push(shared.len(), shared)?;
                }
                rows.push(times.len(), times)?;
                self.times = Times::Rows(rows);
            }
            Times::Rows(rows) => rows.push(times.len(), times)?,
        }
        Ok(())
    }

    fn write_columns(&self) -> Result<(), DataError> {
        let Columns { lengths, splits, parameters } = &self.columns;
        let count = lengths.len();
        let longest = lengths.iter().max().map_or(0, |&length| length as usize);
        let frames = self.frames.unwrap_or(longest);
        if self.columns.are_ragged(frames) {
            self.file.dataset("lengths", &[count], lengths)?;
        }
        if let Times::Shared(shared) = &self.times {
            let mut times = shared.clone();
            times.resize(frames, f64::NAN);
            self.file.dataset("times", &[frames], &times)?;
        }
        if !splits.is_empty() {
            self.file.dataset("split", &[count], splits)?;
        }
        let names = &self.description.parameter_names;
        if !names.is_empty() {
            self.file.named_dataset("parameters", &[count, names.len()], parameters, names)?;
        }
        Ok(())
    }
}

impl Output for TableOutput {
    fn push(&mut self, trajectory: &Trajectory, split: Option<Split>) -> Result<(), DataError> {
        self.push_values(trajectory)?;
        self.push_times(&trajectory.times)?;
        self.columns.push(trajectory, split);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        if let Err(error) = self.write_columns() {
            self.abandon();
            return Err(error);
        }
        let Self { file, values, times, .. } = *self;
        drop((values, times));
        file.close()
    }

    fn abandon(self: Box<Self>) {
        let Self { file, temporary, values, times, .. } = *self;
        drop((values, times));
        file.abandon(&temporary);
    }
}
