//! Room for accepted changes: a pool that accepted a change can sync it, replay it, carry it over, and be
//! imported again.
//!
//! Problem: a txg writes everything to new places and frees the old ones only once it is durable, so every
//! change first takes room, even one that frees space. A shortage that only shows at the sync shows too late:
//! the change was acknowledged, and the pool is suspended.
//!
//! Rule: no change is accepted before the most that it may take is *reserved*. What is free, as of the last
//! durable txg, is never less than everything reserved. So the sync of a txg finds what it needs.
//!
//! What a change reserves ([`Charge`]), in units of 4 KiB, as if nothing were compressed:
//! - each block that the txg's layer of the object does not have yet: its units, even for a part of a block,
//!   which is read and written whole; a block of less than a unit takes one;
//! - each row of extents that is touched: the pages of the tables that may be copied for it. Consecutive
//!   changes in one row pay for it once;
//! - each block of several units: the rows for its pieces, in case it is written in pieces, or was before;
//! - each range that is cleared: the rows at its ends, and the row that says that the rest is yet to be
//!   freed;
//! - an object in a txg: its row, and its dataset's row; creating or destroying a dataset: its rows;
//! - a row of a dataset's table (`rows`): the pages of the engine's rows that it is stored in, and those at
//!   the end of a longer one that it may replace.
//!
//! Releasing it: a layer notes what it was charged ([`Layer::charged`](crate::objects::object::Layer)); a
//! block that is cleared again before the txg ends returns its share at once. The rest is released when the
//! txg is durable (`publish`), in this order: what is free is lowered by what the txg took, then the
//! reservation is released, then, when no reader is left (a scrub may take a while), what the txg freed is
//! added. A check reads in the other order: first what is reserved, then what is free. So it never misses
//! both.
//!
//! Whatever no change reserves comes out of the *slop*, a part of the pool that no user data may take
//! ([`Allocator::slop_bytes`](crate::space::alloc::Allocator)): the roots and branches of the tables, the
//! page map, the bitmaps of free space, the state of the engine's own allocator, and [`FREES`] of it for
//! freeing what was destroyed or cleared (`freeing`), which is bounded in each txg for that reason. In
//! addition, one page is kept for each dataset: headers of logs, usage and properties may all change in one
//! txg. All of this is proportional to the pool, far below an eighth of the slop; in builds with debug
//! assertions, each sync checks it.
//!
//! | who | may use | why that is enough |
//! |---|---|---|
//! | writes, new objects and datasets; log blocks among the data | what is free but for the slop | they may fail |
//! | clearing a part of a block | half of the slop | it needs a copy of a block, and may need more room than before |
//! | overwriting a thick volume | half of the slop | it needs what is kept for it, and a copy of a block |
//! | clearing whole blocks, cutting off, destroying | three quarters of it | takes pages of tables only, gives data back |
//! | replay, and what a cleared pool takes over | all, without a check | it was reserved when it was accepted |
//!
//! Replay and carrying over never check, because they need no more than was reserved for the same changes
//! before the crash. Let T be the last durable txg. All changes accepted after it had their room on top of
//! what T uses, in two txgs at most, without counting what they free. Carrying over (`carry`) makes the same
//! changes in one txg: blocks of two layers become one, and no row is touched that was not touched before.
//! Replay may need several txgs, if memory is short; once one of them is durable, T's copies of the blocks
//! are free, and the new ones occupy what was reserved for them. Then only the next record needs more: a
//! second copy of its blocks, for which the slop is large enough, because replay waits for the txg before it
//! uses that ([`Pool::begin_replay_tx`](crate::Pool::begin_replay_tx)). Log blocks and data that was stored
//! ahead of its txg (`log_space`, `stored`) count as used from their allocation to their release, before the
//! crash and after it, and reserve what a write does.
//!
//! Quotas are checked in the same way, for data only: bytes used as of the last durable txg plus bytes
//! reserved, of a dataset and those below it. A quota never blocks freeing, replay or carrying over.
//!
//! Cost: while more than [`SLACK`] is free, a write adds to a counter of its thread's shard, and reads one
//! shared number; with less than that, it adds up the shards.

mod charge;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

pub(crate) use charge::{Charge, ROW, rows_of};

use crate::ids::UNIT_BYTES;
use crate::txg::pipeline::{SHARDS, shard_of_thread};

/// What a shard adds to the shared counter at a time.
const GRAIN: i64 = 256 << 10;
/// With more than this free, what other threads have added but the shared counter does not show cannot
/// matter: one grain for each shard, and changes in progress between the two counters.
const SLACK: i64 = SHARDS as i64 * GRAIN + (64 << 20);
/// Kept for each dataset: in one txg all rows of all datasets may change.
const DATASET_BYTES: u64 = UNIT_BYTES;
/// Part of the slop for freeing what was cleared or destroyed, in each txg.
pub(crate) const FREES: u64 = 8;
/// Part of the slop that unreserved use stays below.
pub(crate) const UNRESERVED: u64 = 8;

