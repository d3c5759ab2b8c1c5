//! Gathers the snapshots of batches on a thread of its own, ahead of the steps that read them.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use cfo_engine::{Feed, Memory, Page};

use super::witness::Witness;
use crate::error::Result;
use crate::model::Model;
use crate::train::training_data::TrainingData;

/// Pages between the thread and the device: one being filled, one waiting, one on its way.
const PAGES: usize = 3;

/// Where streamed batches come from.
pub(super) struct Supply {
    feed: Feed,
    empty: Sender<Page>,
    full: Receiver<Result<Page>>,
}

impl Supply {
    /// Starts to gather batches from a step on. The thread ends with this value, or after its first failure.
    pub(super) fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        (model, data): (&'scope Model, &'scope TrainingData),
        mut witness: Witness<'scope>,
        memory: &Memory,
        first: u32,
    ) -> Result<Self> {
        let feed = Feed::new(memory, "data.values")?;
        let (empty, pages) = channel::<Page>();
        let (filled, full) = channel();
        for _ in 0..PAGES {
            empty.send(feed.page()?).expect("the other end is still here");
        }
        scope.spawn(move || {
            for (page, step) in pages.into_iter().zip(first..) {
                let mut page = page;
                let set = witness.set();
                let outcome = witness.read(|| data.fill(step, model, set, page.values()));
                let failed = outcome.is_err();
                if filled.send(outcome.map(|()| page)).is_err() || failed {
                    return;
                }
            }
        });
        Ok(Self { feed, empty, full })
    }

    /// Delivers the next batch.
    ///
    /// # Errors
    /// If it could not be gathered or the device fails.
    pub(super) fn deliver(&mut self, memory: &mut Memory) -> Result<()> {
        let page = self.full.recv().expect("the thread ends only after a failure was received")?;
        if let Some(free) = self.feed.send(memory, page)? {
            // A thread that is gone has sent its failure already.
            let _ = self.empty.send(free);
        }
        Ok(())
    }
}
