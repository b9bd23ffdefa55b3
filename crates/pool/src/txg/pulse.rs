//! Whether the thread that ends txgs moves: for who watches over the process.
//!
//! The thread beats at each round and after each step of a sync; the largest step, the data, beats as it is
//! written. A thread that waits without a reason to end a txg is at rest and owes no beat. What is stuck in
//! a device, in a lock or in a transaction that does not end neither rests nor beats.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::pool::Pool;
use fastness_sync::order::lock;

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
}

impl Pool {
    /// Whether the thread that ends txgs moves, or has nothing to do.
    pub fn pulse(&self) -> Pulse {
        let pipeline = &self.shared.txgs.pipeline;
        let progress = lock(&pipeline.progress);
        let is_over = progress.failed.is_some() || progress.is_stopping || progress.is_frozen;
        let has_reason = progress.wanted > progress.synced || pipeline.must_end();
        let is_resting = pipeline.heart.is_resting.load(Ordering::Relaxed) && !has_reason;
        let has_thread = self.shared.options.has_txg_thread && !self.shared.options.is_read_only;
        Pulse {
            beats: pipeline.heart.beats.load(Ordering::Relaxed),
            is_at_rest: is_over || is_resting || !has_thread,
        }
    }
}
