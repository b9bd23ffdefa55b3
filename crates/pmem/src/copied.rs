//! How many bytes this process has copied to PM.
//!
//! Each range counts its own, with an addition to a field that it owns: no other thread's cache line is
//! touched by a copy. The sums come together when a range is dropped.

use std::sync::atomic::{AtomicU64, Ordering};

static OF_DROPPED: AtomicU64 = AtomicU64::new(0);

/// Bytes that ranges of this process have copied to their regions, padding included; those of a range count
/// once it is dropped. To measure a job, read it before and after, with the job's ranges made and dropped
/// in between.
pub fn copied_bytes() -> u64 {
    OF_DROPPED.load(Ordering::Relaxed)
}

/// The count of one range.
#[derive(Debug, Default)]
pub(crate) struct Copied(u64);

impl Copied {
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: usize) {
        self.0 = self.0.wrapping_add(bytes as u64);
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        OF_DROPPED.fetch_add(self.0, Ordering::Relaxed);
    }
}
