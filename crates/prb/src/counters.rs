//! Dependency-tracking counters: how replay detects a missing entry.
//!
//! Every entry carries, for the up to three transaction groups that could be unsynced when its generation
//! started, how many entries of earlier generations the log holds for that group. Writer and replay run the
//! same [`Tracker`] over the same entries; where the counters differ, entries are missing (or there are too
//! many). The count is kept per txg because garbage collection removes whole txgs: one counter for all could
//! not tell a collected entry from a lost one.
//!
//! Source: zil-pmem thesis, 5.5 with figures 5.4 and 5.5.

use crate::ids::{EntryId, Generation, Gsid, Txg, UNSYNCED_TXGS};

/// Rows of a table: one more than there can be unsynced txgs, so that reuse of a row is detectable.
pub(crate) const ROWS: usize = 4;

/// One row: how many entries the log has for a txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Row {
    /// The txg; 0 if the row was never used.
    pub txg: Txg,
    /// Number of entries.
    pub count: u64,
}

/// Four rows; the row of a txg is `txg % 4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Table(pub(crate) [Row; ROWS]);

impl Table {
    fn newest(&self) -> Txg {
        self.0.iter().map(|row| row.txg).max().unwrap_or_default()
    }

    fn count_of(&self, txg: Txg) -> u64 {
        self.0.iter().find(|row| row.txg == txg && txg.0 > 0).map_or(0, |row| row.count)
    }

    /// Counters for a generation that starts after the entries counted here.
    pub(crate) fn counters(&self) -> Counters {
        let newest = self.newest();
        let mut counters = Counters { newest, counts: [0; 3] };
        for (age, count) in counters.counts.iter_mut().enumerate() {
            *count = newest.0.checked_sub(age as u64).map_or(0, |txg| self.count_of(Txg(txg)));
        }
        counters
    }
}

/// The counters as stored in an entry header.
///
/// Shape: `counts[i]` belongs to the txg `newest - i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Newest txg of any entry in an earlier generation; 0 if there is none.
    pub newest: Txg,
    /// Number of entries in earlier generations for `newest`, `newest - 1`, `newest - 2`.
    pub counts: [u64; 3],
}

impl Counters {
    /// The count for `txg`; zero for a txg that the counters do not cover.
    pub fn count_of(&self, txg: Txg) -> u64 {
        match self.newest.0.checked_sub(txg.0) {
            Some(age) if age < UNSYNCED_TXGS && txg.0 > 0 => self.counts[age as usize],
            _ => 0,
        }
    }

    /// The first txg at or above `first_txg` for which `self` (expected) and `other` (found) differ.
    ///
    /// Older txgs have synced: their entries may still be present or already be collected.
    fn differs_from(&self, other: &Self, first_txg: Txg) -> Option<CounterMismatch> {
        let covered = |c: &Self| c.newest.0.saturating_sub(UNSYNCED_TXGS - 1)..=c.newest.0;
        let at = |txg| CounterMismatch { txg, expected: self.count_of(txg), found: other.count_of(txg) };
        let txgs = covered(self).chain(covered(other)).map(Txg);
        txgs.filter(|&txg| txg >= first_txg).map(at).find(|m| m.expected != m.found)
    }
}

/// The counters of an entry do not match the entries before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterMismatch {
    /// The txg whose count differs.
    pub txg: Txg,
    /// Entries of that txg that were written before the witness.
    pub expected: u64,
    /// Entries of that txg that replay found before the witness.
    pub found: u64,
}

/// Why the tracker refuses an entry's txg.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutsideCorridor {
    pub(crate) newest: Txg,
}

/// State of dependency tracking, the same for the write path and for replay.
///
/// Invariant: the txgs that the live table counts lie in a corridor of three below the newest; the last table
/// is the live table at the start of the generation of `last`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tracker {
    pub(crate) last: EntryId,
    pub(crate) live: Table,
    pub(crate) last_table: Table,
}

impl Tracker {
    /// Newest txg of any entry counted; 0 if there is none.
    pub(crate) fn newest_txg(&self) -> Txg {
        self.live.newest()
    }

    /// Starts a generation: all entries counted so far are its dependencies.
    pub(crate) fn start_generation(&mut self, generation: Generation) {
        debug_assert!(generation > self.last.generation);
        self.last_table = self.live;
        self.last = EntryId { generation, gsid: Gsid(0) };
    }

