//! Datasets with one row per trajectory, one dataset for each channel.

use super::grid::{channel, channel_names, dataset_names};
use super::hdf5::{Growing, Hdf5Group};
use super::{Compression, Head};
use crate::{DataError, Description};

/// The channels of all trajectories, `[trajectories, frames, (space)]` each.
pub(super) struct Channels {
    /// One dataset for each channel, with its name.
    pub rows: Vec<(String, Growing)>,
    channels: usize,
}

impl Channels {
    /// Creates datasets for trajectories of `frames` frames, or of a growing number if that is `None`.
    pub fn create(
        group: &Hdf5Group,
        description: &Description,
        taken: &[&str],
        (frames, grow): (usize, bool),
        compression: Compression,
    ) -> Result<Self, DataError> {
        let shape = description.shape;
        let mut row = vec![frames];
        row.extend(shape.grid.sides());
        let own = channel_names(description);
        let mut rows = Vec::new();
        for (index, name) in dataset_names(&own, taken).into_iter().enumerate() {
            let dataset = group.growing(&name, &row, f32::NAN, grow, compression)?;
            dataset.dataset.text("long_name", &own[index])?;
            if let Some(unit) = description.channel_units.get(index).filter(|unit| !unit.is_empty()) {
                dataset.dataset.text("units", unit)?;
            }
            rows.push((name, dataset));
        }
        Ok(Self { rows, channels: shape.channels })
    }

    /// Adds a row for a trajectory.
    pub fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        self.rows.iter_mut().try_for_each(|(_, row)| row.start(head.times.len()))
    }

    /// Writes the next snapshots of the last trajectory.
    pub fn write(&mut self, values: &[f32]) -> Result<(), DataError> {
        let channels = self.channels;
        let mut rows = self.rows.iter_mut().enumerate();
        rows.try_for_each(|(index, (_, row))| row.write(&channel(values, channels, index)))
    }
}
