//! Finds signs of missing entries that no other entry counts.
//!
//! Counters find the loss of an entry that a later generation depends on. No entry counts those of the last
//! generation: their loss shows, if at all, in their chunk. Entries are written front to back, and a chunk is
//! emptied only when none of them is needed; so no needed entry is behind the end of a chunk's entries,
//! unless the end itself is damage.
//!
//! A chunk that ends in a header that was once whole ends in damage, whichever log the header belonged to.
//!
//! What stays undetected, in the last generation only: words of a chunk's last header that turned to zeroes,
//! which looks like an insertion interrupted by the crash; and a chunk whose first header turned to zeroes
//! completely, if it has no second one, or that is more than 256 KiB further on.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use fastness_pmem::{LINE_BYTES, Medium};
use fastness_sync::lock;

use crate::chunk::Chunk;
use crate::entry::{EntryHeader, HEADER_BYTES, may_begin_header};
use crate::ids::{EntryId, LogGuid, Txg};
use crate::prb::Prb;
use crate::scan::ChunkEnd;
use crate::traverse::{End, Located, Traversal};

/// Entries are missing although all those found are in order: no crash leaves this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hidden {
    /// A needed entry is behind the end of its chunk.
    Behind {
        /// Where and why the chunk ends.
        end: ChunkEnd,
        /// The first entry behind it.
        id: EntryId,
        /// Where that entry is.
        region_offset: u64,
    },
    /// A chunk ends in something that no writer leaves; it may have held entries of any log.
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
                write!(f, " ({}), but {id} follows at {region_offset:#x}", end.end)
            }
            Self::Damage { .. } => write!(f, " in damage ({})", end.end),
        }
    }
}

impl std::error::Error for Hidden {}

/// The end of a chunk that is not clearly regular, and what is behind it.
#[derive(Debug, Clone)]
pub struct ChunkTail {
    end: ChunkEnd,
    /// Whole entries behind the end, with their region offsets.
    behind: Vec<(u64, EntryHeader)>,
    /// Older entries are not needed.
    first_txg: Txg,
}

impl ChunkTail {
    /// The loss, if any, of this log here.
    pub fn hides(&self, log: LogGuid) -> Option<Hidden> {
        match self.behind.iter().find(|(_, header)| header.log == log) {
            Some((at, header)) => Some(Hidden::Behind { end: self.end, id: header.id, region_offset: *at }),
            None => self.is_damage_of(log).then_some(Hidden::Damage { end: self.end }),
        }
    }

    /// Whether the end is a damaged header that may have belonged to an entry that the log needs.
    fn is_damage_of(&self, log: LogGuid) -> bool {
        match self.end.end {
            End::Damaged(Some(header)) => header.log == log && header.txg >= self.first_txg,
            end => end.is_damage(),
        }
    }
}

/// How far to search for the first entry in a chunk that seems unused: further than most first entries are
/// long. Searching whole chunks would be certain, but an import would read the whole medium.
const SEARCHED_BYTES: usize = 256 << 10;
/// Bytes searched at a time.
const PAGE_BYTES: usize = 4096;

/// How to search a chunk for entries behind its end. Cleared poison, or a page that turned to zeroes, leaves
/// an empty place in front of entries.
enum Search {
    /// There can be none.
    None,
    /// The chunk seems unused. If it was used, its entries follow one another.
    Front,
    /// The chunk is in use, as few are: search everywhere, whatever is between entries.
    Everywhere,
}

fn search_behind(end: &ChunkEnd) -> Search {
    match end.end {
        End::Full | End::Stale => Search::None,
        End::Empty if end.entries == 0 => Search::Front,
        _ => Search::Everywhere,
    }
}

/// Whole entries at or behind `from`, in steps of the smallest alignment, whatever is between them.
pub fn entries_behind<M: Medium>(chunk: &M, from: usize) -> impl Iterator<Item = Located> {
    let places = (from.next_multiple_of(LINE_BYTES)..places_end(chunk)).step_by(LINE_BYTES);
    places.filter_map(|offset| Traversal::starting_at(chunk, offset).next())
}

/// Offset from which no header fits any more.
fn places_end(chunk: &impl Medium) -> usize {
    (chunk.len_bytes() + 1).saturating_sub(HEADER_BYTES)
}

/// The entries of a chunk whose front is empty: the consecutive ones from the first one found.
fn entries_behind_front<M: Medium>(chunk: &M, from: usize) -> Vec<Located> {
    let end = places_end(chunk).min(from.saturating_add(SEARCHED_BYTES));
    let (mut found, mut at) = (Vec::new(), from.next_multiple_of(LINE_BYTES));
    while at < end {
        let page_end = (at / PAGE_BYTES + 1) * PAGE_BYTES;
        let may_begin = places_that_may_begin(chunk, at..page_end.min(end));
        at = page_end;
        for offset in may_begin {
            let mut walk = Traversal::starting_at(chunk, offset);
            let before = found.len();
            found.extend(walk.by_ref());
            if found.len() > before {
                at = walk.offset().next_multiple_of(LINE_BYTES);
                break;
            }
        }
    }
    found
}

/// The places within a range of a page where a header may begin on any side; all if the page cannot be read.
fn places_that_may_begin(chunk: &impl Medium, range: Range<usize>) -> Vec<usize> {
    let mut may_begin = vec![false; range.len().div_ceil(LINE_BYTES)];
    let mut bytes = [0; PAGE_BYTES];
    let bytes = &mut bytes[..range.len()];
    for side in 0..chunk.sides() {
        let is_read = chunk.read_side(side, range.start, bytes).is_ok();
        let lines = bytes.chunks(LINE_BYTES).map(|line| !is_read || may_begin_header(line));
        may_begin.iter_mut().zip(lines).for_each(|(any, may)| *any |= may);
    }
    let places = range.step_by(LINE_BYTES).zip(may_begin);
    places.filter_map(|(offset, may)| may.then_some(offset)).collect()
}

impl<M: Medium + Sync> Prb<M> {
    /// In the claiming phase, the chunk ends that may hide something. Entries of txgs before `first_txg` are
    /// left out. Reads what is behind such ends: those of chunks that were being written and of damaged ones,
    /// and the front of all chunks that seem unused.
    pub fn chunk_tails(&self, first_txg: Txg) -> Vec<ChunkTail> {
        let mut lists = lock(&self.lists);
        if !lists.roster.claiming {
            return Vec::new();
        }
        let scan = self.scan(&mut lists);
        // One end per chunk; if its sides are apart, one per side, and then nothing can be said.
        let ends = scan.ends.chunk_by(|one, other| one.chunk == other.chunk);
        let tail = |(chunk, ends): (&Arc<Chunk<M>>, &[ChunkEnd])| {
            let [end] = ends else { return None };
            let start = chunk.medium().region_offset();
            let from = (end.region_offset - start) as usize + LINE_BYTES;
            let behind = match search_behind(end) {
                Search::None => return None,
                Search::Front => entries_behind_front(chunk.medium(), from),
                Search::Everywhere => entries_behind(chunk.medium(), from).collect(),
            };
            let needed = behind.into_iter().filter(|entry| entry.header.txg >= first_txg);
            let behind = needed.map(|entry| (start + entry.offset as u64, entry.header)).collect();
            Some(ChunkTail { end: *end, behind, first_txg })
        };
        lists.wait_replay.iter().zip(ends).filter_map(tail).collect()
    }
}
