//! Writing entries.

use fastness_pmem::{LINE_BYTES, Medium};
use fastness_sync::{Mutex, lock};

use crate::chunk::EntryMeta;
use crate::counters::{Counters, OutsideCorridor, Tracker};
use crate::entry::NUMBER_MAX;
use crate::error::{Misuse, WriteError};
use crate::hdl::{Hdl, State, wrong_state};
use crate::ids::{EntryId, Generation, Gsid, LogGuid, Txg};
use crate::prb::{Placed, Wait};

/// The result of writing an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is durable, at this place in the log.
    Entry(EntryId),
    /// Nothing was written: its txg has synced, so the change is already durable.
    Obsolete,
}

/// A log in state logging.
#[derive(Debug)]
pub(super) struct Log {
    guid: LogGuid,
    /// False until the owner has reported that the header with the GUID is durable.
    header_durable: bool,
    /// Held for a few instructions per entry; only writers of the same log contend for it.
    position: Mutex<Position>,
}

#[derive(Debug)]
struct Position {
    tracker: Tracker,
    /// The counters of the current generation, computed when it started.
    counters: Counters,
    /// No entry was written since the last one that was written only for its counters.
    is_witnessed: bool,
}

impl Position {
    fn check(&self, txg: Txg) -> Result<(), WriteError> {
        if txg.0 > NUMBER_MAX {
            return Err(WriteError::TxgTooLarge { txg });
        }
        let outside =
            |outside: OutsideCorridor| WriteError::TxgOutsideCorridor { txg, newest: outside.newest };
        self.tracker.check_corridor(txg).map_err(outside)
    }

    /// Assigns the next place in the current generation; the txg was checked.
    #[inline]
    fn assign(&mut self, log: LogGuid, txg: Txg) -> EntryMeta {
        let gsid = Gsid(self.tracker.last.gsid.0 + 1);
        self.tracker.count(txg, gsid);
        self.is_witnessed = false;
        EntryMeta { log, txg, id: self.tracker.last, counters: self.counters }
    }

    /// Starts a generation, unless the current one has no entry yet.
    #[inline]
    fn start_generation(&mut self) {
        if self.tracker.last.gsid == Gsid(0) && self.tracker.last.generation > Generation(0) {
            return;
        }
        let next = Generation(self.tracker.last.generation.0 + 1);
        self.tracker.start_generation(next);
        self.counters = self.tracker.counters();
    }
}

impl Log {
    pub(super) fn new(guid: LogGuid) -> Self {
        let mut position =
            Position { tracker: Tracker::default(), counters: Counters::default(), is_witnessed: true };
        position.start_generation();
        Self { guid, header_durable: false, position: Mutex::new(position) }
    }

    pub(super) fn guid(&self) -> LogGuid {
        self.guid
    }

    pub(super) fn last(&self) -> EntryId {
        lock(&self.position).tracker.last
    }
}

impl<M: Medium + Sync> Hdl<M> {
    /// Reports that the header update of [`Hdl::create_log`] is durable, so that entries may be written.
    ///
    /// # Errors
    /// [`Misuse::State`] for a log that is not in state logging.
    pub fn header_synced(&mut self) -> Result<(), Misuse> {
        match &mut self.state {
            State::Logging(log) => {
                log.header_durable = true;
                Ok(())
            }
            other => Err(wrong_state("header_synced", "logging", other)),
        }
    }

    /// Starts a generation: every entry written from now on depends on every entry written before.
    ///
    /// Takes `&mut self`: all earlier writes have returned, so their entries are durable. Writes nothing; a
    /// generation without entries is not started again.
    ///
    /// # Errors
    /// [`Misuse::State`] for a log that is not in state logging. Source: zil-pmem thesis, 5.12.2 (where the
    /// caller must ensure the exclusion).
    pub fn start_generation(&mut self) -> Result<(), Misuse> {
        match &mut self.state {
            State::Logging(log) => {
                let position = log.position.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
                position.start_generation();
                Ok(())
            }
            other => Err(wrong_state("start_generation", "logging", other)),
        }
    }

    /// Writes one entry into the current generation.
    ///
    /// `txg` is the transaction group that will make the change in `body` durable elsewhere. Persistence: the
    /// entry is durable on return (as far as the region's durability goes); after a crash inside, it exists
    /// completely or not at all. Concurrency: any number of threads; at most `ncommitters` of the PRB write
    /// at a time.
    ///
    /// # Errors
    /// [`WriteError`]. Nothing was written, except after [`WriteError::Persist`].
    /// Source: zil-pmem thesis, 5.12 and 5.13.3 (`prb_write_entry`).
    #[inline]
    pub fn write_entry(&self, txg: Txg, body: &[u8], wait: Wait) -> Result<Written, WriteError> {
        self.write_entry_parts(txg, [&[], body], wait)
    }

