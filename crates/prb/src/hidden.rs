//! Signs that entries are missing that no other entry counts.
//!
//! Counters find the loss of an entry that a later generation depends on. An entry of the last generation is counted
//! by none: its loss shows, if at all, in its chunk. Entries are written front to back, and a chunk is emptied only
//! when none of them is needed; so behind the place where the entries of a chunk end there is no entry that is
//! needed, unless the end itself is damage.
//!
//! A chunk that ends in a header that was whole once ends in damage, whoever's it was.
//!
//! What stays undetected, in the last generation only: words of the last header of a chunk that turned to
//! zeroes, which is what an insertion looks like that the crash cut short; and a chunk whose first header
//! turned to zeroes altogether, if its second entry is far behind.

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
                write!(f, " ({}), but {id} stands behind it at {region_offset:#x}", end.end)
            }
            Self::Damage { .. } => write!(f, " in damage ({})", end.end),
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
    /// Older entries are not needed.
    first_txg: Txg,
}

impl ChunkTail {
    /// What of the log is hidden here.
    pub fn hides(&self, log: LogGuid) -> Option<Hidden> {
        match self.behind.iter().find(|(_, header)| header.log == log) {
            Some((at, header)) => Some(Hidden::Behind { end: self.end, id: header.id, region_offset: *at }),
            None => self.is_damage_of(log).then_some(Hidden::Damage { end: self.end }),
        }
    }

    /// Whether the end is damage that may have been an entry that the log needs.
    fn is_damage_of(&self, log: LogGuid) -> bool {
        match self.end.end {
            End::Damaged(Some(header)) => header.log == log && header.txg >= self.first_txg,
            end => end.is_damage(),
        }
    }
}

/// How far a chunk is searched that looks as if it were not in use.
const SEARCHED_BYTES: usize = 8 << 10;

/// How many bytes behind the end are searched for entries. An empty place in front of entries is what
/// clearing poison leaves. Chunks in use are searched: they are few. Of the others nothing but reading all
/// would tell for certain; a small first entry, turned to zeroes, is found out by the second.
fn searched_bytes(end: &ChunkEnd) -> usize {
    match end.end {
        End::Full | End::Stale => 0,
        End::Empty if end.entries == 0 => SEARCHED_BYTES,
        _ => usize::MAX,
    }
}

/// Whole entries at or behind `from`, in steps of the smallest alignment, whatever stands between them.
pub fn entries_behind<M: Medium>(chunk: &M, from: usize) -> impl Iterator<Item = Located> {
    entries_between(chunk, from, usize::MAX)
}

fn entries_between<M: Medium>(chunk: &M, from: usize, to: usize) -> impl Iterator<Item = Located> {
    let end = (chunk.len_bytes() + 1).saturating_sub(HEADER_BYTES).min(to);
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
            [end] if searched_bytes(end) > 0 => Some((chunk, end)),
            _ => None,
        });
        let tail = |(chunk, end): (&Arc<Chunk<M>>, &ChunkEnd)| {
            let start = chunk.medium().region_offset();
            let from = (end.region_offset - start) as usize + LINE_BYTES;
            let to = from.saturating_add(searched_bytes(end));
            let behind = entries_between(chunk.medium(), from, to)
                .filter(|entry| entry.header.txg >= first_txg)
                .map(|entry| (start + entry.offset as u64, entry.header))
                .collect();
            ChunkTail { end: *end, behind, first_txg }
        };
        irregular.map(tail).collect()
    }
}
