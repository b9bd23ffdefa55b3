//! What the protocol Log knows of a file, besides what every protocol does.

use std::ops::Range;

use fastness_pmlog::Turn;
use fastness_sync::{Mutex, RwLock};

use crate::ranges::Ranges;

/// The part of a file that belongs to the protocol Log.
///
/// Concurrency: the locks are taken in this order, after `flush` of the file: `real`, `writing`, the log,
/// `state`.
#[derive(Debug, Default)]
pub(crate) struct Logged {
    /// Held during a sync of the backing store, and until it is known what that did: one thread alone is told
    /// of an error.
    pub(crate) real: Mutex<()>,
    /// Shared by writes; held alone by who writes again what a failed sync has lost.
    pub(crate) writing: RwLock<()>,
    pub(crate) state: Mutex<LoggedState>,
}

/// What is synced and what is not.
#[derive(Debug, Default, Clone)]
pub(crate) struct LoggedState {
    /// Written since the last sync. Of these bytes, of `syncing` and of `newer` the records of the file in
    /// the log have older ones; of all others they have the newest.
    pub(crate) unsynced: Ranges,
    /// What a sync of the backing store that is under way covers.
    syncing: Ranges,
    /// What such syncs have covered: a crash may bring back the older bytes of the records.
    newer: Ranges,
    /// Something else was written, too: before the cache knew the file, or in more ranges than are noted.
    /// Then the next sync has to be real.
    pub(crate) is_unknown: bool,
    /// A sync that is under way covers that.
    is_unknown_syncing: bool,
    /// No record may be written, because it is not known which bytes are newer.
    is_untracked: bool,
    /// A sync of the backing store has failed: what it did not take has to be written again.
    pub(crate) needs_rewrite: bool,
    /// It failed while no call of a program waited for it, and there were bytes that only the backing store
    /// had: the next sync says so.
    pub(crate) has_lost: bool,
    /// Number of its last record.
    pub(crate) last_record: u64,
    /// Records up to this one are obsolete.
    pub(crate) settled: u64,
    /// Turns of the log with records that are not obsolete: from the first to the last.
    turns: Option<(Turn, Turn)>,
}

impl LoggedState {
    /// Whether the log has records that a recovery would carry out.
    pub(crate) fn is_live(&self) -> bool {
        self.turns.is_some()
    }

    /// Whether a sync would have nothing to do.
    pub(crate) fn is_synced(&self) -> bool {
        self.newer_than_records().is_empty() && !self.needs_real_sync()
    }

    /// Whether no record can do for a sync.
    pub(crate) fn needs_real_sync(&self) -> bool {
        self.is_unknown || self.is_unknown_syncing || self.is_untracked
    }

    /// Whether a record may be written.
    pub(crate) fn takes_records(&self) -> bool {
        !self.is_untracked && !self.has_lost
    }

    /// Whether the backing store may lack something that the log does not have either.
    pub(crate) fn is_unsafe(&self) -> bool {
        !self.unsynced.is_empty() || !self.syncing.is_empty() || self.needs_real_sync()
    }

    pub(crate) fn has_records_until(&self, turn: Turn) -> bool {
        self.turns.is_some_and(|(first, _)| first <= turn)
    }

    /// What is newer than the records: what a sync has to make durable.
    pub(crate) fn newer_than_records(&self) -> Ranges {
        let mut newer = self.unsynced.clone();
        newer.add_all(&self.syncing);
        newer.add_all(&self.newer);
        newer
    }

    /// Notes a record, which has the newest bytes of these ranges but for what was noted since they were
    /// read.
    pub(crate) fn recorded(&mut self, number: u64, turn: Turn, ranges: &Ranges) {
        for range in ranges.iter() {
            self.newer.remove(&range);
            self.syncing.remove(&range);
        }
        self.last_record = number;
        self.turns = Some((self.turns.map_or(turn, |(first, _)| first), turn));
    }

    /// Notes that records up to a number are obsolete.
    pub(crate) fn settled(&mut self, until: u64) {
        self.settled = self.settled.max(until);
        if self.last_record <= self.settled {
            (self.turns, self.newer) = (None, Ranges::default());
        }
    }

    /// Notes that records up to a turn are gone. Which later turns have some is not known: the first may be
    /// any.
    pub(crate) fn trimmed(&mut self, until: Turn) {
        self.turns = self.turns.filter(|(_, last)| *last > until);
        if self.turns.is_none() {
            self.newer = Ranges::default();
        }
    }

    /// Notes a write that is not synced.
    pub(crate) fn written(&mut self, range: Range<u64>) {
        self.unsynced.add(range);
    }

    /// Gives up to note which bytes are unsynced; the log has no records of the file.
    pub(crate) fn untrack(&mut self) {
        self.unsynced = Ranges::default();
        (self.is_unknown, self.is_untracked) = (true, true);
    }

    /// A sync of the backing store begins. Until it has ended, what it covers is not synced.
    pub(crate) fn begin_real_sync(&mut self) {
        self.syncing = std::mem::take(&mut self.unsynced);
        self.is_unknown_syncing = std::mem::take(&mut self.is_unknown);
    }

    /// It has succeeded.
    pub(crate) fn end_real_sync(&mut self) {
        let covered = std::mem::take(&mut self.syncing);
        if self.is_live() {
            self.newer.add_all(&covered);
        }
        (self.is_unknown_syncing, self.needs_rewrite) = (false, false);
        // Unless there were again more ranges meanwhile.
        self.is_untracked &= self.is_unknown;
    }

    /// It has failed; `is_alone`: nothing waited for it.
    pub(crate) fn fail_real_sync(&mut self, is_alone: bool) {
        self.has_lost |= is_alone && self.is_unsafe();
        let covered = std::mem::take(&mut self.syncing);
        self.unsynced.add_all(&covered);
        self.is_unknown |= std::mem::take(&mut self.is_unknown_syncing);
        self.needs_rewrite = true;
    }
}
