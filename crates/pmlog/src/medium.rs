//! What the log asks of its region besides [`Medium`].

use fastness_pmem::{Medium, PmRange, RegionInfo};

/// A medium that can be divided into chunks.
///
/// [`PmRange`] is the real one; tests implement it for the recorder of `pm-model`.
pub trait LogMedium: Medium + Sync + Sized {
    /// Divides the range at `mid`, a multiple of 64 inside of it.
    ///
    /// # Panics
    /// Caller bug only: another `mid`.
    #[must_use]
    fn split(self, mid: usize) -> (Self, Self);

    /// Starts to write back bytes that are visible but may not be durable, because the process that stored
    /// them died before its fence; the next fence waits for it.
    fn write_back(&mut self, offset: usize, len_bytes: usize);

    /// What is known of the region; `None` for a medium that is only a model.
    fn region_info(&self) -> Option<&RegionInfo>;
}

impl LogMedium for PmRange {
    fn split(self, mid: usize) -> (Self, Self) {
        self.split_at(mid).expect("the geometry was checked against the region")
    }

    fn write_back(&mut self, offset: usize, len_bytes: usize) {
        // Opening such a region has written it back already, and dropped what was not on the medium.
        if !PmRange::region_info(self).msync {
            PmRange::write_back(self, offset, len_bytes);
        }
    }

    fn region_info(&self) -> Option<&RegionInfo> {
        Some(PmRange::region_info(self))
    }
}
