//! A chunk: an insert-only container of entries in one contiguous range of PM.
//!
//! The entries of a chunk always end at something that is not a header (or at the chunk's end), so a
//! traversal after a crash finds exactly the entries that were inserted completely. Emptying a chunk
//! overwrites its first header.
//!
//! Crash cases of [`Chunk::insert`] with two fences:
//! 1. before the first fence: the place of the header still holds the empty header that the previous
//!    insertion (or the emptying) made durable, so the traversal stops there, whatever part of the body has
//!    reached the medium;
//! 2. between the fences: the header is torn (its checksum fails) or whole; if whole, body and follow header
//!    are too, because the first fence put them on the medium;
//! 3. after the second fence: the entry is durable.
//!
//! With one fence, a whole header may be followed by a torn body: the traversal reads such bodies and checks
//! their 128-bit checksum; and by a follow header from an earlier use of the chunk: its epoch differs.
//!
//! A chunk on a mirror is written to both sides at the same offsets, and each fence covers both; so each case
//! holds for each side, and between two fences the sides may differ.
//!
//! Source: zil-pmem thesis, 5.9, 5.11, 5.12.3; dissertation (2025), 3.1.3.

use fastness_pmem::{Medium, NoSum, PersistError};

use crate::checksum::{BodySum, ChecksumKind, Crc32cSum, Fletcher4Sum, Xxh3Sum};
use crate::counters::Counters;
use crate::entry::{Alignment, EntryHeader, HEADER_BYTES, Insertion, header_sum};
use crate::ids::{ChunkId, EntryId, LogGuid, Txg};
use crate::planted::{Bug, is_planted};
use crate::traverse::{BodyError, End, Traversal, read_body_of};

/// How entries are laid out and protected in a PRB's chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) alignment: Alignment,
    pub(crate) checksum: ChecksumKind,
    pub(crate) insertion: Insertion,
}

/// What the log knows about an entry while its body is being written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EntryMeta {
    pub(crate) log: LogGuid,
    pub(crate) txg: Txg,
    pub(crate) id: EntryId,
    pub(crate) counters: Counters,
}

/// The DRAM state of a chunk.
#[derive(Debug)]
pub(crate) struct Chunk<M> {
    pub(crate) id: ChunkId,
    medium: M,
    write_position: usize,
    epoch: u64,
    /// Newest txg of any entry; the chunk is obsolete once this txg has synced.
    pub(crate) max_txg: Txg,
    /// What was inserted since the chunk was emptied, for a comparison with the medium at collection.
    inserted: Inserted,
}

/// Running digest of the entries of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Inserted {
    entries: u64,
    digest: u64,
}

impl Inserted {
    #[inline]
    fn add(&mut self, header_sum: u64) {
        self.entries += 1;
        self.digest = (self.digest ^ header_sum).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
    }
}

/// An entry that was just inserted.
pub(crate) struct Inserting {
    pub(crate) id: EntryId,
    /// See [`header_sum`].
    pub(crate) sum: u64,
    pub(crate) written_bytes: usize,
}

/// The medium does not hold what was written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MediaFault {
    /// An entry's body is damaged.
    #[error("{chunk}: {error}")]
    Body {
        /// The chunk.
        chunk: ChunkId,
        /// What is wrong, and where.
        error: BodyError,
    },
    /// Entries are missing or changed.
    #[error(
        "{chunk}: {found} of {written} entries are readable, up to region offset {region_offset:#x} ({end:?})"
    )]
    Entries {
        /// The chunk.
        chunk: ChunkId,
        /// Entries that were inserted.
        written: u64,
        /// Entries that the medium returned.
        found: u64,
        /// Region offset at which reading stopped.
        region_offset: u64,
        /// Why it stopped.
        end: End,
    },
}

/// A [`MediaFault`] on a side of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("side {side}: {fault}")]
pub struct SideMediaFault {
    /// The first side that has one.
    pub side: usize,
    /// What is wrong.
    #[source]
    pub fault: MediaFault,
    /// Whether no side holds what was written; otherwise nothing is lost.
    pub is_only_copy: bool,
}

/// What a collection did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// Chunks that are free again.
    pub chunks: usize,
    /// Chunks that did not hold what was written to them; they are not reused until the PRB is reopened.
    pub faults: Vec<MediaFault>,
    /// Chunks that only one side of a mirror failed to hold; they stay in use.
    pub side_faults: Vec<SideMediaFault>,
}

impl<M: Medium> Chunk<M> {
    /// A chunk whose contents on the medium are kept (for claim).
    pub(crate) fn new(id: ChunkId, medium: M) -> Self {
        let write_position = medium.len_bytes();
        Self { id, medium, write_position, epoch: 0, max_txg: Txg(0), inserted: Inserted::default() }
    }

    pub(crate) fn medium(&self) -> &M {
        &self.medium
    }

    pub(crate) fn into_medium(self) -> M {
        self.medium
    }

    /// Empties the chunk in O(1) and starts a new use of it with `epoch`.
    ///
    /// Persistence: after a crash that follows the return, the chunk is empty. Source: zil-pmem thesis, 5.11.
    pub(crate) fn make_empty(&mut self, epoch: u64) -> Result<(), PersistError> {
        self.medium.copy(0, &[], HEADER_BYTES, &mut NoSum);
        // PERSIST: orders the emptied header before the chunk's next use. Another thread will insert, and its
        // fences do not cover this thread's stores: without the fence, the zeroes could reach the medium
        // after the new first header and remove acknowledged entries.
        self.medium.fence()?;
        self.write_position = 0;
        self.epoch = epoch;
        self.max_txg = Txg(0);
        self.inserted = Inserted::default();
        Ok(())
    }

