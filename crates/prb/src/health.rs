//! Whether entries can be written, and which sides of a mirror are lost.
//!
//! A side is *lost* when one of its fences fails: the chunk affected continues on the other side, which has
//! everything that it was writing. It is *out* once the owner of the logs has durably recorded that it must
//! never be read again. Between the two nothing is written and nothing acknowledged, so each side alone has
//! everything that was acknowledged, and the next import may use either. Every other chunk loses the side at
//! its own next fence, because a failed region keeps failing.

use fastness_pmem::{Medium, SIDES_MAX};
use fastness_sync::atomic::{AtomicU8, Ordering};
use fastness_sync::lock;

use crate::error::WriteError;
use crate::prb::Prb;

/// Whether entries can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    Good = 0,
    /// Not before the owner has recorded the loss.
    SideLost,
    /// Not before the PRB is opened again.
    Failed,
}

impl Health {
    /// The error of a write that is refused for this reason.
    #[cold]
    pub(crate) fn refusal(health: u8) -> WriteError {
        if health == Health::SideLost as u8 { WriteError::SideLost } else { WriteError::Failed }
    }
}

/// The sides of a mirror, a bit for each. Changed under the lock of the lists.
#[derive(Debug)]
pub(crate) struct SideHealth {
    /// All existing sides.
    all: u8,
    lost: AtomicU8,
    out: AtomicU8,
}

impl SideHealth {
    /// The sides of a log on `count` of them: two, or a single one.
    pub(crate) fn new(count: usize) -> SideHealth {
        let all = (0..count).map(bit).sum();
        SideHealth { all, lost: AtomicU8::new(0), out: AtomicU8::new(0) }
    }

    /// Whether no side is left.
    pub(crate) fn is_none_left(&self) -> bool {
        self.lost.load(Ordering::Acquire) == self.all
    }

    /// Whether the owner has recorded that the side is out.
    pub(crate) fn is_out(&self, side: usize) -> bool {
        self.out.load(Ordering::Acquire) & bit(side) != 0
    }

    pub(crate) fn note_lost(&self, side: usize) {
        self.lost.fetch_or(bit(side), Ordering::Release);
    }

    pub(crate) fn note_out(&self, side: usize) {
        self.out.fetch_or(bit(side), Ordering::Release);
    }

    /// A side that is lost but not out.
    pub(crate) fn unrecorded(&self) -> Option<usize> {
        let unrecorded = self.lost.load(Ordering::Acquire) & !self.out.load(Ordering::Acquire);
        (0..SIDES_MAX).find(|&side| unrecorded & bit(side) != 0)
    }
}

impl<M: Medium + Sync> Prb<M> {
    /// Closes the PRB for writers.
    pub(crate) fn fail(&self) {
        // Under the lock, so that no waiter is between its check and its sleep.
        let lists = lock(&self.lists);
        self.health.store(Health::Failed as u8, Ordering::Relaxed);
        drop(lists);
        self.chunk_freed.notify_all();
    }

    /// Notes that a chunk continues without a side; false if the owner has not recorded that yet: then
    /// nothing is written.
    #[cold]
    pub(crate) fn note_lost(&self, side: usize) -> bool {
        if self.sides.is_out(side) {
            return true;
        }
        let lists = lock(&self.lists);
        self.sides.note_lost(side);
        let is_out = self.sides.is_out(side);
        if self.sides.is_none_left() {
            self.health.store(Health::Failed as u8, Ordering::Relaxed);
        } else if !is_out {
            let _ = self.health.compare_exchange(
                Health::Good as u8,
                Health::SideLost as u8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        drop(lists);
        self.chunk_freed.notify_all();
        is_out
    }

    /// Reports a lost side that the owner detected elsewhere than in a chunk. If no other side is left, the
    /// PRB is closed for writers.
    pub fn lose_side(&self, side: usize) {
        self.note_lost(side);
    }

    /// A side of the mirror that is lost and that the owner has not recorded as out. Until it has, nothing is
    /// written: an entry that only the other side has must not be acknowledged while this one could be taken
    /// for current.
    pub fn lost_side(&self) -> Option<usize> {
        self.sides.unrecorded()
    }

    /// Reports that the owner's record of a side being out is durable: no import will ever read that side
    /// again. Entries are written to the other side from now on.
    pub fn side_is_out(&self, side: usize) {
        let lists = lock(&self.lists);
        self.sides.note_out(side);
        if self.sides.unrecorded().is_none() {
            let _ = self.health.compare_exchange(
                Health::SideLost as u8,
                Health::Good as u8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
        drop(lists);
    }

    /// What prevents all writes, whatever the chunk.
    #[inline(always)]
    pub(crate) fn check_health(&self) -> Result<(), WriteError> {
        let health = self.health.load(Ordering::Relaxed);
        if health == Health::Good as u8 { Ok(()) } else { Err(Health::refusal(health)) }
    }

    /// Whether a fence has failed, so that nothing can be written until the PRB is opened again.
    pub fn has_failed(&self) -> bool {
        self.health.load(Ordering::Relaxed) == Health::Failed as u8
    }
}

fn bit(side: usize) -> u8 {
    assert!(side < SIDES_MAX, "there is no side {side}");
    1 << side
}
