//! HDF5 layouts and their files: the order in which both are created and completed.

use super::hdf5::{Hdf5Group, Hdf5Output};
use super::{Head, Output};
use crate::DataError;

/// The parts that a layout writes.
pub(super) trait Hdf5Layout: Send {
    /// Starts a trajectory that fits the description.
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError>;

    /// Writes the next snapshots of the trajectory that was started last.
    fn frames(&mut self, values: &[f32]) -> Result<(), DataError>;

    /// Writes snapshots in double precision. Layouts in single precision round them.
    fn doubles(&mut self, values: &[f64]) -> Result<(), DataError> {
        self.frames(&values.iter().map(|&value| value as f32).collect::<Vec<f32>>())
    }

    /// Writes the parts that are known only at the end.
    fn complete(&mut self) -> Result<(), DataError>;
}

/// A file of a layout that is being written.
pub(super) struct Hdf5Writer<L> {
    /// Declared before the file, so that its datasets are dropped before it.
    layout: L,
    file: Hdf5Output,
}

impl<L: Hdf5Layout> Hdf5Writer<L> {
    /// Starts a layout in a new file.
    pub fn create(
        file: Hdf5Output,
        begin: impl FnOnce(Hdf5Group) -> Result<L, DataError>,
    ) -> Result<Self, DataError> {
        match begin(file.root()) {
            Ok(layout) => Ok(Self { layout, file }),
            Err(error) => {
                file.abandon();
                Err(error)
            }
        }
    }
}

impl<L: Hdf5Layout> Output for Hdf5Writer<L> {
    fn start(&mut self, head: &Head<'_>) -> Result<(), DataError> {
        self.layout.start(head)
    }

    fn frames(&mut self, values: &[f32]) -> Result<(), DataError> {
        self.layout.frames(values)
    }

    fn doubles(&mut self, values: &[f64]) -> Result<(), DataError> {
        self.layout.doubles(values)
    }

    fn finish(self: Box<Self>) -> Result<(), DataError> {
        let Self { mut layout, file } = *self;
        let completed = layout.complete();
        drop(layout);
        match completed {
            Ok(()) => file.close(),
            Err(error) => {
                file.abandon();
                Err(error)
            }
        }
    }

    fn abandon(self: Box<Self>) {
        let Self { layout, file } = *self;
        drop(layout);
        file.abandon();
    }
}
