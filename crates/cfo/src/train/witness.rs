//! Notices that the file that a training reads its batches from is changed.

use cfo_data::DataError;
use cfo_data::store::Stamp;

use crate::error::{CfoError, Result};
use crate::recipe::Recipe;
use crate::train::training_data::TrainingData;
use crate::trajectories::Trajectories;

/// Watches the file of a set. Its file system says cheaply whether it was touched; only then the values are read and hashed again.
pub(super) struct Witness<'a> {
    recipe: &'a Recipe,
    set: &'a Trajectories,
    /// Hash of the training data when they were first read.
    fingerprint: &'a str,
    /// The stamp for which the values are known to be those.
    known: Option<Stamp>,
}

impl<'a> Witness<'a> {
    /// From the moment when the set was opened.
    pub fn new(recipe: &'a Recipe, set: &'a Trajectories, fingerprint: &'a str) -> Self {
        let known = set.stamps().ok().flatten().map(|[first, _]| first);
        Self { recipe, set, fingerprint, known }
    }

    /// The set.
    pub fn set(&self) -> &'a Trajectories {
        self.set
    }

    /// What some work read of the file. If the file was touched meanwhile and holds the same values, the work is done again.
    ///
    /// # Errors
    /// The work's own, or that the file holds other values now.
    pub fn read<T>(&mut self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let found = work();
            let Some([_, now]) = self.set.stamps()? else { return found };
            if Some(now) == self.known {
                return found;
            }
            // Files that are being written hold neither the old values nor readable ones.
            if TrainingData::fingerprint(self.recipe, self.set).ok().as_deref() != Some(self.fingerprint) {
                let path = self.set.path().map(Into::into).unwrap_or_default();
                return Err(CfoError::Data(DataError::Changed { path }));
            }
            self.known = Some(now);
        }
    }
}
