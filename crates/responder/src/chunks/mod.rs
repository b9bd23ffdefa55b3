//! Chunks of files in PM, in slots of two, and the protocols that write to them.
//!
//! Chunk `index` of a file with key `k` is in slot `(k + index) mod slots`: there is no allocator and no
//! replacement policy. Two chunks fit into a slot; what is in the way of a third, and dirty, is flushed
//! first. The protocols differ in how they write: `fr` into the other chunk of the slot, `melo` in place
//! under an operation log. Reads, flushes, truncations, and who gives way are the same for both.

mod damage;
mod difference;
mod fill;
mod flush;
mod fr;
mod held;
mod load;
mod locked;
mod melo;
mod pmal;
mod read;
mod reap;
mod recover;

use std::sync::Arc;

use fastness_sync::atomic::{AtomicU64, Ordering};
use fastness_sync::{Mutex, lock};

use crate::backing::CacheId;
use crate::board::Board;
use crate::error::Error;
use crate::file::{File, FileTable};
use crate::geometry::{Geometry, TAGS_OFFSET};
use crate::group::Group;
use crate::journal::Journal;
use crate::kind::ProtocolKind;
use crate::medium::CacheMedium;
use crate::operation::{OperationLog, log_bytes};
use crate::protocol::{Clock, Protocol};
use crate::stats::Status;
use crate::tag::{LINE, Seed};

pub(crate) use recover::{DirtyFiles, Found};

/// Chunks that one write changes atomically.
const WRITE_CHUNKS_MAX: usize = 256;
/// Groups that these lie in.
const WRITE_GROUPS_MAX: usize = WRITE_CHUNKS_MAX / 16 + 1;
/// Chunks of a write that is planned in a smaller table, and their groups.
const FEW_CHUNKS: usize = 16;
const FEW_GROUPS: usize = FEW_CHUNKS / 16 + 1;

/// The clock goes in steps that are no longer.
const CLOCK_STEP_NS: u64 = 20_000_000;

/// Chunks of a file that follow each other.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Of the first.
    slot: u64,
    chunks: usize,
}

/// Chunks in PM with their tags.
#[derive(Debug)]
pub(crate) struct ChunkStore<M> {
    geometry: Geometry,
    seed: Seed,
    groups: Vec<Mutex<Group<M>>>,
    /// A bit for each group that may have dirty data, unless the board has them.
    dirty_groups: Vec<AtomicU64>,
    /// A word for each slot, unless the board has them, or writes are made in place.
    differences: Vec<AtomicU64>,
    /// What other processes share of it.
    pub(crate) board: Option<Arc<Board>>,
    /// With these, writes are made in place (MeLo@V).
    operations: Vec<Mutex<OperationLog<M>>>,
    /// With these, too (PMAL).
    journals: Vec<Mutex<Journal<M>>>,
    /// The backing store gets the time of a write with its bytes.
    gives_times: bool,
    /// The files that there are; `None`: another process knows.
    files: Option<Arc<FileTable>>,
    clock: Clock,
    last_timestamp: AtomicU64,
    forced_flushes: AtomicU64,
}

impl<M> ChunkStore<M> {
    fn dirty_word(&self, group: usize) -> &AtomicU64 {
        match &self.board {
            Some(board) => board.dirty_word(group / 64),
            None => &self.dirty_groups[group / 64],
        }
    }

    fn last_timestamp(&self) -> &AtomicU64 {
        self.board.as_ref().map_or(&self.last_timestamp, |board| board.last_timestamp())
    }

    /// Tells the flusher that the group may have dirty data.
    fn note_dirty(&self, group: usize) {
        let (word, bit) = (self.dirty_word(group), 1 << (group % 64));
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }
}

