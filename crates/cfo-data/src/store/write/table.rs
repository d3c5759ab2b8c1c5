//! Writing the layout `cfo` in HDF5.

use std::sync::Arc;

use super::hdf5::{Growing, Hdf5Group};
use super::{Compression, Head, LayoutOutput, WriteOptions};
use crate::store::layout::table::{FORMAT, LABELS_CHECKSUM, VERSION, labels_checksum};
use crate::{Controls, DataError, Description, FieldShape, Split};

/// A file of layout `cfo` that is being written.
pub(crate) struct TableOutput {
    root: Hdf5Group,
    description: Description,
    /// Frames of every row, if known in advance; otherwise rows grow.
    frames: Option<usize>,
    compression: Compression,
    is_double: bool,
    values: Option<Growing>,
    times: WrittenTimes,
    columns: TableColumns,
}

/// The times of all trajectories: one list while they agree, and one row each from the first that differs.
pub(super) enum WrittenTimes {
    None,
    Shared(Vec<f64>),
    Rows(Growing),
}

impl WrittenTimes {
    /// Adds the times of a trajectory after `count` others; rows have `frames` entries, or grow.
    pub fn push(
        &mut self,
        group: &Hdf5Group,
        name: &str,
        times: &[f64],
        count: usize,
        frames: Option<usize>,
    ) -> Result<(), DataError> {
        match self {
            Self::None => *self = Self::Shared(times.to_vec()),
            Self::Shared(shared) if shared == times => {}
            Self::Shared(shared) => {
                let row = [frames.unwrap_or(shared.len())];
                let mut rows = group.growing(name, &row, f64::NAN, frames.is_none(), Compression::None)?;
                for _ in 0..count {
                    rows.push(shared.len(), shared)?;
                }
                rows.push(times.len(), times)?;
                *self = Self::Rows(rows);
            }
            Self::Rows(rows) => rows.push(times.len(), times)?,
        }
        Ok(())
    }
}

/// Small per-trajectory data, kept until the end.
#[derive(Default)]
pub(crate) struct TableColumns {
    pub lengths: Vec<i64>,
    pub splits: Vec<i8>,
    pub parameters: Vec<f64>,
    pub controls: Vec<Arc<Controls>>,
    pub statics: Vec<Arc<[f32]>>,
}

impl TableColumns {
    pub fn push(&mut self, head: &Head<'_>) {
        self.lengths.push(head.times.len() as i64);
        self.splits.extend(head.split.map(Split::code));
        self.parameters.extend(&head.inputs.parameters);
        self.controls.extend(head.inputs.controls.clone());
        self.statics.extend(head.inputs.statics.clone());
    }

    /// Values of one of `width` parameters for all trajectories.
    pub fn parameter(&self, index: usize, width: usize) -> Vec<f64> {
        self.parameters.iter().skip(index).step_by(width.max(1)).copied().collect()
    }

    /// The controls of all trajectories: their shape and values, and the shape of their times and the times. Shorter rows end with
    /// NaN.
    pub fn controls(&self) -> Option<[(Vec<usize>, Vec<f64>); 2]> {
        let first = self.controls.first()?;
        let (count, width) = (self.controls.len(), first.channels());
        let most = self.controls.iter().map(|own| own.times().len()).max()?;
        let padded = |of: fn(&Controls) -> &[f64], size: usize| -> Vec<f64> {
            let row = |own: &Arc<Controls>| {
                let mut row = of(own).to_vec();
                row.resize(size, f64::NAN);
                row
            };
            self.controls.iter().flat_map(row).collect()
        };
        let shared = self.controls.iter().all(|own| own.times() == first.times());
        let times = match shared {
            true => (vec![most], first.times().to_vec()),
            false => (vec![count, most], padded(Controls::times, most)),
        };
        Some([(vec![count, most, width], padded(Controls::values, most * width)), times])
    }

    /// The static fields and the number of their rows: one if all trajectories share them.
    pub fn statics(&self) -> Option<(usize, Vec<f32>)> {
        let first = self.statics.first()?;
        let shared = self.statics.iter().all(|own| Arc::ptr_eq(own, first) || own == first);
        let rows = if shared { &self.statics[..1] } else { &self.statics };
        Some((rows.len(), rows.iter().flat_map(|own| own.iter().copied()).collect()))
    }

    /// Snapshots of the longest trajectory.
    pub fn longest(&self) -> usize {
        self.lengths.iter().max().map_or(0, |&length| length as usize)
    }

