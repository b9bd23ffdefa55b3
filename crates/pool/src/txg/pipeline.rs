//! The pipeline of transaction groups: open, quiescing, syncing.
//!
//! One txg is *open*: transactions join it. When it ends, the next one opens at once, and the old one
//! *quiesces* until its transactions have ended; then it is *syncing*. One thread does both, one txg after
//! the other, so besides the open txg at most one txg is quiescing or syncing; nothing can be written to a
//! txg after it has quiesced.
//!
//! Holds: each transaction adds one to a counter of its txg (one of 16 shards, by thread) and then checks
//! whether the txg is still open; if not, it drops the hold and tries the newer one. The txg thread first
//! opens the next txg and then waits for the sum to be 0. Both use sequentially consistent operations, so
//! either the transaction sees the new txg, or the thread sees the hold.
//!
//! Back-pressure: *dirty* bytes are in memory until their txg is durable; those that the syncing txg has
//! written already are dirty and no longer *pending*. Pending bytes fall smoothly while a txg is written,
//! dirty bytes fall in steps, so pending ones decide how long a transaction sleeps before it begins. Their
//! limit is half of the limit for dirty bytes: the open txg and the syncing one were each below it, so that
//! both together fit into memory. From 60 % of the pending limit on the sleep is
//! `500 us * (pending - min) / (max - pending)`, 50 ms at most; at the limit a transaction sleeps until it
//! has passed.
//!
//! Counting: writers add to a counter of their shard, and to the common one only what has come together
//! there.

use std::sync::Condvar;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use crate::error::PoolError;
use crate::ids::Txg;
use crate::order;
use crate::txg::pulse::Heart;
use fastness_sync::order::{Mutex, lock};

/// Groups of threads that share counters and caches with each other only.
pub(crate) const SHARDS: usize = 16;
/// Most txgs that can have holds at one time, plus one.
pub(crate) const RING: usize = 4;
const DELAY_UNIT: Duration = Duration::from_micros(500);
pub(crate) const DELAY_MAX: Duration = Duration::from_millis(50);

#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard {
    holds: [AtomicU64; RING],
    /// Dirty bytes that the shared counter does not include yet.
    dirty_bytes: AtomicU64,
}

/// What all writers read, and few change.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Dirty {
    /// Bytes of layers, without those in the shards; it may therefore be below 0 for a moment.
    dirty_bytes: AtomicI64,
    /// Of these, the bytes that the syncing txg has written.
    written_bytes: AtomicI64,
}

/// Shared by the txg thread and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Newest durable txg.
    pub(crate) synced: Txg,
    /// The newest txg that a thread waits for.
    pub(crate) wanted: Txg,
    /// Why no txg will sync any more.
    pub(crate) failed: Option<PoolError>,
    pub(crate) is_stopping: bool,
    pub(crate) is_frozen: bool,
}

/// Counters of open transactions, and the state of the pipeline.
#[derive(Debug)]
pub(crate) struct Pipeline {
    open: AtomicU64,
    shards: [Shard; SHARDS],
    pub(crate) progress: Mutex<Progress, { order::PROGRESS }>,
    pub(crate) changed: Condvar,
    dirty: Dirty,
    dirty_max_bytes: u64,
    /// Bytes that a shard collects before it adds them to the shared counter.
    grain_bytes: u64,
    pub(crate) heart: Heart,
}

pub(crate) fn shard_of_thread() -> usize {
    (fastness_sync::number_of_thread() % SHARDS as u64) as usize
}

/// A hold on an open txg.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) txg: Txg,
    pub(crate) shard: usize,
}

impl Pipeline {
    pub(crate) fn new(synced: Txg, dirty_max_bytes: u64) -> Pipeline {
        Pipeline {
            open: AtomicU64::new(synced.0 + 1),
            shards: Default::default(),
            progress: Mutex::new(Progress {
                synced,
                wanted: synced,
                failed: None,
                is_stopping: false,
                is_frozen: false,
            }),
            changed: Condvar::new(),
            dirty: Dirty::default(),
            dirty_max_bytes,
            grain_bytes: (dirty_max_bytes / 1024).min(64 << 10),
            heart: Heart::default(),
        }
    }

    /// Makes the open txg end soon, without waiting for it.
    pub(crate) fn end_soon(&self) {
        let mut progress = lock(&self.progress);
        progress.wanted = progress.wanted.max(self.open_txg());
        self.changed.notify_all();
    }

    pub(crate) fn open_txg(&self) -> Txg {
        Txg(self.open.load(Ordering::SeqCst))
    }

    pub(crate) fn hold(&self) -> Hold {
        let shard = shard_of_thread();
        loop {
            let txg = self.open.load(Ordering::SeqCst);
            let holds = &self.shards[shard].holds[txg as usize % RING];
            holds.fetch_add(1, Ordering::SeqCst);
            if self.open.load(Ordering::SeqCst) == txg {
                return Hold { txg: Txg(txg), shard };
            }
            // The txg thread may have counted this hold and gone to sleep.
            self.release(Hold { txg: Txg(txg), shard });
        }
    }