/// The purpose for which room is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// What users store.
    Data,
    /// What users store in a thick volume whose blocks are all sure to find room.
    Thick,
    /// Clearing a part of a block.
    Part,
    /// Giving room back: pages of tables only.
    Free,
    /// What was accepted before a crash or a suspension.
    Replay,
}

/// In its own cache lines.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Shard(AtomicI64);

/// What is free, and what of it is reserved.
#[derive(Debug, Default)]
pub(crate) struct Room {
    /// Bytes that are reserved.
    shards: [Shard; SHARDS],
    /// Of these, whole grains.
    common: AtomicI64,
    /// Bytes that are free as of the last durable txg, less those of log blocks. Changed under the
    /// allocator's lock.
    free: AtomicI64,
    slop: AtomicU64,
    /// Kept for the rows of datasets.
    datasets: AtomicU64,
    /// Most bytes that a txg has taken beyond its reservation.
    unreserved_max: AtomicU64,
}

impl Room {
    /// What is free now, and the slop of the pool's vdevs.
    pub(crate) fn set_free(&self, free_bytes: i64, slop_bytes: u64) {
        self.slop.store(slop_bytes, Ordering::SeqCst);
        self.free.store(free_bytes, Ordering::SeqCst);
    }

    pub(crate) fn set_datasets(&self, count: usize) {
        self.datasets.store(count as u64 * DATASET_BYTES, Ordering::SeqCst);
    }

    pub(crate) fn slop_bytes(&self) -> u64 {
        self.slop.load(Ordering::Relaxed)
    }

    fn keep(&self, claim: Claim) -> i64 {
        let slop = self.slop.load(Ordering::Relaxed);
        let part = match claim {
            Claim::Data => slop,
            Claim::Thick | Claim::Part => slop / 2,
            Claim::Free | Claim::Replay => slop / 4,
        };
        (part + self.datasets.load(Ordering::Relaxed)) as i64
    }

    /// Adds to what is reserved; returns what the common counter shows.
    fn add(&self, bytes: i64) -> i64 {
        let before = self.shards[shard_of_thread()].0.fetch_add(bytes, Ordering::SeqCst);
        let grains = (before + bytes).div_euclid(GRAIN) - before.div_euclid(GRAIN);
        if grains == 0 {
            return self.common.load(Ordering::SeqCst);
        }
        self.common.fetch_add(grains * GRAIN, Ordering::SeqCst) + grains * GRAIN
    }

    /// Bytes that are reserved.
    pub(crate) fn reserved(&self) -> i64 {
        self.shards.iter().map(|shard| shard.0.load(Ordering::SeqCst)).sum()
    }

    /// Reserves `bytes`, leaving `also_keep` for others on top of what the claim may not use.
    ///
    /// # Errors
    /// What is left, if that is less.
    pub(crate) fn take(&self, bytes: i64, claim: Claim, also_keep: u64) -> Result<(), u64> {
        // Add first, then check: of two concurrent calls, one sees the other.
        let common = self.add(bytes);
        if claim == Claim::Replay {
            return Ok(());
        }
        let keep = self.keep(claim) + also_keep as i64;
        if common + SLACK <= self.free.load(Ordering::SeqCst) - keep {
            return Ok(());
        }
        // In this order; see the module.
        let reserved = self.reserved();
        let left = self.free.load(Ordering::SeqCst) - keep - reserved;
        if left >= 0 {
            return Ok(());
        }
        self.give(bytes);
        Err((left + bytes).max(0) as u64)
    }

    /// Reserves as much of `bytes` as fits into half of what users could take; returns how much.
    pub(crate) fn take_some(&self, bytes: i64) -> i64 {
        let left = (self.left(Claim::Data) / 2).min(bytes);
        if left > 0 && self.take(left, Claim::Data, 0).is_ok() { left } else { 0 }
    }

    /// Releases what was reserved.
    pub(crate) fn give(&self, bytes: i64) {
        self.add(-bytes);
    }

    /// How much a claim could take now.
    pub(crate) fn left(&self, claim: Claim) -> i64 {
        let reserved = self.reserved();
        self.free.load(Ordering::SeqCst) - self.keep(claim) - reserved
    }

    /// How much user data could use if nothing were reserved.
    pub(crate) fn usable_bytes(&self) -> u64 {
        (self.free.load(Ordering::SeqCst) - self.keep(Claim::Data)).max(0) as u64
    }

    /// Notes that a txg took this much more than its reservation.
    pub(crate) fn note_unreserved(&self, bytes: i64) {
        let bytes = bytes.max(0) as u64;
        self.unreserved_max.fetch_max(bytes, Ordering::Relaxed);
        let bound = self.slop_bytes() / UNRESERVED + self.datasets.load(Ordering::Relaxed);
        debug_assert!(bytes <= bound, "a txg took {bytes} bytes that nobody reserved; {bound} at most");
    }

    pub(crate) fn unreserved_max(&self) -> u64 {
        self.unreserved_max.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
