//! The protocol Log: writes go to the backing store and stay in its page cache; what a sync would force to
//! the disk goes into a log in PM. The real sync follows in the background, and frees the log.
//!
//! Every process sees every write, files are read and mapped at the speed of DRAM, and the files in use may
//! be larger than the region. Source: NVLog (FAST '25) absorbs syncs in this way inside of the kernel.
//!
//! A *record* has the bytes that were written to a file since its last sync, its length and time
//! (`record`); it is one entry of the log, so one sync is there completely or not at all. A sync that is
//! longer than an entry can be, or of bytes of which the cache does not know, is a real one.
//!
//! Crash cases:
//! 1. In a write: as without the cache; nothing is promised before the sync.
//! 2. In a sync: the record is there, or it is not. The bytes are in the page cache before they are in a
//!    record: a write that fails there has none, and none needs to be taken back.
//! 3. After a sync: the recovery writes all records into their files again, in the order of their numbers,
//!    syncs these, and only then empties the log. A crash in a recovery leaves the log as it was, or empty.
//! 4. In the background: records are trimmed after a sync of all files that have some, begun after their last
//!    one. Until then they are carried out again, over what the sync may have made durable: bytes that a
//!    program has synced come from the newest record that has them; of bytes that were written after that,
//!    either may be found.
//! 5. When a file changes in a way that no record has (it is cut, or punched, or synced for real with newer
//!    bytes, or removed), a record *settled* says that the earlier ones of the file do not count. It is
//!    durable before that is acknowledged, or the intent of it is wiped. Until then carrying out the earlier
//!    ones is right: a truncation has an intent, and is made again after that.
//!
//! A log whose records are damaged is not carried out in part unless that is asked for (`damage`).
//!
//! A sync of the backing store that fails may have dropped pages, and the next one then succeeds without
//! them. So what was to be synced is written again first: from the records, except where newer bytes are
//! (`again`).
//!
//! Performance: a sync costs one copy into PM and two fences; trimming is due when a part of the log is in
//! use, or after a second.

mod again;
mod damage;
mod medium;
mod orphans;
mod record;
mod recover;
mod sync;
mod trim;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastness_pmlog::{CreateOptions, OpenOptions, RecordLog, Recovery};
use fastness_prb::{Alignment, EntryId};
use fastness_sync::atomic::{AtomicU64, Ordering};
use fastness_sync::{Mutex, RwLock, lock};

use crate::backing::{Backing, CacheId, FileId};
use crate::error::{Error, LogError};
use crate::file::{File, FileTable};
use crate::geometry::Geometry;
use crate::medium::CacheMedium;
use crate::protocol::{Clock, Protocol};
use crate::stats::Status;

use medium::LogRange;
use orphans::Orphans;
use record::{Record, What};
use trim::Trimming;

pub(crate) use recover::records_of;

/// Threads that write to PM at a time.
const COMMITTERS: u64 = 4;

/// A log in use.
type OpenLog<M> = RecordLog<LogRange<M>>;

/// A log with records of an earlier process.
#[derive(Debug)]
struct Claimed<M: CacheMedium> {
    recovery: Recovery<LogRange<M>>,
    counting: Counting,
    /// Files of which the records have been carried out already.
    done: BTreeSet<FileId>,
}

/// Which records are carried out.
#[derive(Debug)]
struct Counting {
    /// Of each file, up to which number they do not count.
    settled: BTreeMap<FileId, u64>,
    /// The first record that is not carried out: the log is damaged.
    end: EntryId,
}

impl Counting {
    fn counts(&self, id: EntryId, record: &Record) -> bool {
        let is_settled = self.settled.get(&record.file).is_some_and(|settled| record.number <= *settled);
        record.what != What::Settled && !is_settled && id < self.end
    }
}

/// What has become of the log.
#[derive(Debug)]
enum Stage<M: CacheMedium> {
    /// It was not opened yet.
    Unopened(LogRange<M>),
    /// Its records have to be carried out.
    Found(Box<Claimed<M>>),
    Open(Box<OpenLog<M>>),
    /// Opening it has failed.
    Failed,
}

/// Counts for the status.
#[derive(Debug, Default)]
struct Counts {
    records: AtomicU64,
    record_bytes: AtomicU64,
    real_syncs: AtomicU64,
    trims: AtomicU64,
    full: AtomicU64,
}

/// The protocol; see the module.
#[derive(Debug)]
pub(crate) struct LogStore<M: CacheMedium> {
    stage: RwLock<Stage<M>>,
    backing: Arc<dyn Backing>,
    files: Arc<FileTable>,
    geometry: Geometry,
    cache: CacheId,
    clock: Clock,
    /// Number of the last record.
    last: AtomicU64,
    /// Records that are not trimmed: of the turn that goes on, and of earlier ones.
    untrimmed: [AtomicU64; 2],
    trimming: Mutex<Trimming>,
    /// Files that were given up with bytes that no sync covers.
    given_up: Mutex<BTreeSet<FileId>>,
    orphans: Mutex<Orphans>,
    counts: Counts,
}