    pub(crate) fn release(&self, hold: Hold) {
        self.shards[hold.shard].holds[hold.txg.0 as usize % RING].fetch_sub(1, Ordering::SeqCst);
        if self.open.load(Ordering::SeqCst) != hold.txg.0 {
            // The thread may be waiting for this hold. Under its lock, so that it cannot miss the
            // notification.
            let _progress = lock(&self.progress);
            self.changed.notify_all();
        }
    }

    /// Opens the next txg and waits until the previous one has no transactions.
    pub(crate) fn quiesce(&self) -> Txg {
        let txg = self.open.fetch_add(1, Ordering::SeqCst);
        let is_held =
            || self.shards.iter().any(|shard| shard.holds[txg as usize % RING].load(Ordering::SeqCst) != 0);
        let mut progress = fastness_sync::order::lock(&self.progress);
        while is_held() {
            progress = fastness_sync::order::wait(&self.changed, progress);
        }
        Txg(txg)
    }

    /// Pending bytes, without those in the shards.
    fn pending_bytes(&self) -> u64 {
        let dirty = self.dirty.dirty_bytes.load(Ordering::Relaxed);
        u64::try_from(dirty - self.dirty.written_bytes.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// How long a transaction must wait now.
    pub(crate) fn delay(&self) -> Duration {
        delay(self.pending_bytes(), self.dirty_max_bytes / 2)
    }

    /// Whether a transaction must wait until this is over.
    pub(crate) fn is_full(&self) -> bool {
        self.pending_bytes() >= self.dirty_max_bytes / 2
    }

    /// Whether so much is pending that the open txg must end early.
    pub(crate) fn must_end(&self) -> bool {
        self.pending_bytes() >= self.dirty_max_bytes / 4
    }

    /// All dirty bytes.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let in_shards: u64 = self.shards.iter().map(|shard| shard.dirty_bytes.load(Ordering::Relaxed)).sum();
        u64::try_from(self.dirty.dirty_bytes.load(Ordering::Relaxed) + in_shards as i64).unwrap_or(0)
    }

    pub(crate) fn add_dirty(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let shard = &self.shards[shard_of_thread()].dirty_bytes;
        if shard.fetch_add(bytes, Ordering::Relaxed) + bytes < self.grain_bytes {
            return;
        }
        let grain = shard.swap(0, Ordering::Relaxed) as i64;
        let before = self.dirty.dirty_bytes.fetch_add(grain, Ordering::Relaxed);
        let limit = (self.dirty_max_bytes / 4) as i64;
        if before < limit && before + grain >= limit {
            let _progress = lock(&self.progress);
            self.changed.notify_all();
        }
    }

    /// Changes the number of dirty bytes; fewer if some went away without being written.
    pub(crate) fn change_dirty(&self, bytes: i64) {
        match u64::try_from(bytes) {
            Ok(more) => self.add_dirty(more),
            Err(_) => drop(self.dirty.dirty_bytes.fetch_add(bytes, Ordering::Relaxed)),
        }
    }

    /// The syncing txg has written this many dirty bytes.
    pub(crate) fn note_written(&self, bytes: u64) {
        self.dirty.written_bytes.fetch_add(bytes as i64, Ordering::Relaxed);
        self.heart.beat();
    }

    /// What [`note_written`](Self::note_written) has counted.
    pub(crate) fn written_bytes(&self) -> i64 {
        self.dirty.written_bytes.load(Ordering::Relaxed)
    }

    /// The syncing txg rewrites what was counted since.
    pub(crate) fn set_written(&self, bytes: i64) {
        self.dirty.written_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Written bytes of a durable txg are no longer in memory.
    pub(crate) fn dropped(&self, bytes: u64) {
        self.dirty.dirty_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.dirty.written_bytes.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

fn delay(dirty: u64, max: u64) -> Duration {
    let min = max / 10 * 6;
    if dirty <= min {
        Duration::ZERO
    } else if dirty >= max {
        DELAY_MAX
    } else {
        let ns = DELAY_UNIT.as_nanos() * u128::from(dirty - min) / u128::from(max - dirty);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(DELAY_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_delay_grows_without_a_cliff() {
        let max = 1 << 30;
        let delays: Vec<_> = (0..=1000).map(|part| delay(max / 1000 * part, max)).collect();
        assert_eq!(delays[600], Duration::ZERO);
        assert!(delays.is_sorted());
        assert_eq!(delay(max, max), DELAY_MAX);
        assert!(delays[800] < Duration::from_millis(1));
    }

    #[test]
    fn no_transaction_runs_in_a_txg_that_has_quiesced() {
        let pipeline = Pipeline::new(Txg(0), 1 << 20);
        let active: [AtomicU64; RING] = Default::default();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        let hold = pipeline.hold();
                        active[hold.txg.0 as usize % RING].fetch_add(1, Ordering::SeqCst);
                        active[hold.txg.0 as usize % RING].fetch_sub(1, Ordering::SeqCst);
                        pipeline.release(hold);
                    }
                });
            }
            for _ in 0..2000 {
                let txg = pipeline.quiesce();
                assert_eq!(active[txg.0 as usize % RING].load(Ordering::SeqCst), 0);
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
