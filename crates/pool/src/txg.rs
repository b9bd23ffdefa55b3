//! The pipeline of transaction groups: open, quiescing, syncing.
//!
//! One txg is *open*: transactions join it. When it ends, the next is open at once, and the old one *quiesces* until
//! its transactions have ended; then it is *syncing*. One thread does both, one txg after the other, so at most one
//! txg is quiescing or syncing beside the open one; nothing that is written to a txg after it has quiesced can
//! exist.
//!
//! Holds: each transaction adds one to a counter of its txg (one of 16 shards, by thread) and then looks whether
//! the txg is still open; if not, it takes the hold back and tries the newer one. The txg thread first opens the
//! next and then waits for the sum to be 0. Both use sequentially consistent operations, so either the transaction
//! sees the new txg, or the thread sees the hold.
//!
//! Back-pressure: from 60 % of the dirty limit on, a transaction sleeps before it begins, longer the more is dirty:
//! `500 us * (dirty - min) / (max - dirty)`, 50 ms at most. At the limit it sleeps the longest, again and again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use crate::error::PoolError;
use crate::ids::Txg;
use crate::sync_util::lock;

const SHARDS: usize = 16;
/// Txgs that can have holds at one time, and one.
pub(crate) const RING: usize = 4;
const DELAY_UNIT: Duration = Duration::from_micros(500);
const DELAY_MAX: Duration = Duration::from_millis(50);

#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard([AtomicU64; RING]);

/// What the txg thread and those who wait for it share.
#[derive(Debug)]
pub(crate) struct Progress {
    /// Newest durable txg.
    pub(crate) synced: Txg,
    /// Somebody waits for this one.
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
    pub(crate) progress: Mutex<Progress>,
    pub(crate) changed: Condvar,
    pub(crate) dirty_bytes: AtomicU64,
    pub(crate) dirty_max_bytes: u64,
}

fn shard_of_thread() -> usize {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static SHARD: usize = (NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS as u64) as usize;
    }
    SHARD.with(|shard| *shard)
}

/// A hold on an open txg.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hold {
    pub(crate) txg: Txg,
    shard: usize,
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
            dirty_bytes: AtomicU64::new(0),
            dirty_max_bytes,
        }
    }

    pub(crate) fn open_txg(&self) -> Txg {
        Txg(self.open.load(Ordering::SeqCst))
    }

    pub(crate) fn hold(&self) -> Hold {
        let shard = shard_of_thread();
        loop {
            let txg = self.open.load(Ordering::SeqCst);
            let holds = &self.shards[shard].0[txg as usize % RING];
            holds.fetch_add(1, Ordering::SeqCst);
            if self.open.load(Ordering::SeqCst) == txg {
                return Hold { txg: Txg(txg), shard };
            }
            // The txg thread may have counted this one and gone to sleep.
            self.release(Hold { txg: Txg(txg), shard });
        }
    }

    pub(crate) fn release(&self, hold: Hold) {
        self.shards[hold.shard].0[hold.txg.0 as usize % RING].fetch_sub(1, Ordering::SeqCst);
        if self.open.load(Ordering::SeqCst) != hold.txg.0 {
            // The thread may be waiting for this one. Under its lock, so that it cannot miss the call.
            let _progress = lock(&self.progress);
            self.changed.notify_all();
        }
    }

    /// Opens the next txg and waits until the last one has no transactions.
    pub(crate) fn quiesce(&self) -> Txg {
        let txg = self.open.fetch_add(1, Ordering::SeqCst);
        let is_held =
            || self.shards.iter().any(|shard| shard.0[txg as usize % RING].load(Ordering::SeqCst) != 0);
        let mut progress = lock(&self.progress);
        while is_held() {
            progress = self.changed.wait(progress).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        Txg(txg)
    }

    /// How long a transaction has to wait now.
    pub(crate) fn delay(&self) -> Duration {
        let (dirty, max) = (self.dirty_bytes.load(Ordering::Relaxed), self.dirty_max_bytes);
        delay(dirty, max)
    }

    pub(crate) fn add_dirty(&self, bytes: u64) {
        let before = self.dirty_bytes.fetch_add(bytes, Ordering::Relaxed);
        let limit = self.dirty_max_bytes / 4;
        if before < limit && before + bytes >= limit {
            let _progress = lock(&self.progress);
            self.changed.notify_all();
        }
    }

    pub(crate) fn sub_dirty(&self, bytes: u64) {
        self.dirty_bytes.fetch_sub(bytes, Ordering::Relaxed);
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
