//! Detects changes of the file from which a training reads its batches.

use cfo_data::DataError;
use cfo_data::store::Stamp;

use crate::error::{CfoError, Result};
use crate::recipe::Recipe;
use crate::train::training_data::TrainingData;
use crate::trajectories::Trajectories;

/// Detects changes of the file of a set. Values are hashed again only if the metadata of the file have changed.
pub(super) struct Witness<'a> {
    recipe: &'a Recipe,
    set: &'a Trajectories,
    /// Hash of the training data at the first reading.
    fingerprint: &'a str,
    /// The latest metadata for which the values have this hash.
    known: Option<Stamp>,
}

impl<'a> Witness<'a> {
    /// Creates a witness with the metadata at the time when the set was opened.
    pub fn new(recipe: &'a Recipe, set: &'a Trajectories, fingerprint: &'a str) -> Self {
        let known = set.stamps().ok().flatten().map(|[first, _]| first);
        Self { recipe, set, fingerprint, known }
    }

    /// Returns the set.
    pub fn set(&self) -> &'a Trajectories {
        self.set
    }

    /// Does work that reads the file. If the metadata changed meanwhile and the values did not, the work is repeated.
    ///
    /// # Errors
    /// If the work fails, or the file has other values now.
    pub fn read<T>(&mut self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        loop {
            let found = work();
            let Some([_, now]) = self.set.stamps()? else { return found };
            if Some(now) == self.known {
                return found;
            }
            // A file that is being written may be unreadable.
            if TrainingData::fingerprint(self.recipe, self.set).ok().as_deref() != Some(self.fingerprint) {
                let path = self.set.path().map(Into::into).unwrap_or_default();
                return Err(CfoError::Data(DataError::Changed { path }));
            }
            self.known = Some(now);
        }
    }
}