    /// True if an entry of `txg` may be counted.
    pub(crate) fn check_corridor(&self, txg: Txg) -> Result<(), OutsideCorridor> {
        let newest = self.live.newest();
        if txg.0 + UNSYNCED_TXGS <= newest.0 { Err(OutsideCorridor { newest }) } else { Ok(()) }
    }

    /// Counts one entry of the current generation, whose txg is in the corridor.
    pub(crate) fn count(&mut self, txg: Txg, gsid: Gsid) {
        debug_assert_eq!(self.check_corridor(txg), Ok(()));
        let row = &mut self.live.0[(txg.0 % ROWS as u64) as usize];
        // A row of another txg is at least four txgs old, hence synced: its count is no longer needed.
        if row.txg == txg {
            row.count += 1;
        } else {
            *row = Row { txg, count: 1 }
        }
        self.last.gsid = gsid;
    }

    /// The counters for entries of the current generation.
    pub(crate) fn counters(&self) -> Counters {
        self.last_table.counters()
    }

    /// Visits an entry during replay: starts its generation if it is new, compares the counters, counts it.
    ///
    /// Counts of txgs below `first_txg` are not compared: those txgs have synced.
    pub(crate) fn visit(
        &mut self,
        id: EntryId,
        txg: Txg,
        counters: &Counters,
        first_txg: Txg,
    ) -> Result<(), VisitError> {
        debug_assert!(id > self.last);
        if id.generation > self.last.generation {
            self.start_generation(id.generation);
        }
        self.compare(counters, first_txg).map_err(VisitError::Missing)?;
        self.check_corridor(txg).map_err(|outside| VisitError::Corridor { newest: outside.newest })?;
        self.count(txg, id.gsid);
        Ok(())
    }

    /// Compares recorded counters with those computed from the visited entries.
    pub(crate) fn compare(&self, recorded: &Counters, first_txg: Txg) -> Result<(), CounterMismatch> {
        recorded.differs_from(&self.counters(), first_txg).map_or(Ok(()), Err)
    }
}

/// An entry that replay must not apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VisitError {
    Missing(CounterMismatch),
    Corridor { newest: Txg },
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generations of the thesis's figure 5.5 (A-D, E-F, G, H, J), txgs chosen so that two rows are
    /// reused.
    #[test]
    fn counters_follow_the_worked_example() {
        let mut tracker = Tracker::default();
        let write = |tracker: &mut Tracker, generation, txgs: &[u64]| {
            tracker.start_generation(Generation(generation));
            let counters = tracker.counters();
            for (i, &txg) in txgs.iter().enumerate() {
                tracker.count(Txg(txg), Gsid(i as u64 + 1));
            }
            counters
        };
        let none = Counters::default();
        assert_eq!(write(&mut tracker, 1, &[1, 2, 1, 3]), none);
        assert_eq!(write(&mut tracker, 2, &[3, 4]), Counters { newest: Txg(3), counts: [1, 1, 2] });
        assert_eq!(write(&mut tracker, 3, &[5]), Counters { newest: Txg(4), counts: [1, 2, 1] });
        assert_eq!(write(&mut tracker, 4, &[5]), Counters { newest: Txg(5), counts: [1, 1, 2] });
        assert_eq!(write(&mut tracker, 5, &[6]), Counters { newest: Txg(5), counts: [2, 1, 2] });
    }

    #[test]
    fn an_entry_older_than_the_corridor_is_refused_and_changes_nothing() {
        let mut tracker = Tracker::default();
        tracker.start_generation(Generation(1));
        tracker.count(Txg(10), Gsid(1));
        let before = tracker;
        for txg in [9, 8] {
            assert_eq!(tracker.check_corridor(Txg(txg)), Ok(()));
        }
        for txg in [7, 6, 1] {
            assert_eq!(tracker.check_corridor(Txg(txg)), Err(OutsideCorridor { newest: Txg(10) }));
        }
        assert_eq!(tracker, before);
    }

    #[test]
    fn synced_txgs_are_not_compared() {
        let recorded = Counters { newest: Txg(5), counts: [1, 7, 9] };
        let mut tracker = Tracker::default();
        tracker.start_generation(Generation(1));
        tracker.count(Txg(5), Gsid(1));
        tracker.start_generation(Generation(2));
        assert_eq!(tracker.compare(&recorded, Txg(5)), Ok(()));
        assert_eq!(
            tracker.compare(&recorded, Txg(4)),
            Err(CounterMismatch { txg: Txg(4), expected: 7, found: 0 })
        );
    }
}
