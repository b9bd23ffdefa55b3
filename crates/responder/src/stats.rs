//! What a cache has done, and what is in it.

use std::collections::BTreeMap;

use crate::backing::FileId;

/// Counts since the cache was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Chunks that writes found in PM (case 2-1, and 3-1 and 3-2 after room was made).
    pub overwritten: u64,
    /// Chunks that writes put into an empty slot (case 1).
    pub placed: u64,
    /// Chunks that writes put beside another chunk (case 2-2, and 3-3 after room was made).
    pub placed_beside: u64,
    /// Of these and the overwritten, in a slot without room (case 3): the other chunk, or the older one, was
    /// given up.
    pub replaced: u64,
    /// Chunks that writes had to load from the backing store first.
    pub loaded: u64,
    /// Writes of several chunks.
    pub multi_chunk_writes: u64,
    /// Chunks that reads found in PM.
    pub read_hits: u64,
    /// Chunks that reads took from the backing store.
    pub read_misses: u64,
    /// Chunks that were written to the backing store.
    pub flushed: u64,
    /// With the protocol Log: records that syncs have put into the log.
    pub records: u64,
    /// Bytes of these.
    pub record_bytes: u64,
    /// With the protocol Log: syncs of the backing store, most of them in the background.
    pub real_syncs: u64,
    /// With the protocol Log: how often records were discarded.
    pub trims: u64,
}

impl Counts {
    pub(crate) const LEN: usize = 13;

    pub(crate) fn each(&mut self) -> [&mut u64; Counts::LEN] {
        [
            &mut self.overwritten,
            &mut self.placed,
            &mut self.placed_beside,
            &mut self.replaced,
            &mut self.loaded,
            &mut self.multi_chunk_writes,
            &mut self.read_hits,
            &mut self.read_misses,
            &mut self.flushed,
            &mut self.records,
            &mut self.record_bytes,
            &mut self.real_syncs,
            &mut self.trims,
        ]
    }

    pub(crate) fn add(&mut self, mut other: Counts) {
        for (count, more) in self.each().into_iter().zip(other.each()) {
            *count += *more;
        }
    }
}

/// Reads and writes that processes with leases have made by themselves since the cache was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Transfers {
    /// Reads.
    pub reads: u64,
    /// Writes of which something was made.
    pub writes: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub written_bytes: u64,
}

/// What a cache is like now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// What it has done since it was opened, with what processes with leases have.
    pub counts: Counts,
    /// What these have read and written.
    pub direct: Transfers,
    /// Slots, each with two chunks; with the protocol Log, chunks of the log.
    pub slots: u64,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Chunks that the backing store does not have. With the protocol Log, records that it may not have.
    pub dirty_chunks: u64,
    /// Of these, chunks (or records) of files that are not in the directory any more: they stay until it has
    /// them again.
    pub orphaned_chunks: u64,
    /// Flushes forced by writes that found no room.
    pub forced_flushes: u64,
    /// Changes of names that the directory may lose: PM has records of them.
    pub unsynced_names: u64,
    /// The files whose last flush failed, and the error number; the directory if names could not be synced.
    pub failures: Vec<(FileId, i32)>,
    /// Of these, files of which PM cannot be read, and at which region offset.
    pub unreadable: Vec<(FileId, u64)>,
    /// The files that are being flushed, and for how many ns: a backing store that hangs says nothing.
    pub flushing: Vec<(FileId, u64)>,
}

/// What is known of a file that is not in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Orphan {
    /// Which file it was.
    pub file: FileId,
    /// Its length after the last write that is in PM, in bytes.
    pub size: u64,
    /// When that was, in ns since 1970.
    pub modified_ns: u64,
    /// Chunks of it in PM; with the protocol Log, syncs.
    pub chunks: u64,
}

/// What a recovery did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovered {
    /// Chunks with acknowledged data that the backing store does not have. With the protocol Log: records of
    /// files that are not in the directory any more.
    pub dirty_chunks: u64,
    /// Of these, chunks (or records) of files that are not in the directory any more.
    pub orphaned_chunks: u64,
    /// Writes of several chunks, or in place, that were undone: they had not been acknowledged.
    pub undone_writes: u64,
    /// Writes in place that were made again: they may not have been acknowledged.
    pub redone_writes: u64,
    /// Records of names, whose changes were made again where the directory did not have them.
    pub names: u64,
    /// Files that a crash had lost, and that were made again.
    pub made_again: u64,
    /// Removals that were completed.
    pub removals: u64,
    /// Truncations that were completed.
    pub truncations: u64,
    /// With the protocol Log: records that were carried out.
    pub records: u64,
    /// The same, after damage, with consent ([`Options::drop_tail`](crate::Options::drop_tail)): records that
    /// were left out, of each file.
    pub left_out: BTreeMap<FileId, u64>,
    /// And of files that are not known: damaged ones, and those that stand on missing ones. With other
    /// protocols, files that were made again without what PM does not give of them.
    pub unreadable: u64,
    /// With other protocols, with the same consent: chunks and operations given up because what says whose
    /// they are is damaged. Their files have an older state of at most 4 KiB for each.
    pub damaged: u64,
}
