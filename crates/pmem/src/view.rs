//! Reading a region while others write to it.

use crate::medium::{Medium, ReadError};
use crate::range::PmRange;

/// Reads bytes of a region that others own.
///
/// Motivation: what was written to a log stays as it is until the log is emptied, while its chunks belong to
/// whoever writes to them. The reader sees to it that nobody writes to the same bytes meanwhile, and checks
/// what it has read.
/// Concurrency: any number of threads.
pub trait View: Send + Sync {
    /// Copies bytes of the region out.
    ///
    /// # Errors
    /// [`ReadError`] with the region offset of the first unreadable byte.
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError>;
}

/// A view of a mapped region. It keeps the region mapped, and its lock.
#[derive(Debug)]
pub struct PmView(PmRange);

impl PmView {
    /// `range` is used for reading alone.
    pub(crate) fn new(range: PmRange) -> PmView {
        PmView(range)
    }
}

impl View for PmView {
    fn read(&self, region_offset: u64, dst: &mut [u8]) -> Result<(), ReadError> {
        // What is in front of the range is outside of it, as is what comes after.
        let offset = region_offset.wrapping_sub(self.0.region_offset());
        self.0.read(usize::try_from(offset).unwrap_or(usize::MAX), dst)
    }
}