    /// Whether lengths of trajectories differ from rows of `frames`.
    pub fn are_ragged(&self, frames: usize) -> bool {
        self.lengths.iter().any(|&length| length != frames as i64)
    }
}

/// The shape of the array of static fields.
pub(super) fn statics_shape(description: &Description, rows: usize) -> Vec<usize> {
    let shape = FieldShape { channels: description.inputs.statics.len(), ..description.shape };
    [rows].into_iter().chain(shape.dimensions()).collect()
}

impl TableOutput {
    pub fn new(
        root: Hdf5Group,
        description: &Description,
        options: &WriteOptions,
    ) -> Result<Self, DataError> {
        let output = Self {
            root,
            description: description.clone(),
            frames: options.frames,
            compression: options.compression,
            is_double: options.is_double(),
            values: None,
            times: WrittenTimes::None,
            columns: TableColumns::default(),
        };
        output.write_labels()?;
        Ok(output)
    }

    fn write_labels(&self) -> Result<(), DataError> {
        let Description { system, shape, periodic, domain, channel_names, channel_units, .. } =
            &self.description;
        let root = &self.root;
        root.text("format", FORMAT)?;
        root.number("version", VERSION)?;
        root.text("system", system)?;
        if shape.axes() > 0 {
            let periodic: Vec<i64> = periodic.iter().map(|&flag| i64::from(flag)).collect();
            root.numbers("periodic", &periodic, &[shape.axes()])?;
            root.numbers("domain", domain.as_flattened(), &[shape.axes(), 2])?;
        }
        for (name, texts) in [("channel_names", channel_names), ("channel_units", channel_units)] {
            if !texts.is_empty() {
                root.texts(name, texts)?;
            }
        }
        let checksum = labels_checksum(system, [channel_names, channel_units], &self.description.inputs);
        root.number(LABELS_CHECKSUM, checksum)
    }

    fn start_values(&mut self, frames: usize) -> Result<(), DataError> {
        if self.values.is_none() {
            let mut row = vec![self.frames.unwrap_or(frames)];
            row.extend(self.description.shape.dimensions());
            let grows = self.frames.is_none();
            self.values = Some(match self.is_double {
                true => self.root.growing("values", &row, f64::NAN, grows, self.compression)?,
                false => self.root.growing("values", &row, f32::NAN, grows, self.compression)?,
            });
        }
        self.values.as_mut().expect("made above").start(frames)
    }
}

impl LayoutOutput for TableOutput {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        self.start_values(head.times.len())?;
        let count = self.columns.lengths.len();
        self.times.push(&self.root, "times", head.times, count, self.frames)?;
        self.columns.push(head);
        Ok(())
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        self.values.as_mut().expect("made with the first trajectory").write(values)
    }

    fn doubles(&mut self, values: &[f64]) -> Result<(), DataError> {
        if !self.is_double {
            return self.frames(&values.iter().map(|&value| value as f32).collect::<Vec<f32>>());
        }
        self.values.as_mut().expect("made with the first trajectory").write(values)
    }

    fn complete(&mut self) -> Result<(), DataError> {
        let TableColumns { lengths, splits, parameters, .. } = &self.columns;
        let (count, frames) = (lengths.len(), self.frames.unwrap_or(self.columns.longest()));
        let root = &self.root;
        if self.columns.are_ragged(frames) {
            root.dataset("lengths", &[count], lengths)?;
        }
        if let WrittenTimes::Shared(shared) = &self.times {
            let mut times = shared.clone();
            times.resize(frames, f64::NAN);
            root.dataset("times", &[frames], &times)?;
        }
        if !splits.is_empty() {
            root.dataset("split", &[count], splits)?;
        }
        let names = &self.description.inputs.parameters;
        if !names.is_empty() {
            root.dataset("parameters", &[count, names.len()], parameters)?.texts("names", names)?;
        }
        if let Some([(shape, controls), (of_times, times)]) = self.columns.controls() {
            root.dataset("controls", &shape, &controls)?.texts("names", &self.description.inputs.controls)?;
            root.dataset("control_times", &of_times, &times)?;
        }
        if let Some((rows, statics)) = self.columns.statics() {
            let names = &self.description.inputs.statics;
            let shape = statics_shape(&self.description, rows);
            root.dataset("statics", &shape, &statics)?.texts("names", names)?;
        }
        Ok(())
    }
}
