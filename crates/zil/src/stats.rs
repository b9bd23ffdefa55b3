//! Counters of a log, at almost no cost: what volumes' threads count on the hot path is sharded.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::LogCause;
use crate::itx::WriteClass;

const SHARDS: usize = 16;
const CAUSES: usize = LogCause::ALL.len();

/// Counters that only one group of threads writes to.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard {
    bypass_records: AtomicU64,
    bypass_bytes: AtomicU64,
}

fn shard_of_thread() -> usize {
    (fastness_sync::number_of_thread() % SHARDS as u64) as usize
}

/// Counters of one [`Zil`](crate::Zil) since it was opened.
#[derive(Debug, Default)]
pub struct Stats {
    shards: [Shard; SHARDS],
    commits: AtomicU64,
    waits: AtomicU64,
    flushes: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    indirect: AtomicU64,
    indirect_bytes: AtomicU64,
    assigned: [AtomicU64; 3],
    assigned_bytes: [AtomicU64; 3],
    fallbacks: [AtomicU64; CAUSES],
    unlogged: [AtomicU64; CAUSES],
    errors: AtomicU64,
    fua_unordered: AtomicU64,
}

/// A snapshot of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct StatsSnapshot {
    /// Commits.
    pub commits: u64,
    /// How often a commit waited for records that another commit was writing.
    pub waits: u64,
    /// Flushes of volumes.
    pub flushes: u64,
    /// Records that commits have written.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of these, the records with the address of their data; their itxs were assigned as need-copy.
    pub indirect: u64,
    /// Bytes that commits have written to the pool for these.
    pub indirect_bytes: u64,
    /// Itxs assigned, by class: copied, need-copy, indirect (by their owner).
    pub assigned: [u64; 3],
    /// Bytes that these stand for.
    pub assigned_bytes: [u64; 3],
    /// Records written without the commit list.
    pub bypass_records: u64,
    /// Their bytes.
    pub bypass_bytes: u64,
    /// Commits and flushes that waited for a txg instead, by cause as in [`LogCause::ALL`].
    pub fallbacks: [u64; CAUSES],
    /// Records written without the commit list that did not get into the log, by cause.
    pub unlogged: [u64; CAUSES],
    /// Commits and flushes that failed altogether.
    pub errors: u64,
}

impl StatsSnapshot {
    /// Commits and flushes that waited for a txg instead.
    pub fn fallbacks_total(&self) -> u64 {
        self.fallbacks.iter().sum()
    }

    /// The number for one cause.
    pub fn fallbacks_of(&self, cause: LogCause) -> u64 {
        self.fallbacks[index(cause)]
    }

    /// Records that one cause kept out of the log, without the commit list.
    pub fn unlogged_of(&self, cause: LogCause) -> u64 {
        self.unlogged[index(cause)]
    }

    /// Stalls: because the log was out of space, a caller waited for a txg, or will at the next flush.
    pub fn stalls(&self) -> u64 {
        self.fallbacks_of(LogCause::NoRoom) + self.unlogged_of(LogCause::NoRoom)
    }
}

fn index(cause: LogCause) -> usize {
    LogCause::ALL.iter().position(|other| *other == cause).expect("all causes are listed")
}

fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

impl Stats {
    pub(crate) fn commit(&self) {
        add(&self.commits, 1);
    }

    pub(crate) fn flush(&self) {
        add(&self.flushes, 1);
    }

    pub(crate) fn persisted(&self, persisted: crate::kind::Persisted) {
        add(&self.records, persisted.records);
        add(&self.bytes, persisted.bytes);
        add(&self.waits, persisted.waits);
        add(&self.indirect, persisted.indirect);
        add(&self.indirect_bytes, persisted.indirect_bytes);
    }

    pub(crate) fn assigned(&self, class: WriteClass, bytes: u64) {
        add(&self.assigned[class as usize], 1);
        add(&self.assigned_bytes[class as usize], bytes);
    }

    #[inline]
    pub(crate) fn bypass(&self, bytes: usize) {
        let shard = &self.shards[shard_of_thread()];
        add(&shard.bypass_records, 1);
        add(&shard.bypass_bytes, bytes as u64);
    }

    #[cold]
    pub(crate) fn fallback(&self, cause: LogCause) {
        add(&self.fallbacks[index(cause)], 1);
    }

    /// Whether the cause has not kept any record out of the log so far.
    #[cold]
    pub(crate) fn is_first_unlogged(&self, cause: LogCause) -> bool {
        self.unlogged[index(cause)].load(Ordering::Relaxed) == 0
    }

    #[cold]
    pub(crate) fn unlogged(&self, cause: LogCause) {
        add(&self.unlogged[index(cause)], 1);
    }

    #[cold]
    pub(crate) fn error(&self) {
        add(&self.errors, 1);
    }

    /// Counts a write with FUA; true for every 64th.
    pub(crate) fn fua_is_64th(&self) -> bool {
        self.fua_unordered.fetch_add(1, Ordering::Relaxed) % 64 == 63
    }

    /// The counters now; they are only roughly from the same moment.
    pub fn snapshot(&self) -> StatsSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatsSnapshot {
            commits: get(&self.commits),
            waits: get(&self.waits),
            flushes: get(&self.flushes),
            records: get(&self.records),
            bytes: get(&self.bytes),
            indirect: get(&self.indirect),
            indirect_bytes: get(&self.indirect_bytes),
            assigned: std::array::from_fn(|i| get(&self.assigned[i])),
            assigned_bytes: std::array::from_fn(|i| get(&self.assigned_bytes[i])),
            bypass_records: self.shards.iter().map(|shard| get(&shard.bypass_records)).sum(),
            bypass_bytes: self.shards.iter().map(|shard| get(&shard.bypass_bytes)).sum(),
            fallbacks: std::array::from_fn(|i| get(&self.fallbacks[i])),
            unlogged: std::array::from_fn(|i| get(&self.unlogged[i])),
            errors: get(&self.errors),
        }
    }
}
