//! The log in use.
//!
//! States of a block, and their transitions:
//! ```text
//! new       has a place, no record; the block before names the place
//!   | first record
//! opened    takes records
//!   | full; or its committer is alone; or its timeout is over: the next block gets a place
//! closed    its records are known; one thread fills and sums it (then it is ready)
//!   | that thread writes it
//! issued    the write is under way
//!   | the write has ended well
//! written   durable after a flush; one thread flushes for all written blocks without a gap before them
//!   | the flush has ended well
//! flushed   acknowledged; free when a txg has synced that all its records belong to, or older ones
//! ```
//!
//! Locks, in this order: issuer (assigns records to blocks), queue (records without a block), index (states
//! of blocks). None is held during I/O or copying into blocks.
//!
//! Source: OpenZFS `zil_commit` since 2017, in behaviour; see `docs/adr/2026-11-22-block-log.md` for what
//! differs.

mod append;
mod commit;
mod flush;
mod index;
mod issue;
mod issuer;
mod pace;
mod predict;
mod queue;
mod sync;
mod unwind;
mod witness;

use fastness_sync::atomic::{AtomicU64, Ordering};
use fastness_sync::{Mutex, lock};

use crate::error::CommitError;
use crate::ids::{Extent, LogGuid, Lsn, Txg, random_guid};
use crate::log::index::Index;
use crate::log::issue::Spares;
use crate::log::issuer::Issuer;
use crate::log::queue::Queue;
use crate::space::{BLOCK_BYTES_MAX, Space, UNIT_BYTES};

/// How a log behaves.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Longest block, in bytes: a multiple of [`UNIT_BYTES`], at most [`BLOCK_BYTES_MAX`].
    pub block_bytes_max: u32,
    /// How long an open block waits for more records under parallel load, in percent of a moving average of
    /// the time that a block takes from its write to its acknowledgement.
    pub timeout_percent: u32,
    /// Maximum number of concurrent flushes. There are as many where they do not slow each other; where they
    /// do, there is one at a time, which waits a moment for company.
    pub flushes_max: u32,
    /// Makes the guids of chains; each must be new.
    pub guid: fn() -> LogGuid,
}

impl Default for Options {
    fn default() -> Options {
        Options { block_bytes_max: BLOCK_BYTES_MAX, timeout_percent: 10, flushes_max: 32, guid: random_guid }
    }
}

/// Counters and the state of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Status {
    /// Whether commits are possible.
    pub is_up: bool,
    /// The last record that is durable, in the log or because its txg has synced; all earlier ones are, too.
    pub durable: Lsn,
    /// Calls of commit.
    pub commits: u64,
    /// Commits that failed.
    pub failed_commits: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Bytes of them.
    pub block_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Blocks that were closed because their timeout had passed.
    pub timeouts: u64,
    /// Blocks without records, which record that earlier blocks are durable.
    pub witnesses: u64,
    /// Times that the log went down, for whatever reason.
    pub downs: u64,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    failed_commits: AtomicU64,
    blocks: AtomicU64,
    block_bytes: AtomicU64,
    flushes: AtomicU64,
    timeouts: AtomicU64,
    witnesses: AtomicU64,
    downs: AtomicU64,
}

impl Counters {
    fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}

/// A log of records in a chain of blocks.
///
/// Concurrency: [`append`](Self::append) and [`commit`](Self::commit) from any number of threads;
/// [`sync_header`](Self::sync_header) and [`synced`](Self::synced) from the one that syncs txgs, at the same
/// time.
///
/// Dropping a log writes nothing and frees nothing: the chain remains as the last stored header describes it.
#[derive(Debug)]
pub struct Log<S> {
    space: S,
    options: Options,
    issuer: Mutex<Issuer>,
    queue: Mutex<Queue>,
    index: Mutex<Index>,
    /// All records up to this one are in blocks, or their txgs had synced. Changed under the index lock.
    assigned: AtomicU64,
    /// All records up to this one are durable. Changed under the index lock.
    durable: AtomicU64,
    /// The last synced txg.
    synced: AtomicU64,
    spares: Mutex<Spares>,
    counters: Counters,
}

impl<S: Space> Log<S> {
    /// A log without a chain. `synced` is the last synced txg. The first commit (which fails), or
    /// [`start`](Self::start), lets the next txg start a chain; nothing is written before that.
    ///
    /// # Panics
    /// If an option is out of bounds.
    pub fn new(space: S, synced: Txg, options: Options) -> Log<S> {
        let max = options.block_bytes_max;
        assert!(
            max.is_multiple_of(UNIT_BYTES) && (1..=BLOCK_BYTES_MAX).contains(&max),
            "a block of {max} bytes"
        );
        Log {
            space,
            options,
            issuer: Mutex::new(Issuer::new()),
            queue: Mutex::new(Queue::default()),
            index: Mutex::new(Index::new(options.flushes_max)),
            assigned: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            synced: AtomicU64::new(synced.0),
            spares: Mutex::new(Spares::default()),
            counters: Counters::default(),
        }
    }

    /// The space below.
    pub fn space(&self) -> &S {
        &self.space
    }

    /// Counters and the state of the log.
    pub fn status(&self) -> Status {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Status {
            is_up: lock(&self.index).down.is_none(),
            durable: Lsn(self.durable.load(Ordering::Acquire)),
            commits: get(&self.counters.commits),
            failed_commits: get(&self.counters.failed_commits),
            blocks: get(&self.counters.blocks),
            block_bytes: get(&self.counters.block_bytes),
            flushes: get(&self.counters.flushes),
            timeouts: get(&self.counters.timeouts),
            witnesses: get(&self.counters.witnesses),
            downs: get(&self.counters.downs),
        }
    }

    /// Why commits currently fail; `None` if they are possible.
    pub fn down(&self) -> Option<CommitError> {
        lock(&self.index).down.as_ref().map(|down| down.error.clone())
    }

    /// All extents that the log holds, to check them against the space.
    pub fn extents(&self) -> Vec<Extent> {
        let index = lock(&self.index);
        let starting = index.starting.as_ref().and_then(|starting| starting.chain.as_ref());
        let starting = starting.into_iter().flat_map(|chain| chain.places().into_iter().flatten());
        index.blocks.iter().map(|block| block.extent).chain(starting).collect()
    }
}
