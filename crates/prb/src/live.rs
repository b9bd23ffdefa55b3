//! Reading entries while their log is in use: for owners that must write again what a sync elsewhere has
//! lost.
//!
//! An entry is in a chunk that is open in a commit slot, or on the list of full ones; a full chunk moves from
//! there to here, and an obsolete one leaves. So holding all slots and then the lists shows every entry once.

use fastness_pmem::Medium;
use fastness_sync::lock;

use crate::chunk::Chunk;
use crate::hdl::Hdl;
use crate::ids::{ChunkId, EntryId, LogGuid, Txg};
use crate::prb::Prb;
use crate::traverse::{BodyError, Located, Traversal, read_body};

/// An entry of a log in use, with its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveEntry {
    chunk: ChunkId,
    region_offset: u64,
    entry: Located,
}

impl LiveEntry {
    /// Place in the log.
    pub fn id(&self) -> EntryId {
        self.entry.header.id
    }

    /// Transaction group of the change.
    pub fn txg(&self) -> Txg {
        self.entry.header.txg
    }

    /// Length of the body in bytes.
    pub fn body_len_bytes(&self) -> usize {
        self.entry.header.body_len_bytes as usize
    }
}

impl<M: Medium + Sync> Prb<M> {
    /// Calls `visit` with each chunk that has entries written since the PRB was opened. Writers wait
    /// meanwhile.
    fn visit_written(&self, mut visit: impl FnMut(&Chunk<M>)) {
        // Two that each hold some of the slots would wait for each other.
        let _reading = lock(&self.reading);
        let slots: Vec<_> = (0..self.config().ncommitters).map(|_| self.slots.acquire()).collect();
        let lists = lock(&self.lists);
        slots.iter().filter_map(|slot| slot.as_ref()).for_each(&mut visit);
        lists.full.values().flatten().for_each(visit);
    }

    fn live_entries(&self, log: LogGuid) -> Vec<LiveEntry> {
        let (mut found, synced) = (Vec::new(), self.synced());
        self.visit_written(|chunk| {
            // An empty one may hold what an earlier use of it left, up to its first header.
            let entries = Traversal::new(chunk.medium()).filter(|_| !chunk.is_empty());
            let needed = entries.filter(|entry| entry.header.log == log && entry.header.txg > synced);
            let start = chunk.medium().region_offset();
            found.extend(needed.map(|entry| {
                let region_offset = start + entry.offset as u64;
                LiveEntry { chunk: chunk.id, region_offset, entry }
            }));
        });
        found.sort_unstable_by_key(LiveEntry::id);
        found
    }

    fn read_live(&self, live: &LiveEntry, buffer: &mut [u8]) -> Result<(), BodyError> {
        let mut result = Err(BodyError::HeaderChanged { region_offset: live.region_offset });
        self.visit_written(|chunk| {
            if chunk.id == live.chunk && !chunk.is_empty() {
                result = read_body(chunk.medium(), &live.entry, buffer);
            }
        });
        result
    }
}

impl<M: Medium + Sync> Hdl<M> {
    /// The entries of a log in use whose txg has not synced, in order: those whose writes have returned, and
    /// perhaps others.
    ///
    /// Nothing is changed. Concurrency: as a write; writers to the PRB wait until all headers have been read.
    pub fn live_entries(&self) -> Vec<LiveEntry> {
        self.log_in_use().map_or_else(Vec::new, |log| self.prb().live_entries(log))
    }

    /// Copies the body of such an entry into the front of `buffer`, and checks it.
    ///
    /// # Errors
    /// [`BodyError`]; [`BodyError::HeaderChanged`] also if its txg has synced meanwhile, and its chunk is
    /// another one's. [`BodyError::Padding`] leaves an intact body in the buffer.
    pub fn read_live(&self, live: &LiveEntry, buffer: &mut [u8]) -> Result<(), BodyError> {
        self.prb().read_live(live, buffer)
    }
}
