//! Reads the snapshots of batches on a separate thread, ahead of their steps.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

use cfo_engine::{Feed, Memory, Page};

use super::witness::Witness;
use crate::error::Result;
use crate::model::Model;
use crate::train::training_data::TrainingData;

/// Pages between the thread and the device: one being filled, one waiting, one being copied.
const PAGES: usize = 3;

/// The source of streamed batches.
pub(super) struct Supply {
    feed: Feed,
    empty: Sender<Page>,
    full: Receiver<Result<Page>>,
}

impl Supply {
    /// Starts the thread, at the batch of step `first`. It ends when this value is dropped, or after its first error.
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

    pub(super) fn deliver(&mut self, memory: &mut Memory) -> Result<()> {
        let page = self.full.recv().expect("the thread ends only after a failure was received")?;
        if let Some(free) = self.feed.send(memory, page)? {
            // A thread that has ended has sent its error already.
            let _ = self.empty.send(free);
        }
        Ok(())
    }
}
