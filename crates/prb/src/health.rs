//! Whether entries can be written, and which sides of a mirror are lost.
//!
//! A side is *lost* when one of its fences fails: the chunk affected continues on the other side, which has
//! everything that it was writing. It is *out* once the owner of the logs has durably recorded that it must
//! never be read again. Between the two nothing is written and nothing acknowledged, so each side alone has
//! everything that was acknowledged, and the next import may use either. Every other chunk loses the side at
//! its own next fence, because a failed region keeps failing.

use fastness_pmem::SIDES_MAX;
use fastness_sync::atomic::{AtomicU8, Ordering};

use crate::error::WriteError;

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

fn bit(side: usize) -> u8 {
    assert!(side < SIDES_MAX, "there is no side {side}");
    1 << side
}
