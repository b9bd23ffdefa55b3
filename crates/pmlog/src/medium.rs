//! What the log requires of its region in addition to [`Medium`].

use fastness_pmem::{Medium, PmRange, RegionInfo};

/// A medium that can be divided into chunks.
///
/// [`PmRange`] is the real one; tests implement it for the recorder of `pm-model`.
pub trait LogMedium: Medium + Sync + Sized {
    /// Divides the range at `mid`, a multiple of 64 within it.
    ///
    /// # Panics
    /// Caller bug only: another `mid`.
    #[must_use]
    fn split(self, mid: usize) -> (Self, Self);

    /// Information on the region; `None` for a medium that is only a model.
    fn region_info(&self) -> Option<&RegionInfo>;
}

impl LogMedium for PmRange {
    fn split(self, mid: usize) -> (Self, Self) {
        self.split_at(mid).expect("the geometry was checked against the region")
    }

    fn region_info(&self) -> Option<&RegionInfo> {
        Some(PmRange::region_info(self))
    }
}
