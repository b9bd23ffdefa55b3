//! What a cache asks of its memory, besides being a medium.

use fastness_pmem::{Medium, PmRange};

/// A range of PM that can be divided, so that each group of slots owns its bytes.
pub trait CacheMedium: Medium + Sync + Sized + std::fmt::Debug + 'static {
    /// Divides the range at `offset`.
    ///
    /// # Panics
    /// Caller bug only: `offset` is no multiple of 64, or outside.
    #[must_use]
    fn divide(self, offset: usize) -> (Self, Self);
}

impl CacheMedium for PmRange {
    fn divide(self, offset: usize) -> (PmRange, PmRange) {
        self.split_at(offset).expect("the geometry divides at lines inside of the region")
    }
}
