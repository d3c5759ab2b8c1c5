//! Cache of decoded chunks.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::store::container::spool::Spool;

/// Maximum bytes of decoded chunks in memory, so that neighbouring frames of one chunk are decoded once.
pub(super) const CACHE_BYTES: usize = 32 << 20;
/// Maximum bytes of decoded chunks in a temporary file, so that no chunk is decoded a third time.
const SPILLED_BYTES: u64 = 16 << 30;

#[derive(Default)]
pub(super) struct RecentChunks {
    pub chunks: VecDeque<(usize, Arc<Vec<u8>>)>,
    pub bytes: usize,
    /// Chunks that were decoded before. Most access passes over a file once. A temporary file is therefore used only
    /// for chunks that are decoded a second time, such as chunks shared by many trajectories.
    pub decoded: HashSet<usize>,
    pub spilled: Spilled,
}

impl RecentChunks {
    /// Holds a chunk in memory and evicts the oldest ones.
    pub fn hold(&mut self, number: usize, data: Arc<Vec<u8>>) {
        self.bytes += data.len();
        self.chunks.push_back((number, data));
        while self.bytes > CACHE_BYTES {
            let Some((_, oldest)) = self.chunks.pop_front() else { break };
            self.bytes -= oldest.len();
        }
    }
}

/// Decoded chunks in a temporary file.
#[derive(Default)]
pub(super) struct Spilled {
    /// `None` before the first chunk, and if no temporary file can be written.
    spool: Option<Spool>,
    /// Offset of each chunk.
    pub starts: HashMap<usize, u64>,
}

impl Spilled {
    /// Keeps a chunk if there is room for it. Otherwise it is decoded again.
    pub fn keep(&mut self, number: usize, data: &[u8]) {
        let kept = self.spool.as_ref().map_or(0, Spool::len);
        if kept + data.len() as u64 > SPILLED_BYTES {
            return;
        }
        let Some(mut spool) = self.spool.take().or_else(|| Spool::in_file().ok()) else { return };
        if spool.append(data).is_ok() {
            self.starts.insert(number, kept);
        }
        self.spool = Some(spool);
    }

    /// Reads a part of a chunk that was kept.
    pub fn read(&self, number: usize, offset: usize, length: usize) -> Option<Vec<u8>> {
        let mut part = vec![0; length];
        let start = self.starts.get(&number)? + offset as u64;
        self.spool.as_ref()?.read_at(start, &mut part).ok()?;
        Some(part)
    }
}
