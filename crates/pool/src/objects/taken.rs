//! How much space an open object takes, as far as it was counted.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Not counted yet.
const UNKNOWN: i64 = i64::MIN;

/// Bytes on the vdevs, kept up to date by the txgs once they were counted.
#[derive(Debug)]
pub(crate) struct Taken {
    bytes: AtomicI64,
    /// Counts changes, so that a count knows whether there were some meanwhile.
    changes: AtomicU64,
}

impl Taken {
    /// Of an object that is new, or was not counted yet.
    pub(crate) fn new(is_new: bool) -> Taken {
        Taken { bytes: AtomicI64::new(if is_new { 0 } else { UNKNOWN }), changes: AtomicU64::new(0) }
    }

    /// A txg changes it. Only the thread that syncs calls this.
    pub(crate) fn change(&self, change: i64) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        let known = self.bytes.load(Ordering::SeqCst);
        if known != UNKNOWN {
            self.bytes.store(known + change, Ordering::SeqCst);
        }
    }

    /// The bytes, if they were counted.
    pub(crate) fn get(&self) -> Option<i64> {
        Some(self.bytes.load(Ordering::SeqCst)).filter(|bytes| *bytes != UNKNOWN)
    }

    /// How often it was changed: to be taken before a count begins.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Keeps a count, unless a txg has changed it since `changes`: a later call then counts again.
    pub(crate) fn keep(&self, counted: i64, changes: u64) {
        if self.changes() != changes {
            return;
        }
        // A txg that changes it from here on finds the count, or leaves it unknown.
        let _ = self.bytes.compare_exchange(UNKNOWN, counted, Ordering::SeqCst, Ordering::SeqCst);
        if self.changes() != changes {
            self.bytes.store(UNKNOWN, Ordering::SeqCst);
        }
    }
}