    /// As [`write_entry`](Self::write_entry), with a body in separate parts, which need not be concatenated
    /// first.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Caller bug only: the first part is not whole lines of 64 bytes.
    #[inline]
    pub fn write_entry_parts(&self, txg: Txg, body: [&[u8]; 2], wait: Wait) -> Result<Written, WriteError> {
        let placed = self.place_entry(txg, body, wait)?;
        Ok(placed.map_or(Written::Obsolete, |placed| Written::Entry(placed.id)))
    }

    /// As [`write_entry_parts`](Self::write_entry_parts), and says where the entry is: for owners that read
    /// bodies while the log is in use. `None`: nothing was written, its txg has synced.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// As there.
    #[inline]
    pub fn place_entry(&self, txg: Txg, body: [&[u8]; 2], wait: Wait) -> Result<Option<Placed>, WriteError> {
        assert!(body[0].len().is_multiple_of(LINE_BYTES), "the first part is whole lines");
        let log = self.writable_log()?;
        if txg <= self.prb.synced() {
            return Ok(None);
        }
        let placed = self.prb.insert(body, wait, || {
            let mut position = lock(&log.position);
            position.check(txg)?;
            let meta = position.assign(log.guid, txg);
            Ok(move || meta)
        })?;
        Ok(Some(placed))
    }

    #[inline]
    fn writable_log(&self) -> Result<&Log, Misuse> {
        match &self.state {
            State::Logging(log) if log.header_durable => Ok(log),
            State::Logging(_) => {
                let (operation, found) = ("write_entry", "logging, header not durable");
                Err(Misuse::State { operation, needed: "logging, header durable", found })
            }
            other => Err(wrong_state("write_entry", "logging", other)),
        }
    }

    /// Starts a generation and writes its first entry; see there. Takes no lock of the log.
    ///
    /// # Errors
    /// As [`Hdl::write_entry`]; no generation was started.
    pub fn write_dependent_entry(
        &mut self,
        txg: Txg,
        body: &[u8],
        wait: Wait,
    ) -> Result<Written, WriteError> {
        self.writable_log()?;
        let State::Logging(log) = &mut self.state else { unreachable!("writable") };
        let position = log.position.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        if txg <= self.prb.synced() {
            // Later entries depend on it all the same.
            position.start_generation();
            return Ok(Written::Obsolete);
        }
        position.check(txg)?;
        let placed = self.prb.insert([&[], body], wait, || {
            Ok(|| {
                position.start_generation();
                position.assign(log.guid, txg)
            })
        })?;
        Ok(Written::Entry(placed.id))
    }

    /// Writes an entry without a body, in a generation of its own: a *witness*. Its counters say how many
    /// entries precede it, so an import notices if the medium lost any of them, the last one included, which
    /// nothing else counts. Nothing is lost with the witness itself.
    ///
    /// For a log to which nothing is written for a while. `None` if there is nothing to say (no entry since
    /// the last witness, or all have synced), or no space that records do not need. Persistence: as for
    /// [`Hdl::write_entry`].
    ///
    /// # Errors
    /// As for [`Hdl::write_entry`].
    pub fn witness(&mut self) -> Result<Option<EntryId>, WriteError> {
        self.writable_log()?;
        let State::Logging(log) = &mut self.state else { unreachable!("writable") };
        let position = log.position.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The newest txg of all: the witness is needed as long as any of the entries is.
        let txg = position.tracker.newest_txg();
        if txg <= self.prb.synced() || position.is_witnessed {
            return Ok(None);
        }
        let guid = log.guid;
        let written = self.prb.insert_apart(|| {
            Ok(|| {
                position.start_generation();
                let meta = position.assign(guid, txg);
                position.is_witnessed = true;
                meta
            })
        })?;
        Ok(written)
    }

    /// Whether a [witness](Self::witness) would say something, and the last entry.
    pub fn unwitnessed(&self) -> Option<EntryId> {
        let log = self.writable_log().ok()?;
        let position = lock(&log.position);
        let is_needed = position.tracker.newest_txg() > self.prb.synced() && !position.is_witnessed;
        is_needed.then_some(position.tracker.last)
    }
}
