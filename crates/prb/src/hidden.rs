//! Signs that entries are missing that no other entry counts.
//!
//! Counters find the loss of an entry that a later generation depends on. An entry of the last generation is
//! counted by none: its loss shows, if at all, in its chunk. Entries are written front to back, and a chunk
//! is emptied only when none of them is needed; so behind the place where the entries of a chunk end there is
//! no entry that is needed, unless the end itself is damage.
//!
//! A chunk that ends in a header that was whole once ends in damage, whoever's it was.
//!
//! What stays undetected, in the last generation only: words of the last header of a chunk that turned to
//! zeroes, which is what an insertion looks like that the crash cut short; and a chunk whose first header
//! turned to zeroes altogether, if it has no other, or the second one is more than 256 KiB behind.

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

/// How far the first entry is looked for in a chunk that seems not to be in use: further than most first
/// entries are long. Whole chunks would tell for certain, and an import would read all of the medium.
const SEARCHED_BYTES: usize = 256 << 10;
/// Bytes that are looked through at a time.
const PAGE_BYTES: usize = 4096;

/// How a chunk is searched for entries behind its end. An empty place in front of entries is what clearing
/// poison leaves, or a page that turned to zeroes.
enum Search {
    /// Nothing can be there.
    None,
    /// The chunk seems not to be in use. If it was, its entries stand one behind the other.
    Front,
    /// It is in use, as few are: everywhere, whatever stands between entries.
    Everywhere,
}

fn search_behind(end: &ChunkEnd) -> Search {
    match end.end {
        End::Full | End::Stale => Search::None,
        End::Empty if end.entries == 0 => Search::Front,
        _ => Search::Everywhere,
    }
}

/// Whole entries at or behind `from`, in steps of the smallest alignment, whatever stands between them.
pub fn entries_behind<M: Medium>(chunk: &M, from: usize) -> impl Iterator<Item = Located> {
    let places = (from.next_multiple_of(LINE_BYTES)..places_end(chunk)).step_by(LINE_BYTES);
    places.filter_map(|offset| Traversal::starting_at(chunk, offset).next())
}

/// Where no header fits any more.
fn places_end(chunk: &impl Medium) -> usize {
    (chunk.len_bytes() + 1).saturating_sub(HEADER_BYTES)
}

/// The entries of a chunk whose front is empty: those that stand one behind the other from the first one on.
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

/// The places in a range of a page where a header may begin on any side; all, if the page cannot be read.
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
    /// In the claiming phase, the chunks' ends that something may be hidden behind. Entries of txgs before
    /// `first_txg` are left out. Reads what is behind such ends: the chunks that were being written and those
    /// that are damaged, and the front of all that seem not to be in use.
    pub fn chunk_tails(&self, first_txg: Txg) -> Vec<ChunkTail> {
        let mut lists = lock(&self.lists);
        if !lists.roster.claiming {
            return Vec::new();
        }
        let scan = self.scan(&mut lists);
        // One end for each chunk; of sides that are apart one for each of them, and then nothing can be said.
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
