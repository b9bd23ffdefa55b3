//! Signs that entries are missing that no other entry counts.
//!
//! Counters find the loss of an entry that a later generation depends on. An entry of the last generation is counted
//! by none: its loss shows, if at all, in its chunk. Entries are written front to back, and a chunk is emptied only
//! when none of them is needed; so behind the place where the entries of a chunk end there is no entry that is
//! needed, unless the end itself is damage.
//!
//! What stays undetected, in the last generation only: damage to the last entry of a chunk that looks like an insertion
//! cut short by the crash, or like an empty place; and a chunk whose first header was turned into zeroes.

use std::fmt;
use std::sync::Arc;

use fastness_pmem::{LINE_BYTES, Medium};
use fastness_sync::lock;

use crate::chunk::Chunk;
use crate::entry::{EntryHeader, HEADER_BYTES};
use crate::ids::{EntryId, LogGuid, Txg};
use crate::prb::Prb;
use crate::scan::ChunkEnd;
use crate::traverse::{End, Located, Traversal};

/// Entries are missing although all that were found are in order: what no crash leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hidden {
    /// An entry that is needed stands behind the place where its chunk ends.
    Behind {
        /// Where and why the chunk ends.
        end: ChunkEnd,
        /// The first entry behind it.
        id: EntryId,
        /// Where that entry is.
        region_offset: u64,
    },
    /// A chunk ends in something that no writer leaves; entries of any log may have been there.
    Damage {
        /// Where and why the chunk ends.
        end: ChunkEnd,
    },
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Behind { end, .. } | Self::Damage { end }) = self;
        write!(f, "{} ends at region offset {:#x}", end.chunk, end.region_offset)?;
        match self {
            Self::Behind { id, region_offset, .. } => {
                write!(f, " ({:?}), but {id} stands behind it at {region_offset:#x}", end.end)
            }
            Self::Damage { .. } => write!(f, " in damage ({:?})", end.end),
        }
    }
}

impl std::error::Error for Hidden {}

/// The end of a chunk that is not plainly regular, and what stands behind it.
#[derive(Debug, Clone)]
pub struct ChunkTail {
    end: ChunkEnd,
    /// Whole entries behind the end, with their region offsets.
    behind: Vec<(u64, EntryHeader)>,
}

impl ChunkTail {
    /// What of the log is hidden here.
    pub fn hides(&self, log: LogGuid) -> Option<Hidden> {
        match self.behind.iter().find(|(_, header)| header.log == log) {
            Some((at, header)) => Some(Hidden::Behind { end: self.end, id: header.id, region_offset: *at }),
            None => self.end.end.is_damage().then_some(Hidden::Damage { end: self.end }),
        }
    }
}

/// Whether nothing is to be looked for behind the end. An empty place in front of entries is what clearing poison
/// leaves. Only chunks in use are searched: they are few, and of the others nothing but reading all would tell.
fn is_regular(end: &ChunkEnd) -> bool {
    matches!(end.end, End::Full | End::Stale) || (end.end == End::Empty && end.entries == 0)
}

/// Whole entries at or behind `from`, in steps of the smallest alignment, whatever stands between them.
pub fn entries_behind<M: Medium>(chunk: &M, from: usize) -> impl Iterator<Item = Located> {
    let end = (chunk.len_bytes() + 1).saturating_sub(HEADER_BYTES);
    let places = (from.next_multiple_of(LINE_BYTES)..end).step_by(LINE_BYTES);
    places.filter_map(|offset| Traversal::starting_at(chunk, offset).next())
}

impl<M: Medium + Sync> Prb<M> {
    /// In the claiming phase, the chunks' ends that something may be hidden behind. Entries of txgs before
    /// `first_txg` are left out. Reads what is behind such ends, at most the chunks that were being written and those
    /// that are damaged.
    pub fn chunk_tails(&self, first_txg: Txg) -> Vec<ChunkTail> {
        let mut lists = lock(&self.lists);
        if !lists.roster.claiming {
            return Vec::new();
        }
        let scan = self.scan(&mut lists);
        // One end for each chunk; of sides that are apart one for each of them, and then nothing can be said.
        let ends = scan.ends.chunk_by(|one, other| one.chunk == other.chunk);
        let irregular = lists.wait_replay.iter().zip(ends).filter_map(|(chunk, ends)| match ends {
            [end] if !is_regular(end) => Some((chunk, end)),
            _ => None,
        });
        let tail = |(chunk, end): (&Arc<Chunk<M>>, &ChunkEnd)| {
            let start = chunk.medium().region_offset();
            let from = (end.region_offset - start) as usize + LINE_BYTES;
            let behind = entries_behind(chunk.medium(), from)
                .filter(|entry| entry.header.txg >= first_txg)
                .map(|entry| (start + entry.offset as u64, entry.header))
                .collect();
            ChunkTail { end: *end, behind }
        };
        irregular.map(tail).collect()
    }
}