impl<M: CacheMedium> ChunkStore<M> {
    /// Takes what follows the intents.
    pub(crate) fn new(
        kind: ProtocolKind,
        (geometry, cache): (Geometry, CacheId),
        rest: M,
        files: Option<Arc<FileTable>>,
        clock: Clock,
        board: Option<Arc<Board>>,
    ) -> ChunkStore<M> {
        let (seed, slots) = (Seed::new(cache), geometry.group_slots() as usize);
        let chunk_bytes = geometry.chunk_bytes as usize;
        let start = geometry.chunks_offset() - TAGS_OFFSET;
        let (mut tags, rest) = rest.divide(start);
        let (mut chunks, mut rest) = rest.divide((geometry.logs_offset() as usize - TAGS_OFFSET) - start);
        let mut groups = Vec::with_capacity(geometry.groups());
        for _ in 0..geometry.groups() {
            let (tags_here, chunks_here);
            (tags_here, tags) = tags.divide(slots * 2 * LINE);
            (chunks_here, chunks) = chunks.divide(slots * 2 * chunk_bytes);
            groups.push(Mutex::new(Group::new(tags_here, chunks_here, chunk_bytes, seed)));
        }
        let (mut operations, mut journals) = (Vec::new(), Vec::new());
        for _ in 0..geometry.operation_logs {
            let log;
            (log, rest) = rest.divide(log_bytes(geometry.chunk_bytes) as usize);
            match kind {
                ProtocolKind::Melo => operations.push(Mutex::new(OperationLog::new(log, seed))),
                _ => journals.push(Mutex::new(Journal::new(log, seed))),
            }
        }
        let words = |count: usize| (0..count).map(|_| AtomicU64::new(0)).collect();
        let dirty_groups = words(groups.len().div_ceil(64));
        let has_differences = board.is_none() && operations.is_empty();
        let differences = words(if has_differences { geometry.slots as usize } else { 0 });
        let (last_timestamp, forced_flushes) = (AtomicU64::new(0), AtomicU64::new(0));
        ChunkStore {
            geometry,
            seed,
            groups,
            operations,
            journals,
            gives_times: kind == ProtocolKind::Pmal,
            dirty_groups,
            differences,
            board,
            files,
            clock,
            last_timestamp,
            forced_flushes,
        }
    }

    /// Whether the protocol is MeLo@V or PMAL.
    fn is_in_place(&self) -> bool {
        !self.operations.is_empty() || !self.journals.is_empty()
    }

    fn slot(&self, key: u64, index: u64) -> u64 {
        key.wrapping_add(index) % self.geometry.slots
    }

    pub(crate) fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    /// The time of a write, and later than any before.
    fn timestamp(&self, file: &File) -> u64 {
        let now = (self.clock)();
        let modified = file.modified_ns().load(Ordering::Relaxed);
        // The directory may have noted an exact time, which the clock has yet to reach.
        let is_soon = modified.wrapping_sub(now) < CLOCK_STEP_NS;
        let now = if is_soon { modified + 1 } else { now };
        let later = |last: u64| Some(now.max(last + 1));
        let last = self.last_timestamp().fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
        now.max(last.expect("always later") + 1)
    }

    /// Group and slot in it of a chunk of a file.
    fn place(&self, key: u64, index: u64) -> (usize, usize) {
        let (slot, group_slots) = (self.slot(key, index), self.geometry.group_slots());
        ((slot / group_slots) as usize, (slot % group_slots) as usize)
    }

    /// Where the data of a chunk end, by its tag: the file may end in it.
    fn valid_bytes(&self, index: u64, size: u64) -> usize {
        let start = self.geometry.offset_of(index);
        size.saturating_sub(start).min(self.geometry.chunk_bytes) as usize
    }
}

impl<M: CacheMedium> Protocol for ChunkStore<M> {
    fn write(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<usize, Error> {
        if !self.journals.is_empty() {
            self.write_journalled(file, offset, data, size)
        } else if self.is_in_place() {
            self.write_in_place(file, offset, data, size)
        } else {
            self.write_file(file, offset, data, size)
        }
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        self.read_file(file, offset, buffer)
    }

    fn cut(&self, file: &File, size: u64, before: u64) -> Result<(), Error> {
        self.cut_file(file, size, before)
    }

    fn last_dirty_bytes(&self, file: &File, size: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        self.dirty_bytes_before(file, size)
    }

    fn flush(&self, file: Option<&File>) -> Result<(), Error> {
        self.flush_dirty(file)
    }

    fn tend(&self, may_wait: &dyn Fn(&File) -> bool) -> Result<bool, Error> {
        self.flush_due(may_wait).map(|()| true)
    }

    fn release(&self, file: &File, size: u64) -> Result<bool, Error> {
        self.flush_chunks(file, &self.dirty_before(file, size)?)?;
        let _flush = lock(&file.flush);
        self.cut_file(file, 0, size)?;
        Ok(true)
    }

    fn fill(&self, status: &mut Status) -> Result<(), Error> {
        (status.slots, status.chunk_bytes) = (self.geometry.slots, self.geometry.chunk_bytes);
        status.forced_flushes = self.forced_flushes.load(Ordering::Relaxed);
        for number in 0..self.groups.len() {
            let group = self.hold(number)?;
            status.counts.add(match &self.board {
                Some(board) => board.counts(number),
                None => group.counts,
            });
            status.dirty_chunks += u64::from(group.dirty.count_ones());
        }
        status.direct = self.board.as_ref().map(|board| board.transfers()).unwrap_or_default();
        Ok(())
    }
}
