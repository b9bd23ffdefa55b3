//! Whether entries can be written, and which sides of a mirror are lost.
//!
//! A side is *lost* when a fence of it fails: the chunk that noticed goes on with the other side, and has on it whatever
//! it was writing. It is *out* when the owner of the logs has recorded durably that it must never be read again. Between
//! the two nothing is written and nothing acknowledged, so each side alone has everything that was acknowledged: whichever
//! the next import finds is right. Every other chunk that is written later loses the side by its own next fence, because
//! a region that failed keeps failing.

use fastness_pmem::SIDES_MAX;
use fastness_sync::atomic::{AtomicU8, Ordering};

use crate::error::WriteError;

/// Whether entries can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Health {
    Good = 0,
    /// Not before the owner has recorded it.
    SideLost,
    /// Not before the PRB is opened again.
    Failed,
}

impl Health {
    /// The error of a write that is refused for it.
    #[cold]
    pub(crate) fn refusal(health: u8) -> WriteError {
        if health == Health::SideLost as u8 { WriteError::SideLost } else { WriteError::Failed }
    }
}

/// The sides of a mirror, a bit for each. Changed under the lock of the lists.
#[derive(Debug, Default)]
pub(crate) struct SideHealth {
    lost: AtomicU8,
    out: AtomicU8,
}

impl SideHealth {
    /// Whether the owner has recorded that it is out.
    pub(crate) fn is_out(&self, side: usize) -> bool {
        self.out.load(Ordering::Acquire) & bit(side) != 0
    }

    pub(crate) fn note_lost(&self, side: usize) {
        self.lost.fetch_or(bit(side), Ordering::Release);
    }

    pub(crate) fn note_out(&self, side: usize) {
        self.out.fetch_or(bit(side), Ordering::Release);
    }

    /// A side that is lost and not out.
    pub(crate) fn unrecorded(&self) -> Option<usize> {
        let unrecorded = self.lost.load(Ordering::Acquire) & !self.out.load(Ordering::Acquire);
        (0..SIDES_MAX).find(|&side| unrecorded & bit(side) != 0)
    }
}

fn bit(side: usize) -> u8 {
    assert!(side < SIDES_MAX, "there is no side {side}");
    1 << side
}