    /// Region offset of the header of the next entry.
    #[inline]
    pub(crate) fn next_offset(&self) -> u64 {
        self.medium.region_offset() + self.write_position as u64
    }

    /// True if an entry with this body fits after the last one.
    #[inline]
    pub(crate) fn has_room(&self, layout: Layout, body_len: usize) -> bool {
        self.medium.len_bytes() - self.write_position >= HEADER_BYTES + layout.alignment.round_up(body_len)
    }

    /// True if nothing was inserted since the chunk was emptied.
    pub(crate) fn is_empty(&self) -> bool {
        self.inserted.entries == 0
    }

    /// Inserts an entry: body, padding and an empty follow header, then its header.
    ///
    /// The body is the concatenation of its parts; the first is whole lines, so that no line is stored twice.
    /// `place` is called while the body drains; it must not be a LOCKed operation, which would wait for the
    /// drain before the work instead of after it.
    /// Persistence: the entry is durable on return; after a crash inside, it exists completely or not at all.
    ///
    /// # Errors
    /// A fence failed: what is durable is unknown.
    #[inline]
    pub(crate) fn insert(
        &mut self,
        layout: Layout,
        body: [&[u8]; 2],
        place: impl FnOnce() -> EntryMeta,
    ) -> Result<Inserting, PersistError> {
        match layout.checksum {
            ChecksumKind::Fletcher4 => self.insert_summed::<Fletcher4Sum>(layout, body, place),
            ChecksumKind::Crc32c => self.insert_summed::<Crc32cSum>(layout, body, place),
            ChecksumKind::Xxh3 => self.insert_summed::<Xxh3Sum>(layout, body, place),
        }
    }

    #[inline]
    fn insert_summed<S: BodySum>(
        &mut self,
        layout: Layout,
        [front, rest]: [&[u8]; 2],
        place: impl FnOnce() -> EntryMeta,
    ) -> Result<Inserting, PersistError> {
        let body_len = front.len() + rest.len();
        assert!(self.has_room(layout, body_len), "the caller checks the room");
        let position = self.write_position;
        let padded = layout.alignment.round_up(body_len);
        let end = position + HEADER_BYTES + padded;
        let follow = if self.medium.len_bytes() - end >= HEADER_BYTES { HEADER_BYTES } else { 0 };

        let mut sum = if front.is_empty() { S::default() } else { S::in_parts() };
        let start = position + HEADER_BYTES;
        if !front.is_empty() {
            self.medium.copy(start, front, front.len(), &mut sum);
        }
        self.medium.copy(start + front.len(), rest, padded + follow - front.len(), &mut sum);
        let EntryMeta { log, txg, id, counters } = place();
        let header = EntryHeader {
            log,
            txg,
            id,
            counters,
            body_len_bytes: if is_planted(Bug::PaddingCounted) { padded } else { body_len } as u64,
            body_checksum: if is_planted(Bug::Unsummed) { S::default() } else { sum }.finish(),
            checksum_kind: layout.checksum,
            alignment: layout.alignment,
            insertion: layout.insertion,
            epoch: self.epoch,
        }
        .encode();
        if layout.insertion == Insertion::TwoFences && !is_planted(Bug::HeaderBesideBody) {
            // PERSIST: orders body and follow header before the header below. Without it a crash could leave
            // a whole header in front of a torn body, or in front of a stale entry.
            self.medium.fence()?;
        }
        self.medium.copy(position, &header, HEADER_BYTES, &mut NoSum);
        if !is_planted(Bug::Unfenced) {
            // PERSIST: orders the header before the acknowledgement. Without it an acknowledged entry could
            // be lost.
            self.medium.fence()?;
        }

        self.write_position = end;
        self.max_txg = self.max_txg.max(txg);
        let sum = header_sum(&header);
        self.inserted.add(sum);
        Ok(Inserting { id, sum, written_bytes: HEADER_BYTES + padded + follow })
    }

    /// Reads the chunk back and compares it with what was inserted.
    ///
    /// PM reports no write errors; this finds them, at the latest when the chunk is collected. Source:
    /// zil-pmem thesis, 8.1 (future work).
    pub(crate) fn verify(&self, buffer: &mut Vec<u8>) -> Result<(), SideMediaFault> {
        let mut faulty = None;
        let mut good = 0;
        let lost = self.medium.lost_side();
        for side in (0..self.medium.sides()).filter(|side| lost != Some(*side)) {
            match self.verify_side(side, buffer) {
                Ok(()) => good += 1,
                Err(fault) => faulty = faulty.or(Some(SideMediaFault { side, fault, is_only_copy: false })),
            }
        }
        faulty.map_or(Ok(()), |faulty| Err(SideMediaFault { is_only_copy: good == 0, ..faulty }))
    }

    fn verify_side(&self, side: usize, buffer: &mut Vec<u8>) -> Result<(), MediaFault> {
        let chunk = self.id;
        let mut found = Inserted::default();
        let mut entries = Traversal::of_side(&self.medium, side);
        for entry in entries.by_ref().take(self.inserted.entries as usize) {
            let len = entry.header.body_len_bytes as usize;
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            read_body_of(&self.medium, side..side + 1, &entry, buffer)
                .map_err(|error| MediaFault::Body { chunk, error })?;
            found.add(header_sum(&entry.header.encode()));
        }
        if found == self.inserted {
            return Ok(());
        }
        Err(MediaFault::Entries {
            chunk,
            written: self.inserted.entries,
            found: found.entries,
            region_offset: self.medium.region_offset() + entries.offset() as u64,
            end: entries.end().unwrap_or(End::Full),
        })
    }
}
