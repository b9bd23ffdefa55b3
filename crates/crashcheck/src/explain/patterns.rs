//! Patterns of a trace that hint at mistakes, independently of the states.
//!
//! They hint and do not prove: a redundant flush costs time, and only a crash image can show whether a
//! missing one matters.
//!
//! Source: PM file systems dissertation, 8.7.2.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::ops::Range;

use fastness_crashcheck_trace::{Event, FenceKind, FlushKind, Kind, Reader};

use super::exclude::Exclusion;
use super::track::{At, LINE_BYTES, Track};
use crate::Result;
use crate::generate::Layout;

/// What is suspicious.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatternKind {
    /// A store that no flush has covered at the end.
    MissingFlush,
    /// A flush, or a non-temporal store, that no fence has completed at the end.
    MissingFence,
    /// A store over one that was not durable yet.
    OverwriteBeforePersist,
    /// Several lines flushed between two fences: they become durable in any order.
    UnorderedFlushes,
    /// A flush of a line without a store since its last one.
    RedundantFlush,
    /// A fence with nothing to complete.
    RedundantFence,
}

impl PatternKind {
    /// How much it matters; the least number is that of what matters most. What a recovery reads and a crash
    /// can lose comes first, what only costs time last.
    pub fn rank(self, is_read: Option<bool>) -> u8 {
        match (self, is_read) {
            (PatternKind::MissingFlush, Some(true)) => 0,
            (PatternKind::MissingFence, Some(true)) => 1,
            (PatternKind::MissingFlush, None) => 2,
            (PatternKind::MissingFence, None) => 3,
            (PatternKind::OverwriteBeforePersist, _) => 4,
            (PatternKind::UnorderedFlushes, _) => 5,
            (PatternKind::MissingFlush, Some(false)) => 6,
            (PatternKind::MissingFence, Some(false)) => 7,
            (PatternKind::RedundantFlush, _) => 8,
            (PatternKind::RedundantFence, _) => 9,
        }
    }

    /// For programs.
    pub fn name(self) -> &'static str {
        match self {
            PatternKind::MissingFlush => "missing-flush",
            PatternKind::MissingFence => "missing-fence",
            PatternKind::OverwriteBeforePersist => "overwrite-before-persist",
            PatternKind::UnorderedFlushes => "unordered-flushes",
            PatternKind::RedundantFlush => "redundant-flush",
            PatternKind::RedundantFence => "redundant-fence",
        }
    }

    /// For people.
    pub fn meaning(self) -> &'static str {
        match self {
            PatternKind::MissingFlush => "stored, but never flushed",
            PatternKind::MissingFence => "flushed, or stored past the caches, but never fenced",
            PatternKind::OverwriteBeforePersist => "overwrites data that is not durable yet",
            PatternKind::UnorderedFlushes => "several lines flushed before one fence",
            PatternKind::RedundantFlush => "flushes a line without a new store",
            PatternKind::RedundantFence => "a fence with nothing to complete",
        }
    }
}

/// One pattern at one instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// What.
    pub kind: PatternKind,
    /// The instruction, where it is known.
    pub pc: Option<u64>,
    /// How often.
    pub count: u64,
    /// Number of the first such event.
    pub first_event: u64,
    /// Its address; `None` for fences.
    pub first_address: Option<u64>,
    /// Whether the recovery reads the lines of what is missing; `None` if that is not known.
    pub is_read: Option<bool>,
}

/// What is looked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Search<'a> {
    /// Ranges of PM, and functions and files; names are left to those who know them.
    pub exclude: &'a [Exclusion],
    /// The lines of the image that a recovery reads, by number.
    pub read: Option<&'a BTreeSet<u64>>,
}

/// What a thread has done since its last fence.
#[derive(Debug, Default)]
struct SinceFence {
    /// Lines flushed.
    flushed: BTreeSet<u64>,
    first_flush: Option<(u64, Option<u64>, u64)>,
}

struct Found<'a> {
    track: Track,
    excluded: Vec<Range<u64>>,
    read: Option<&'a BTreeSet<u64>>,
    /// By thread.
    since_fence: BTreeMap<u32, SinceFence>,
    found: BTreeMap<(PatternKind, Option<u64>, Option<bool>), Pattern>,
}