fn open_options(geometry: &Geometry) -> OpenOptions {
    OpenOptions::new().committers((geometry.slots / 4).clamp(1, COMMITTERS) as u32)
}

impl<M: CacheMedium> LogStore<M> {
    fn new(
        stage: Stage<M>,
        (geometry, cache, clock): (Geometry, CacheId, Clock),
        backing: Arc<dyn Backing>,
        files: Arc<FileTable>,
    ) -> LogStore<M> {
        LogStore {
            stage: RwLock::new(stage),
            backing,
            files,
            geometry,
            cache,
            clock,
            last: AtomicU64::new(0),
            untrimmed: Default::default(),
            trimming: Mutex::new(Trimming::new()),
            given_up: Mutex::new(BTreeSet::new()),
            orphans: Mutex::new(Orphans::default()),
            counts: Counts::default(),
        }
    }

    /// Makes an empty log in what follows the intents.
    ///
    /// Persistence: durable on return.
    pub(crate) fn create(
        (geometry, cache, clock): (Geometry, CacheId, Clock),
        rest: M,
        backing: Arc<dyn Backing>,
        files: Arc<FileTable>,
    ) -> Result<LogStore<M>, Error> {
        let options = CreateOptions::new()
            .chunk_bytes(geometry.chunk_bytes)
            .alignment(Alignment::Line)
            // The superblock of the cache says whether there is one.
            .overwrite(true)
            .open(open_options(&geometry));
        let log = RecordLog::create(LogRange::new(rest), &options).map_err(LogError::from)?;
        Ok(Self::new(Stage::Open(Box::new(log)), (geometry, cache, clock), backing, files))
    }

    /// Removes what another cache has kept of files that are not in the directory.
    pub(crate) fn forget_orphans(backing: &dyn Backing, cache: CacheId) -> Result<(), Error> {
        Orphans::default().write(backing, cache)
    }

    /// Takes up what is there; [`recover`](Self::recover) opens it.
    pub(crate) fn found(
        (geometry, cache, clock): (Geometry, CacheId, Clock),
        rest: M,
        backing: Arc<dyn Backing>,
        files: Arc<FileTable>,
    ) -> LogStore<M> {
        Self::new(Stage::Unopened(LogRange::new(rest)), (geometry, cache, clock), backing, files)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        (self.clock)()
    }

    fn is_removed(file: &File) -> bool {
        lock(&file.state).removal.is_some()
    }

    fn fill_status(&self, status: &mut Status) {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let untrimmed: u64 = self.untrimmed.iter().map(count).sum();
        let orphaned = lock(&self.orphans).records();
        (status.slots, status.chunk_bytes) = (self.geometry.slots, self.geometry.chunk_bytes);
        status.dirty_chunks = untrimmed + orphaned;
        status.orphaned_chunks = orphaned;
        status.forced_flushes = count(&self.counts.full);
        status.counts.records = count(&self.counts.records);
        status.counts.record_bytes = count(&self.counts.record_bytes);
        status.counts.real_syncs = count(&self.counts.real_syncs);
        status.counts.trims = count(&self.counts.trims);
    }
}

impl<M: CacheMedium> Protocol for LogStore<M> {
    fn write(&self, file: &File, offset: u64, data: &[u8], _: u64) -> Result<usize, Error> {
        self.write_file(file, offset, data)
    }

    fn write_synced(&self, file: &File, offset: u64, data: &[u8], size: u64) -> Result<usize, Error> {
        self.write_durably(file, offset, data, size)
    }

    fn sync(&self, file: &File, size: u64) -> Result<(), Error> {
        self.sync_file(file, size)
    }

    fn sync_below(&self, file: &File) -> Result<(), Error> {
        self.sync_holding(file, None, false)
    }

    fn read(&self, file: &File, offset: u64, buffer: &mut [u8]) -> Result<(), Error> {
        sync::read_whole(file, &(offset..offset + buffer.len() as u64), buffer)
    }

    fn prepare_cut(&self) -> Result<(), Error> {
        self.prepare_log()
    }

    fn cut(&self, file: &File, _: u64, _: u64) -> Result<(), Error> {
        self.settle_all(file)
    }

    fn last_dirty_bytes(&self, _: &File, _: u64) -> Result<Option<(u64, Vec<u8>)>, Error> {
        Ok(None)
    }

    fn flush(&self, file: Option<&File>) -> Result<(), Error> {
        match file {
            Some(file) => self.sync_for_real(file, true),
            None => self.flush_all(),
        }
    }

    fn tend(&self, _: &dyn Fn(&File) -> bool) -> Result<bool, Error> {
        self.tend_log()
    }

    fn release(&self, file: &File, _: u64) -> Result<bool, Error> {
        let state = lock(&file.logged.state).clone();
        // The next trim syncs what has records.
        let can_go = !state.is_live() && !state.needs_rewrite && !state.has_lost;
        if can_go {
            self.give_up(file);
        }
        Ok(can_go)
    }

    fn fill(&self, status: &mut Status) -> Result<(), Error> {
        self.fill_status(status);
        Ok(())
    }
}
