//! What a PRB does when a side of its mirror is lost, or all are; see `health`.

use fastness_pmem::Medium;
use fastness_sync::atomic::Ordering;
use fastness_sync::lock;

use crate::error::WriteError;
use crate::health::Health;
use crate::prb::Prb;

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