/// Looks for patterns in the rest of a trace; one of a kind for each instruction, and of what is missing one
/// more if the recovery reads some of the lines and others not.
///
/// # Errors
/// Those of the trace.
pub fn patterns(reader: &mut Reader<impl Read>, search: Search<'_>) -> Result<Vec<Pattern>> {
    let layout = Layout::of(reader.header())?;
    let mut found = Found {
        excluded: search.exclude.iter().filter_map(|exclusion| exclusion.bytes(&layout)).collect(),
        read: search.read,
        track: Track::new(layout),
        since_fence: BTreeMap::new(),
        found: BTreeMap::new(),
    };
    loop {
        let number = reader.count();
        let Some(event) = reader.next()? else { break };
        found.event(&event, number);
    }
    found.end();
    Ok(found.found.into_values().collect())
}

impl Found<'_> {
    fn note(&mut self, kind: PatternKind, pc: Option<u64>, event: u64, address: Option<u64>) {
        let offset = address.and_then(|address| self.track.offset(address, 1));
        if offset.is_some_and(|offset| self.is_excluded(offset)) {
            return;
        }
        let is_missing = matches!(kind, PatternKind::MissingFlush | PatternKind::MissingFence);
        let is_read = match (self.read, offset) {
            (Some(read), Some(offset)) if is_missing => Some(read.contains(&(offset / LINE_BYTES))),
            _ => None,
        };
        let first = || Pattern { kind, pc, count: 0, first_event: event, first_address: address, is_read };
        let found = self.found.entry((kind, pc, is_read)).or_insert_with(first);
        found.count += 1;
        if event < found.first_event {
            (found.first_event, found.first_address) = (event, address);
        }
    }

    fn is_excluded(&self, offset: u64) -> bool {
        self.excluded.iter().any(|range| range.contains(&offset))
    }

    fn event(&mut self, event: &Event<'_>, number: u64) {
        let at = (number, event.origin.pc, event.origin.thread);
        match event.kind {
            Kind::Store { address, data, is_non_temporal, .. } => {
                self.store(address, data.len(), is_non_temporal, at);
            }
            Kind::Rmw { address, data } => {
                self.fence(at, false);
                self.store(address, data.len(), false, at);
            }
            Kind::Flush { kind: FlushKind::Wbinvd, .. } => self.track.flush_all(event.origin.thread),
            Kind::Flush { address, .. } => self.flush(address, at),
            Kind::Fence(FenceKind::Lfence) => {}
            // A LOCKed operation has another purpose.
            Kind::Fence(kind) => self.fence(at, kind != FenceKind::Locked),
            _ => {}
        }
    }

    fn store(&mut self, address: u64, len: usize, is_nt: bool, at: At) {
        if self.track.store(address, len, is_nt, at) {
            self.note(PatternKind::OverwriteBeforePersist, at.1, at.0, Some(address));
        }
    }

    fn flush(&mut self, address: u64, (number, pc, thread): At) {
        let Some(offset) = self.track.offset(address, 1) else { return };
        let line = offset / LINE_BYTES;
        if !self.track.flush(line, thread) {
            self.note(PatternKind::RedundantFlush, pc, number, Some(address));
            return;
        }
        if self.is_excluded(offset) {
            return;
        }
        let since = self.since_fence.entry(thread).or_default();
        since.flushed.insert(line);
        since.first_flush.get_or_insert((number, pc, address));
    }

    fn fence(&mut self, (number, pc, thread): At, is_own: bool) {
        let since = self.since_fence.remove(&thread).unwrap_or_default();
        if !self.track.fence(thread) && is_own {
            self.note(PatternKind::RedundantFence, pc, number, None);
        }
        if let Some((event, pc, address)) = since.first_flush.filter(|_| since.flushed.len() > 1) {
            self.note(PatternKind::UnorderedFlushes, pc, event, Some(address));
        }
    }

    fn end(&mut self) {
        for (line, found) in std::mem::take(&mut self.track.lines) {
            let address = self.track.layout().address_of(line * LINE_BYTES).map(|(address, _)| address);
            let lists =
                [(PatternKind::MissingFlush, found.unflushed), (PatternKind::MissingFence, found.unfenced)];
            for (kind, list) in lists {
                list.into_iter().for_each(|store| self.note(kind, store.pc, store.event, address));
            }
        }
    }
}
