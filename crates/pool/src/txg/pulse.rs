//! Whether the thread that ends txgs moves: for who watches over the process.
//!
//! The thread beats at each round and after each step of a sync; the largest step, the data, beats as it is
//! written. A thread that waits without a reason to end a txg is at rest and owes no beat. What is stuck in
//! a device, in a lock or in a transaction that does not end neither rests nor beats.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What a pool's thread has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulse {
    /// Grows while it moves.
    pub beats: u64,
    /// Nothing is to be done, or nothing can be: the pool is suspended, closed, or only read.
    pub is_at_rest: bool,
}

/// What the thread says of itself.
#[derive(Debug, Default)]
pub(crate) struct Heart {
    beats: AtomicU64,
    is_resting: AtomicBool,
}

impl Heart {
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the thread waits from here on; changed under the lock of the pipeline's progress.
    pub(crate) fn rests(&self, is_resting: bool) {
        self.is_resting.store(is_resting, Ordering::Relaxed);
        self.beat();
    }

    /// Its beats, and whether it waits.
    pub(crate) fn state(&self) -> (u64, bool) {
        (self.beats.load(Ordering::Relaxed), self.is_resting.load(Ordering::Relaxed))
    }
}
