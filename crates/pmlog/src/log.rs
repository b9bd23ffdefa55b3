//! The log in use: appending and trimming.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fastness_pmem::{PersistError, RegionInfo};
use fastness_prb::{
    BodyError, EntryId, Hdl, LiveEntry, MediaFault, Prb, Stats, Txg, UNSYNCED_TXGS, Wait, Written,
};

use crate::error::{AppendError, TrimError};
use crate::front::Front;
use crate::geometry::Geometry;
use crate::medium::LogMedium;
use crate::slot::HeaderSlot;
use crate::superblock::Uuid;

/// Identifies a record for the life of a log; ids sort in recovery order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// The number of the log among those started in the region: each recovery starts another.
    pub log_number: u64,
    /// Place in that log. Records of one generation are independent of each other.
    pub entry: EntryId,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.log_number, self.entry.generation.0, self.entry.gsid.0)
    }
}

/// Records that were appended between two calls of [`RecordLog::next_turn`], and are trimmed together. Turns
/// sort in the order of their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn(Txg);

/// What a trim did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// Chunks that were emptied.
    pub chunks: usize,
    /// Chunks that did not hold what was written to them: a crash before the trim would have lost their
    /// records. They are not reused until the log is reopened; the medium should be replaced.
    pub faults: Vec<MediaFault>,
}

/// A log that takes records; see the crate's documentation.
///
/// Concurrency: [`RecordLog::append`] may be called by many threads; functions that order records take `&mut
/// self`.
#[derive(Debug)]
pub struct RecordLog<R: LogMedium> {
    prb: Arc<Prb<R>>,
    hdl: Hdl<R>,
    pub(crate) front: Front<R>,
    geometry: Geometry,
    /// Txg of the records that are appended now: the one after the synced one.
    txg: Txg,
    log_number: u64,
    committers: u32,
    /// A header update failed: which header is in force is unknown.
    failed: AtomicBool,
}

impl<R: LogMedium> RecordLog<R> {
    /// A log that must be started before it is used.
    pub(crate) fn new(
        prb: Arc<Prb<R>>,
        hdl: Hdl<R>,
        front: Front<R>,
        geometry: Geometry,
        committers: u32,
    ) -> Self {
        let failed = AtomicBool::new(false);
        Self { prb, hdl, front, geometry, txg: Txg(0), log_number: 0, committers, failed }
    }

    /// Starts an empty log; makes records of `synced` and of earlier txgs obsolete.
    ///
    /// Persistence: durable on return; after a crash inside, either the old or the new state is in force.
    pub(crate) fn start_log(&mut self, synced: Txg) -> Result<(), PersistError> {
        let update = self.hdl.create_log().expect("the log was replayed, or never existed");
        let header = update.expect("there was no log").into_header();
        let unsafe_shutdowns = self.front.range().region_info().and_then(|info| info.unsafe_shutdowns);
        let log_number = self.front.slot().log_number + 1;
        let committers = self.committers;
        let slot = self.front.slot().clone();
        self.front.update(HeaderSlot { synced, log_number, unsafe_shutdowns, committers, header, ..slot })?;
        self.hdl.header_synced().expect("the log was started above");
        self.txg = Txg(synced.0 + 1);
        self.log_number = log_number;
        Ok(())
    }

    pub(crate) fn prb(&self) -> &Prb<R> {
        &self.prb
    }

    /// Appends a record to the current generation.
    ///
    /// Persistence: the record is durable on return, as far as the region's durability goes; after a crash
    /// inside, it exists completely or not at all. Concurrency: any number of threads. A record whose append
    /// returned before another's began is recovered before it; records that are appended at the same time may
    /// be in either order. After a crash no record is recovered without those before it; if the medium loses
    /// records, only barriers guarantee that.
    ///
    /// # Errors
    /// [`AppendError`]; the log remains usable except after Persist and Closed.
    #[inline]
    pub fn append(&self, record: &[u8]) -> Result<RecordId, AppendError> {
        self.append_parts([&[], record])
    }

