//! The state of each chunk: free, open in a slot (not listed), full, held for replay, or unusable.
//!
//! Source: zil-pmem thesis, 5.8 (figures 5.6 and 5.7).

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use fastness_sync::atomic::{AtomicU32, Ordering};

use crate::chunk::Chunk;
use crate::ids::{LogGuid, Txg};
use crate::scan::Scan;

/// The chunk lists, under the PRB's one lock (taken once per chunk, not per entry).
#[derive(Debug)]
pub(crate) struct Lists<M> {
    /// Empty chunks; first in, first out, so that wear spreads.
    pub(crate) free: VecDeque<Chunk<M>>,
    /// Full chunks by the newest txg in them.
    pub(crate) full: BTreeMap<Txg, Vec<Chunk<M>>>,
    /// Chunks from before the PRB was opened. A log that has claimed an entry in a chunk holds an `Arc` of
    /// it.
    pub(crate) wait_replay: Vec<Arc<Chunk<M>>>,
    /// Holds to drop once the txg that makes them unnecessary has synced.
    pub(crate) releases: BTreeMap<Txg, Vec<Arc<Chunk<M>>>>,
    /// Chunks that did not hold what was written to them.
    pub(crate) faulty: Vec<Chunk<M>>,
    /// Number of chunks that are not faulty.
    pub(crate) usable: usize,
    /// The logs that are set up on this PRB.
    pub(crate) roster: Roster<M>,
}

/// The logs of a PRB, and its phase.
#[derive(Debug)]
pub(crate) struct Roster<M> {
    /// Logs that are set up.
    pub(crate) hdls: usize,
    /// GUIDs in use.
    pub(crate) guids: HashSet<LogGuid>,
    /// Logs that are set up and must still be claimed.
    pub(crate) unclaimed: usize,
    /// True while old chunks may hold entries of logs that are not set up yet.
    pub(crate) claiming: bool,
    /// The contents of the chunks, scanned once for all logs.
    pub(crate) scan: Option<Arc<Scan<M>>>,
}

impl<M> Default for Roster<M> {
    fn default() -> Self {
        Self { hdls: 0, guids: HashSet::new(), unclaimed: 0, claiming: false, scan: None }
    }
}

impl<M> Lists<M> {
    pub(crate) fn new(usable: usize, claiming: bool) -> Self {
        Self {
            free: VecDeque::with_capacity(usable),
            full: BTreeMap::new(),
            wait_replay: Vec::new(),
            releases: BTreeMap::new(),
            faulty: Vec::new(),
            usable,
            roster: Roster { claiming, ..Roster::default() },
        }
    }

    /// Lists a full chunk where collection will find it.
    pub(crate) fn retire(&mut self, chunk: Chunk<M>) {
        self.full.entry(chunk.max_txg).or_default().push(chunk);
    }

    /// Takes out every chunk whose entries are all obsolete after `synced`.
    pub(crate) fn take_obsolete(&mut self, synced: Txg) -> Obsolete<M> {
        let later_than = Txg(synced.0.saturating_add(1));
        let later = self.full.split_off(&later_than);
        let full = std::mem::replace(&mut self.full, later).into_values().flatten().collect();
        // The holds end here: dropping them is what lets `try_unwrap` below succeed.
        let later = self.releases.split_off(&later_than);
        drop(std::mem::replace(&mut self.releases, later));
        let mut replayed = Vec::new();
        for chunk in std::mem::take(&mut self.wait_replay) {
            match Arc::try_unwrap(chunk) {
                Ok(chunk) => replayed.push(chunk),
                Err(held) => self.wait_replay.push(held),
            }
        }
        Obsolete { full, replayed }
    }
}

/// How full the lists are, for readers without the lock. In its own cache lines: it changes only once per
/// chunk.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Fill {
    used_per_1024: AtomicU32,
    /// Chunks that are open in slots when all slots are busy: they have space but are not free.
    open_max: usize,
}

impl Fill {
    pub(crate) fn new(open_max: usize) -> Self {
        Self { used_per_1024: AtomicU32::new(0), open_max }
    }

    /// Called after a change of the free chunks, under the lock.
    pub(crate) fn note<M>(&self, lists: &Lists<M>) {
        let all = lists.usable.saturating_sub(self.open_max).max(1);
        let used = lists.usable.saturating_sub(self.open_max + lists.free.len()).min(all);
        self.used_per_1024.store((used * 1024 / all) as u32, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn used_per_1024(&self) -> u32 {
        self.used_per_1024.load(Ordering::Relaxed)
    }
}

/// Chunks that can be emptied.
pub(crate) struct Obsolete<M> {
    /// Written by this PRB, so their contents can be checked.
    pub(crate) full: Vec<Chunk<M>>,
    /// Chunks from before the PRB was opened that no log holds.
    pub(crate) replayed: Vec<Chunk<M>>,
}