    /// As [`append`](Self::append), of a record in two parts, which need not be put together first.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Caller bug only: the first part is not whole lines of 64 bytes.
    #[inline]
    pub fn append_parts(&self, record: [&[u8]; 2]) -> Result<RecordId, AppendError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(AppendError::Closed);
        }
        match self.hdl.write_entry_parts(self.txg, record, Wait::Fail) {
            Ok(Written::Entry(entry)) => Ok(RecordId { log_number: self.log_number, entry }),
            Ok(Written::Obsolete) => unreachable!("records have the txg after the synced one"),
            Err(error) => Err(AppendError::new(error, self.geometry.capacity_bytes())),
        }
    }

    /// Starts a generation: recovery never returns a record appended after the call without every record
    /// appended before it.
    ///
    /// Persistence: writes nothing; what it orders is already durable.
    pub fn barrier(&mut self) {
        self.hdl.start_generation().expect("a log in use is in state logging");
    }

    /// Appends a record after a barrier; see [`RecordLog::barrier`].
    ///
    /// # Errors
    /// As [`RecordLog::append`].
    pub fn append_ordered(&mut self, record: &[u8]) -> Result<RecordId, AppendError> {
        self.barrier();
        self.append(record)
    }

    /// Discards all records: the caller has made their effects durable elsewhere. Also acts as a barrier.
    ///
    /// Persistence: on return no crash brings the records back; after a crash inside, all of them are
    /// recovered, or none.
    ///
    /// # Errors
    /// [`TrimError`]; the log is no longer usable.
    pub fn trim(&mut self) -> Result<Trimmed, TrimError> {
        let all = self.turn();
        self.trim_turns(all)?;
        self.empty_trimmed()
    }

    /// The turn that records which are appended now belong to.
    pub fn turn(&self) -> Turn {
        Turn(self.txg)
    }

    /// Begins a turn, so that those before it can be trimmed while records are appended; returns the one that
    /// has ended. Also acts as a barrier. `None`: there are three turns, and the first has to be trimmed
    /// before there is another.
    pub fn next_turn(&mut self) -> Option<Turn> {
        let ended = self.txg;
        if ended.0 - self.front.slot().synced.0 >= UNSYNCED_TXGS {
            return None;
        }
        self.txg = Txg(ended.0 + 1);
        self.barrier();
        Some(Turn(ended))
    }

    /// Discards the records of `last` and of the turns before it: the caller has made their effects durable
    /// elsewhere. Their space is free after [`empty_trimmed`](Self::empty_trimmed). Also acts as a barrier if
    /// these are all.
    ///
    /// Persistence: on return no crash brings the records back; after a crash inside, all of them are
    /// recovered, or none.
    ///
    /// # Errors
    /// [`TrimError`]; the log is no longer usable.
    pub fn trim_turns(&mut self, Turn(last): Turn) -> Result<(), TrimError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(TrimError::Closed);
        }
        if last <= self.front.slot().synced {
            return Ok(());
        }
        // Until everything is done, an error must leave the log closed.
        self.failed.store(true, Ordering::Relaxed);
        // The header first: its fence orders it before the chunks are emptied. In the opposite order a crash
        // could find some records gone and a header that still needs them.
        self.front.update(HeaderSlot { synced: last, ..self.front.slot().clone() })?;
        if last >= self.txg {
            self.txg = Txg(last.0 + 1);
            // Records of the next txg begin a new generation, so that the discarded ones leave no gap in it.
            self.barrier();
        }
        self.failed.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Empties the chunks that have nothing but records that were trimmed.
    ///
    /// Concurrency: beside appends.
    ///
    /// # Errors
    /// [`TrimError`]; the log is no longer usable.
    pub fn empty_trimmed(&self) -> Result<Trimmed, TrimError> {
        let emptied = self.collect(self.front.slot().synced);
        if emptied.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        Ok(emptied?)
    }

    /// The records that are not trimmed, in order, and perhaps some whose appends have not returned: for
    /// [`read_live`](Self::read_live). Appends wait until all headers have been read.
    pub fn live_records(&self) -> Vec<LiveEntry> {
        let mut live = self.hdl.live_entries();
        live.retain(|record| record.txg() > self.front.slot().synced);
        live
    }

    /// Copies such a record into the front of `buffer`, and checks it.
    ///
    /// # Errors
    /// [`BodyError`]; also if it was trimmed meanwhile.
    pub fn read_live(&self, record: &LiveEntry, buffer: &mut [u8]) -> Result<(), BodyError> {
        match self.hdl.read_live(record, buffer) {
            Err(BodyError::Padding { .. }) => Ok(()),
            other => other,
        }
    }

    /// Empties every chunk whose records are all obsolete.
    pub(crate) fn collect(&self, synced: Txg) -> Result<Trimmed, fastness_prb::CollectError> {
        let collected = self.prb.collect(synced)?;
        Ok(Trimmed { chunks: collected.chunks, faults: collected.faults })
    }

    /// Longest record that fits, in bytes.
    pub fn record_bytes_max(&self) -> usize {
        self.prb.body_bytes_max()
    }

    /// Statistics since the log was opened.
    pub fn stats(&self) -> Stats {
        self.prb.stats()
    }

    /// Chunks that are empty and not held by a writer.
    pub fn free_chunks(&self) -> usize {
        self.prb.free_chunks()
    }

    /// How much of the log is in use, in 1024ths; nearly free to call.
    pub fn used_per_1024(&self) -> u32 {
        self.prb.used_per_1024()
    }

    /// How the region is divided.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The UUID of the log.
    pub fn uuid(&self) -> Uuid {
        self.front.slot().uuid
    }

    /// Number of the last log started in the region, as in [`RecordId`].
    pub fn log_number(&self) -> u64 {
        self.log_number
    }

    /// Information on the region; `None` for a medium that is only a model.
    pub fn region_info(&self) -> Option<&RegionInfo> {
        self.front.range().region_info()
    }

    /// Closes the log, as dropping it does: every appended record is already durable, and stays in the log
    /// for the next [`RecordLog::open`]. Returns the final statistics.
    pub fn close(self) -> Stats {
        self.stats()
    }
}
